"""What a run on a session says, stored as it is said.

1. One write at a time, in order; what is said while one is under way goes with the next. 2. No write is cut short: it
is the loop's own work, which neither a stop nor the end of `asyncio.run` cancels. 3. `committed` stands before whatever
follows from what was said: a tool's start, the next request, the end of the body. 4. The run is over when its last word
is stored, or when that has taken longer than its grace: then storing goes on without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from halter.core import starting
from halter.core.lockfree import Wakers
from halter.errors import HalterError, RunCancelled, SessionsUnavailable, TurnLost
from halter.events import ToolLate
from halter.messages import Message
from halter.outcome import CancelReason, RunResult

if TYPE_CHECKING:
    from halter.core.execution import Execution
    from halter.core.ports import Opened, SessionTurn

LEAST_PATIENCE = 1.0  # seconds for the last write, however short the run's grace is
_logger = logging.getLogger("halter")


class Keeping:
    """The writer of one run's conversation. Home loop only, but for `lose`."""

    def __init__(self, execution: Execution, turn: SessionTurn) -> None:
        self.turn = turn
        self.has_begun = False
        self._is_open = False
        self._has_state = False
        self._is_lost = False
        self._execution = execution
        self._stored = 0  # messages of the run's conversation
        self._is_behind = False
        self._is_writing = False
        self._error: Exception | None = None
        self._moved = Wakers()

    @property
    def had_its_turn(self) -> bool:
        """False: the run was refused, or stopped while it waited."""
        return self._has_state

    # --- the beginning --------------------------------------------------------------------------------------

    async def run(self, body: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """What the body returns: on a session it runs from the run's turn on until all that it has said is stored."""
        execution, answered = self._execution, await self._open()
        request = execution.request()
        if request is not None:  # also one that would have let the turn end: it has not begun
            raise RunCancelled(f"stopped before its turn: {request}", cancellation=request)
        starting.announce(execution)
        if answered is not None:
            return starting.answer_as(execution, answered)
        self._is_open = self._has_state = True
        output = await body()
        await self.committed()
        return output

    async def _open(self) -> RunResult[Any] | None:
        """Waits for the run's turn, and gives it its conversation. What it returns has answered in its place."""
        self.has_begun = True
        opened = await self.turn.open(self._execution)
        if opened.answered is None:
            self._stored = self._begin_with(opened)
        return opened.answered

    def _begin_with(self, opened: Opened) -> int:
        """Gives the run what its session has for it; how many messages of its conversation are stored."""
        execution = self._execution
        definition, options = execution.definition, execution.options
        state = opened.state if definition.goes_on(options.input) else None
        if state is not None:
            execution.state = execution.state_before = definition.check_state(state)
        definition.check_options(replace(options, state=execution.state, session=None))
        if not execution.conversation:
            execution.conversation.extend(said_in(execution.state) or opened.messages)
        execution.base = len(execution.conversation)
        return execution.base

    # --- on the way -----------------------------------------------------------------------------------------

    def changed(self) -> None:
        """Something was said, or the state is another: it is stored soon."""
        if not self._is_open or "finish" in self._execution.claims:  # the last of it is stored by `close`
            return
        self._is_behind = True
        if not self._is_writing:
            self._is_writing = True
            self._execution.work(self._write())

    async def _write(self) -> None:
        try:
            while self._is_behind:
                self._is_behind = False
                at, said = self._unstored()
                await self.turn.write(at, (*said, *self._results_so_far()), self._execution.state)
                self._stored = at + len(said)
                self._error = None
        except Exception as error:
            self._fail(error)
        finally:
            self._is_writing = False
            self._moved.wake()

    def _unstored(self) -> tuple[int, tuple[Message, ...]]:
        conversation = self._execution.conversation
        at = min(self._stored, len(conversation))  # what is rolled back is shorter than what is stored
        return at, tuple(conversation[at:])

    def _results_so_far(self) -> tuple[Message, ...]:
        """Of the calls that are under way, what has ended, as the message that it will be part of."""
        results = tuple(call.result for call in self._execution.calls if call.result is not None)
        return (Message("tool", results),) if results and "finish" not in self._execution.claims else ()

    def _fail(self, error: Exception) -> None:
        self._error = error
        if isinstance(error, TurnLost):
            self._execution.cancel(str(error), reason=CancelReason.OWNER_LOST)
        elif not isinstance(error, HalterError):
            _logger.error("storing what run %s has said failed; please report this", self._execution.id, exc_info=error)

    async def committed(self) -> None:
        """Returns when all that was said so far is stored. Raises `SessionsUnavailable`, `TurnLost`."""
        if self._is_writing:
            await self._moved.wait_until(lambda: not self._is_writing)
        if self._error is not None:
            raise self._error

    async def compact(self, upto: int, messages: Sequence[Message]) -> None:
        """Stores that, for a model, `messages` stand for the first `upto` ones. Cancelled, it may have happened."""
        await self.committed()
        await self._execution.whole(self.turn.compact(upto, messages))

    # --- the end --------------------------------------------------------------------------------------------

    def close(self, result: RunResult[Any], done: Callable[[RunResult[Any]], None]) -> None:
        """Stores the last of it, and how the run has ended; calls `done` with the result, once that is known."""
        execution = self._execution
        assert execution.home is not None
        self._is_open = False
        patience = max(execution.options.grace, LEAST_PATIENCE)
        late = SessionsUnavailable(f"the end of run {execution.id} was not stored within {patience:g} s")

        def give_up() -> None:
            _logger.warning("%s; storing goes on while this event loop does", late)
            done(_marred(result, late))

        timer = execution.home.loop.call_later(patience, give_up)

        async def work() -> None:
            error = await self._close(result)
            timer.cancel()
            done(result if error is None else _marred(result, error))

        execution.work(work())

    async def _close(self, result: RunResult[Any]) -> Exception | None:
        await self._moved.wait_until(lambda: not self._is_writing)
        at, said = self._unstored()
        try:
            await self.turn.close(result, at, said, self._execution.state if self._has_state else UNSET)
        except Exception as error:
            _logger.warning("the end of run %s could not be stored: %s", self._execution.id, error)
            return error
        return None

    def late(self, event: ToolLate) -> None:
        """What came of a tool call after the run's end goes into its record."""
        self._execution.work(self._note(event))

    async def _note(self, event: ToolLate) -> None:
        try:
            await self.turn.late(event)
        except Exception as error:
            _logger.warning("a late result of run %s could not be stored: %s", self._execution.id, error)

    def lose(self) -> None:
        """The event loop is gone, or does not answer; whoever has the next turn repairs this one."""
        self._is_lost = True
        self.turn.lose()

    def lose_end_of(self, result: RunResult[Any]) -> RunResult[Any]:
        """The same, while the end is stored: that goes on if the loop answers again. The result, which says so."""
        self.turn.lose()
        why = "its event loop is gone, or does not answer"
        return _marred(result, SessionsUnavailable(f"the end of run {result.run_id} may not be stored: {why}"))

    def come_back(self) -> None:
        """The loop answers again: what the run had come to is stored after all, and its session is free."""
        result = self._execution.result
        if self._is_lost and result is not None:
            self._is_lost = False
            self._execution.work(self._close(result))


def said_in(state: Any) -> tuple[Message, ...]:
    """A state may have the conversation in it, which it goes on with."""
    return getattr(state, "messages", ())


def _marred(result: RunResult[Any], error: Exception) -> RunResult[Any]:
    """A run that has not completed says in its result what was not stored; one that has, has stored its answer."""
    return result if result.is_completed or result.error is not None else replace(result, error=error)
