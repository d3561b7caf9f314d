"""What a stop has to end, and the receipt that tells how it went.

1. A resource is registered before it can be forgotten, and taken off when it has ended. 2. `close` is called at most
once, on the home loop, newest resource first. 3. A line of the receipt is written when the thing is gone (a socket: in
`connection_lost`), not when its end was asked for.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TypeAlias

from halter.outcome import CancelReceipt, Ended, ReceiptLine

Close: TypeAlias = Callable[[], Awaitable[object] | None]
_age = count()


class Resource:
    """One thing that a stop has to end. `age` orders the resources of a whole tree.

    `close`: ends it; if it returns an awaitable, the resource has ended when that is done, else at once.
    `sever`: optional; a part of closing that works from any thread, for a loop that does not answer.
    `patience`: seconds that a stop waits for it before it is abandoned; `None`: the run's grace.
    """

    __slots__ = (
        "_on_end",
        "age",
        "close",
        "ended",
        "ended_at",
        "is_closing",
        "kind",
        "label",
        "patience",
        "run_id",
        "sever",
    )

    def __init__(
        self,
        kind: str,
        label: str,
        run_id: str,
        close: Close | None,
        on_end: Callable[[Resource], None],
        sever: Callable[[], None] | None = None,
        patience: float | None = None,
    ) -> None:
        self.kind = kind
        self.label = label
        self.run_id = run_id
        self.close = close
        self.sever = sever
        self.patience = patience
        self.age = next(_age)
        self.is_closing = False
        self.ended: Ended | None = None
        self.ended_at = 0.0
        self._on_end = on_end

    def end(self, how: Ended = Ended.FINISHED) -> None:
        """Says that it is gone. The first word counts; on the home loop only."""
        if self.ended is None:
            self.ended = how
            self.ended_at = time.monotonic()
            self._on_end(self)

    def line(self, since: float) -> ReceiptLine:
        ended = self.ended or Ended.ABANDONED
        gone = ended is not Ended.ABANDONED
        return ReceiptLine(
            kind=self.kind,
            label=self.label,
            run_id=self.run_id,
            ended=ended,
            ended_after_ms=max(0.0, self.ended_at - since) * 1e3 if gone else None,
        )

    def __repr__(self) -> str:
        return f"<Resource {self.kind} {self.label!r} {self.ended or ('closing' if self.is_closing else 'open')}>"


def receipt(requested_at: float, since: float, open_at_the_stop: list[Resource], confirmed: bool) -> CancelReceipt:
    """The receipt of a stop. `requested_at`: epoch seconds; `since`: the same instant on the monotonic clock."""
    lines = tuple(resource.line(since) for resource in open_at_the_stop)
    return CancelReceipt(
        requested_at=requested_at,
        stopped_after_ms=(time.monotonic() - since) * 1e3,
        confirmed=confirmed and all(line.ended is not Ended.ABANDONED for line in lines),
        resources=lines,
    )
