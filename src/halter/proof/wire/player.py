"""Performs a script on a connection: in time, no faster than the peer reads, noting what left when.

No task: one timer at most, so a thousand paced answers are a thousand timers, and to stop one is to cancel a
timer.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import assert_never

from halter.proof.wire.journal import Journal
from halter.proof.wire.records import Record
from halter.proof.wire.request import Line
from halter.proof.wire.steps import (
    CallTool,
    Cut,
    End,
    Fail,
    Hush,
    Open,
    Refuse,
    Replay,
    Reset,
    Say,
    Step,
    Steps,
)
from halter.proof.wire.voices import Voice

# libuv's timers count whole milliseconds: one that fires a little early is on time.
TIMER_SLACK = 0.0005
BYTES_PER_TURN = 16 * 1024  # between two looks at the sockets: in a flood, too, a close is noted when it comes
FLUSH_POLL = 0.001


class Player:
    """One answer being given. `on_end(keep_alive)` follows, unless it never ends or is stopped."""

    def __init__(
        self,
        line: Line,
        steps: Steps,
        voice: Voice,
        record: Record,
        journal: Journal,
        on_end: Callable[[bool], None],
    ) -> None:
        self._line = line
        self._steps = steps
        self._voice = voice
        self._record = record
        self._journal = journal
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._began = monotonic()
        self._next: Step | None = None
        self._last: Callable[[], None] | None = None
        self._pending: deque[tuple[bytes, int]] = deque()
        self._handle: asyncio.Handle | None = None
        self._paused = False
        self._over = False

    def __repr__(self) -> str:
        state = "over" if self._over else "paused" if self._paused else "playing"
        return f"<Player of request {self._record.id}, {state}, {self._record.tokens_sent} tokens sent>"

    def play(self) -> None:
        """Do all that is due, then arrange to come back."""
        self._handle = None
        budget = BYTES_PER_TURN
        while not (self._paused or self._over):
            if self._pending:
                budget -= self._put(*self._pending.popleft())
                if self._pending or budget < 0:
                    # Several writes are to be several segments; and a flood must leave room for the others.
                    self._handle = self._loop.call_soon(self.play)
                    return
            elif self._last is not None:
                self._over = True
                self._last()
            elif not self._perform_next():
                return

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        if self._handle is None:
            self.play()

    def stop(self) -> None:
        self._over = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _perform_next(self) -> bool:
        step = self._next or next(self._steps)
        wait = step.at - (monotonic() - self._began)
        if isinstance(step, Reset) and not self._line.has_flushed:
            wait = FLUSH_POLL
        if wait > TIMER_SLACK:
            self._next = step
            self._handle = self._loop.call_later(wait, self.play)
            return False
        self._next = None
        return self._perform(step)

    def _perform(self, step: Step) -> bool:
        match step:
            case Say():
                self._queue(self._voice.say(step), step.count)
            case Open():
                self._queue(self._voice.open(step))
            case CallTool():
                self._queue(self._voice.call_tool(step), 1)
            case Replay():
                self._queue(self._voice.replay(step), 1)
            case Fail():
                self._queue(self._voice.fail())
            case _:
                return self._perform_last(step)
        return True

    def _perform_last(self, step: Refuse | End | Cut | Reset | Hush) -> bool:
        match step:
            case Refuse():
                self._queue(self._voice.refuse(step))
                self._last = partial(self._finish, keep_alive=True)
            case End(body=True):
                self._queue(self._voice.end(step), self._voice.held)
                self._last = partial(self._finish, keep_alive=not step.close)
            case End():
                self._queue(self._voice.end(step), self._voice.held)
                self._last = _fall_silent
            case Cut():
                self._queue(self._voice.torn())
                self._last = partial(self._line.hang_up, politely=False)
            case Reset():
                self._last = self._line.reset
            case Hush():
                self._last = _fall_silent
            case _:
                assert_never(step)
        return True

    def _finish(self, keep_alive: bool) -> None:
        self._record.finished_at = monotonic()
        self._journal.entered(self._record, "finished")
        self._on_end(keep_alive)

    def _queue(self, writes: list[bytes], tokens: int = 0) -> None:
        # The tokens count as sent with the last of their bytes.
        for data in writes[:-1]:
            self._pending.append((data, 0))
        if writes:
            self._pending.append((writes[-1], tokens))

    def _put(self, data: bytes, tokens: int) -> int:
        size = self._line.write(data)
        if self._record.sent(monotonic(), size, tokens):
            self._journal.entered(self._record, "token")
        return size


def _fall_silent() -> None:
    """The connection stays as it is, for ever."""
