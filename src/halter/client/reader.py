"""Readers of a remote run's events, for tasks and threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from halter import events
from halter.core.lockfree import forbid_blocking
from halter.outcome import RunStatus

if TYPE_CHECKING:
    from halter.client.run import RemoteRun
    from halter.client.state import RemoteState


class RemoteReader:
    """Reads a run's events in their order; the last is the terminal one. It holds the handle.

    Raises `RunLost` or `ConnectionFailed` if the run can be followed no longer.
    """

    def __init__(self, run: RemoteRun[Any], state: RemoteState, after: int = 0) -> None:
        self._run = run
        self._state = state
        self._after = after
        self._place = 0

    def _take(self) -> events.AnyEvent | None:
        found = self._state.events
        while self._place < len(found):
            event = found[self._place]
            self._place += 1
            if event.seq > self._after:
                return event
        return None

    def _has_news(self) -> bool:
        return self._place < len(self._state.events) or self._state.is_over

    def _check(self) -> None:
        if self._state.error is not None:
            raise self._state.error

    def __aiter__(self) -> RemoteReader:
        return self

    async def __anext__(self) -> events.AnyEvent:
        while (event := self._take()) is None:
            if self._state.is_over:
                self._check()
                raise StopAsyncIteration
            await self._state.changed.wait_until(self._has_news)
        return event

    def __iter__(self) -> RemoteReader:
        forbid_blocking("async for event in run")
        return self

    def __next__(self) -> events.AnyEvent:
        while (event := self._take()) is None:
            if self._state.is_over:
                self._check()
                raise StopIteration
            self._state.changed.block_until(self._has_news)
        return event


class RemoteTextReader:
    """Reads the run's own text alone. Raises `RunFailed` at its end if the run failed; a stop ends it quietly."""

    def __init__(self, run: RemoteRun[Any], state: RemoteState) -> None:
        self._run = run
        self._state = state
        self._reader = RemoteReader(run, state)

    def _own_text(self, event: events.AnyEvent) -> str:
        is_own = isinstance(event, events.TextDelta) and event.run_id == self._state.run_id
        return event.text if is_own and isinstance(event, events.TextDelta) else ""

    def _check(self) -> None:
        if self._state.status is RunStatus.FAILED:
            self._run.check()

    def __aiter__(self) -> RemoteTextReader:
        return self

    async def __anext__(self) -> str:
        async for event in self._reader:
            if text := self._own_text(event):
                return text
        self._check()
        raise StopAsyncIteration

    def __iter__(self) -> RemoteTextReader:
        forbid_blocking("async for text in run.text_stream()")
        return self

    def __next__(self) -> str:
        for event in self._reader:
            if text := self._own_text(event):
                return text
        self._check()
        raise StopIteration
