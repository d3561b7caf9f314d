"""What a stop has to end, and the receipt that tells how it went.

1. A resource is registered before it can be forgotten, and taken off when it has ended. 2. `close` is called at most
once, on the home loop, newest resource first. 3. A line of the receipt is written when the thing is gone (a socket: in
`connection_lost`), not when its end was asked for.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable
from itertools import count
from typing import Any, Protocol, TypeAlias

from halter.outcome import CancelMode, CancelReceipt, Ended, ReceiptLine

Close: TypeAlias = Callable[[], object]
NOT_GONE = (Ended.ABANDONED, Ended.UNKNOWN)
_age = count()


class Owner(Protocol):
    """Something inside a run, such as a tool call, that may outlast a stop of the run.

    `carried`: the context that its code runs in.
    """

    carried: contextvars.Context

    def is_spared(self, mode: CancelMode) -> bool:
        """True while a stop of this mode leaves it, and what belongs to it, alone until the end of the grace."""
        ...

    def shields(self, mode: CancelMode) -> bool:
        """The same for the runs that it has started."""
        ...


class Resource:
    """One thing that a stop has to end. `age` orders the resources of a whole tree.

    `close`: ends it; if it returns an awaitable, the resource has ended when that is done, else at once. It is called
    in the context of the run or of `owner`, as `sever` and `last_resort` are.
    `task`: it is a task, ended by cancelling it. `sever`: a part of closing that comes before everything else and
    works from any thread. `last_resort`: ends it from any thread, used only when its loop does not answer.
    `patience`: seconds that a stop waits for it before it is abandoned; `None`: the run's grace. `owner`: what it
    belongs to within the run. `place()`: where it is, asked when it is abandoned.
    """

    __slots__ = (
        "age",
        "close",
        "ended",
        "ended_at",
        "is_closing",
        "kind",
        "label",
        "last_resort",
        "on_end",
        "owner",
        "patience",
        "place",
        "run_id",
        "sever",
        "task",
    )

    def __init__(
        self,
        kind: str,
        label: str,
        run_id: str,
        close: Close | None,
        on_end: Callable[[Resource], None],
        sever: Callable[[], None] | None = None,
        *,
        last_resort: Callable[[], None] | None = None,
        patience: float | None = None,
        owner: Owner | None = None,
        task: asyncio.Task[Any] | None = None,
        place: Callable[[], str] | None = None,
    ) -> None:
        self.kind = kind
        self.label = label
        self.run_id = run_id
        self.close = close
        self.sever = sever
        self.last_resort = last_resort
        self.patience = patience
        self.owner = owner
        self.task = task
        self.place = place
        self.age = next(_age)
        self.is_closing = False
        self.ended: Ended | None = None
        self.ended_at = 0.0
        self.on_end = on_end

    def is_spared(self, mode: CancelMode) -> bool:
        """True while a stop of this mode leaves it alone."""
        return self.owner is not None and self.owner.is_spared(mode)

    def end(self, how: Ended = Ended.FINISHED) -> None:
        """Says that it is gone. The first word counts; on the home loop only."""
        if self.ended is None:
            self.ended = how
            self.ended_at = time.monotonic()
            self.on_end(self)

    def line(self, since: float) -> ReceiptLine:
        ended = self.ended or Ended.ABANDONED
        gone = ended not in NOT_GONE
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
        confirmed=confirmed and all(line.ended not in NOT_GONE for line in lines),
        resources=lines,
    )
