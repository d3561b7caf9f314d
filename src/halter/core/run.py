"""`Run`: the handle over an execution.

1. `run()` starts nothing; whatever waits, starts it. 2. Nothing that works for a run holds its handle: a started handle
that is dropped stops the run. 3. Uses that own the run stop it when they are cancelled from outside; uses that observe
it never do. 4. `cancel` asks, from anywhere; `aclose` and `close` finish.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, Generic, NoReturn, ParamSpec, TypeVar

from halter.core.approval_file import Allowed
from halter.core.approvals import allowed_in
from halter.core.current import CURRENT, current_execution
from halter.core.execution import Execution
from halter.core.home import begin
from halter.core.lockfree import forbid_blocking, require_asyncio
from halter.core.reader import Cursor, EventReader, TextReader, caller_interrupted, cancelled_by_caller
from halter.core.sealing import surfaces
from halter.errors import (
    AlreadyAnswered,
    BusyError,
    NoCurrentRun,
    RunCancelled,
    RunFailed,
    RunTimedOut,
    SessionBusy,
    SessionNotFound,
    UsageError,
)
from halter.messages import Message, as_messages
from halter.outcome import CancelMode, CancelReason, RunResult, RunStatus
from halter.shown import message_of

T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")
R = TypeVar("R")


class Run(Generic[T_co]):
    """A handle over one execution of a runnable: watch it, stop it, wait for it.

    Made by `run()` on anything that runs. All of it works from any task, thread and event loop.
    """

    __slots__ = ("__weakref__", "_cursor", "_execution", "_owns", "_stops_when_dropped")

    def __init__(self, execution: Execution, *, owns: bool = True, stops_when_dropped: bool = True) -> None:
        self._execution = execution
        self._owns = owns
        self._stops_when_dropped = stops_when_dropped
        self._cursor: Cursor | None = None

    @classmethod
    def observing(cls, execution: Execution) -> Run[Any]:
        """A handle that neither dropping nor cancelling a use of it stops."""
        return cls(execution, owns=False, stops_when_dropped=False)

    # --- looking --------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self._execution.id

    @property
    def parent_id(self) -> str | None:
        parent = self._execution.parent
        return parent.id if parent else None

    @property
    def root_id(self) -> str:
        return self._execution.root.id

    @property
    def status(self) -> RunStatus:
        return self._execution.shown_status

    @property
    def text(self) -> str:
        """This runnable's own answer so far; at the end the same as `result.text`."""
        return self._execution.text

    @property
    def outcome(self) -> RunResult[T_co] | None:
        """The result once the run is over, else `None`."""
        return self._execution.result

    @property
    def is_cancelling(self) -> bool:
        """True from the request to stop until it is over."""
        return self._execution.is_stopping

    @property
    def is_asking(self) -> bool:
        """True while it, or a run under it, has a question that is not answered."""
        return any(each.inputs for each in self._execution.subtree())

    @property
    def is_done(self) -> bool:
        return self._execution.result is not None

    @property
    def is_cancelled(self) -> bool:
        return self._execution.result is not None and self._execution.result.is_cancelled

    @property
    def is_completed(self) -> bool:
        return self._execution.result is not None and self._execution.result.is_completed

    @property
    def is_failed(self) -> bool:
        return self._execution.result is not None and self._execution.result.is_failed

    def why(self) -> str:
        """One sentence on how it ended, or where it is."""
        if self._execution.result is not None:
            return self._execution.result.why()
        request = self._execution.request() if self.is_cancelling else None
        return f"It is being stopped: {request}." if request else f"It is {self.status}."

    # --- stopping -------------------------------------------------------------------------------------------

    def cancel(
        self,
        message: str | None = None,
        *,
        reason: CancelReason = CancelReason.USER_STOP,
        mode: CancelMode = CancelMode.IMMEDIATE,
        actor: str | None = None,
    ) -> bool:
        """Asks it to stop. From any task, thread, signal handler or `__del__`; never blocks, never raises.

        True: a stop is in force; in a cutting mode the outcome *will* be `cancelled`. False: it is over already, or
        its end has been decided otherwise. A stronger `mode` escalates; the first reason stays.
        """
        return self._execution.cancel(message, reason=reason, mode=mode, actor=actor)

    async def aclose(self) -> None:
        """Cancels it and waits until everything of it has stopped, within the run's grace.

        Idempotent. Raises `BusyError` inside the run itself, which cannot wait for its own end.
        """
        require_asyncio("run.close() in a thread")
        self._execution.cancel()
        self._not_from_inside()
        await self._ended()

    def close(self, timeout: float | None = None) -> None:
        """The blocking form of `aclose`. `timeout`: seconds; then `TimeoutError`, and the stop goes on."""
        forbid_blocking("await run.aclose()")
        self._execution.cancel()
        self._not_from_inside()
        if not self._execution.done.block_until(self._execution.is_over, timeout):
            raise TimeoutError(f"run {self.id} had not stopped after {timeout} s")

    # --- starting, letting go -------------------------------------------------------------------------------

    def start(self) -> Run[T_co]:
        """Begins it, if it has not begun, and returns this handle. Stops nothing when cancelled."""
        begin(self._execution)
        return self

    def detach(self) -> str:
        """Starts it if need be, and lets it run on without this handle. Returns its id, for `runtime().find`."""
        self.start()
        self._stops_when_dropped = self._owns = False
        self._execution.claims["detached"] = True
        self._execution.log.lift()
        return self.id

    def kept_by_parent(self) -> Run[T_co]:
        """Leaves it to the parent's end to stop it: dropping this handle no longer does. Returns it."""
        self._stops_when_dropped = False
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        # A copy that is dropped would stop the run of the handle that is kept.
        raise UsageError("a run's handle cannot be copied or pickled: share it, or find the run by its id")

    def __del__(self) -> None:
        if getattr(self, "_stops_when_dropped", False) and self._execution.is_begun:
            self._execution.cancel(reason=CancelReason.HANDLE_DROPPED)

    # --- waiting --------------------------------------------------------------------------------------------

    async def wait(self) -> RunResult[T_co]:
        """Waits for the end and returns the result; a coroutine, for `create_task`.

        Raises `RunCancelled`, `RunTimedOut` or `RunFailed` (`SessionBusy` is one), each with `.result`. Owning:
        cancelled from outside, it cancels the run, waits for its teardown once (0.25 s at most), and the same exception
        goes on.
        """
        await self._start_here()
        try:
            await self._ended()
        except asyncio.CancelledError:
            if self._owns:
                await cancelled_by_caller(self._execution)
            raise
        return self._result_or_raise()

    def __await__(self) -> Generator[Any, None, RunResult[T_co]]:
        return self.wait().__await__()

    async def finished(self) -> RunResult[T_co]:
        """Waits for the end and returns the result, however it ended. Observing: stops nothing."""
        await self._start_here()
        await self._ended()
        return self._the_result()

    def result(self, timeout: float | None = None) -> RunResult[T_co]:
        """The blocking form of `wait`. `timeout`: seconds; then `TimeoutError`, and the run goes on."""
        forbid_blocking("await run")
        self.start()
        self._not_from_inside()
        lifted = self._lift()
        try:
            if not self._execution.done.block_until(self._execution.is_over, timeout):
                raise TimeoutError(f"run {self.id} was not over after {timeout} s; it goes on")
        except TimeoutError:
            raise
        except BaseException:
            if self._owns:
                caller_interrupted(self._execution)
            raise
        finally:
            lifted()
        return self._result_or_raise()

    async def _start_here(self) -> None:
        """Begins it for a task that waits. A run that is over as it begins lets others run first, as any wait does."""
        self._not_from_inside()
        require_asyncio("run.result() in a thread")
        was_over = self.is_done
        self.start()
        if self.is_done and not was_over:
            await asyncio.sleep(0)

    async def _ended(self) -> None:
        lifted = self._lift()
        try:
            await self._execution.done.wait_until(self._execution.is_over)
        finally:
            lifted()

    def _lift(self) -> Callable[[], None]:
        """Whoever waits lifts back-pressure: outside the tree all of it, inside that of readers inside.

        Returns what puts it back.
        """
        current = current_execution()
        inside = current is not None and current.root is self._execution.root
        return self._execution.log.lift(inside=inside)

    def _not_from_inside(self) -> None:
        current = current_execution()
        while current is not None:
            if current is self._execution:
                raise BusyError("a run cannot wait for its own end; inside it, use ctx.token or simply return")
            current = current.parent

    def _the_result(self) -> RunResult[T_co]:
        result = self._execution.result
        assert result is not None
        return result

    def _result_or_raise(self) -> RunResult[T_co]:
        result = self._the_result()
        if result.is_completed:
            return result
        name = f"run {self.id} of {self._execution.definition.name!r}"
        if result.is_cancelled:
            timed_out = result.cancellation is not None and result.cancellation.reason is CancelReason.TIMEOUT
            kind = RunTimedOut if timed_out else RunCancelled
            raise kind(f"{name} was stopped: {result.cancellation}", result) from result.error
        error = result.error
        if error is not None and surfaces(error):
            raise error
        if isinstance(error, SessionBusy):
            raise SessionBusy(str(error), result, session_id=error.session_id, holder=error.holder)
        keeping = self._execution.keeping
        if isinstance(error, SessionNotFound) and keeping is not None and not keeping.had_its_turn:
            raise SessionNotFound(str(error)) from error
        raise RunFailed(f"{name} failed: {type(error).__name__}: {message_of(error)}", result) from error

    # --- reading --------------------------------------------------------------------------------------------

    def _the_cursor(self) -> Cursor:
        """The handle's one cursor: a second loop goes on where the first stopped."""
        if self._cursor is None:
            self._cursor = Cursor(self._execution, after=None, owning=self._owns)
        return self._cursor

    def __aiter__(self) -> EventReader:
        return EventReader(self, self._the_cursor())

    def __iter__(self) -> EventReader:
        forbid_blocking("async for event in run")
        return EventReader(self, self._the_cursor())

    def text_stream(self) -> TextReader:
        """The text alone, for `async for` and `for`; on the handle's cursor.

        Raises `RunFailed` at its end if the run failed; ends quietly if it was stopped.
        """
        return TextReader(self, self._the_cursor(), self._execution, self._result_or_raise)

    def events(self, after: int | None = None) -> EventReader:
        """Another reader of the log, for `async for` and `for`: any number, each gets all. Observing.

        `after`: the `seq` of the last event that is known already; `None`: from the beginning.
        """
        return EventReader(self, Cursor(self._execution, after=after, owning=False))

    # --- steering -------------------------------------------------------------------------------------------

    def send(self, message: str | Message) -> bool:
        """Steers it: delivered at the next turn. From any thread. False if it is over or being stopped.

        Raises `ConfigurationError` for what is no message. What no turn came for is in `result.undelivered`: nothing
        is lost silently.
        """
        if self._execution.cell or self.is_cancelling:
            return False
        self._execution.steering.extend(as_messages(message))
        return True

    def answer(self, request_id: str, value: Any, *, reason: str | None = None, by: str | None = None) -> None:
        """Answers an `input.requested` of this run or of one under it, from any thread.

        Args:
            request_id: The question's.
            value: One of its `options`, if it has any. Of an approval: `"yes"` or `True`, once; `"session"`, for its
                `pattern` on this session, or in this tree of runs; `"always"`, for its pattern; `"no"` or `False`.
            reason: Why; after a no it is told to the model. 2,000 characters at most.
            by: Who answers, for the record.

        Raises `AlreadyAnswered` if another answer was first, and `UsageError` if nothing with this id is open or if
        the question does not take this answer; then it stays open.
        """
        asked = next((found for each in self._execution.subtree() if (found := each.inputs.get(request_id))), None)
        home = self._execution.home
        if asked is None or home is None:
            raise UsageError(f"run {self.id} has no open request {request_id!r}")
        is_first = asked.claim(asked.read(value, reason, by))
        home.post(asked.give)  # also for a later answer: Ctrl-C may have kept the first from waking the loop
        if not is_first:
            raise AlreadyAnswered(f"question {request_id!r} of run {self.id} has an answer; this one changes nothing")

    @property
    def allowed(self) -> tuple[Allowed, ...]:
        """Every yes that is remembered for this run's session or, without one, for its tree. On its loop only."""
        return allowed_in(self._execution)

    def bind(self, fn: Callable[P, R]) -> Callable[P, R]:
        """`fn`, carried into any thread: there, this run is the current one."""
        context = contextvars.copy_context()
        context.run(CURRENT.set, self._execution.current)

        def bound(*args: P.args, **kwargs: P.kwargs) -> R:
            return context.copy().run(fn, *args, **kwargs)

        return bound

    # --- scopes ---------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Run[T_co]:
        require_asyncio("`with agent.run(…) as run` in a thread")
        return self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._owns or self._execution.result is not None:
            return
        if isinstance(error, asyncio.CancelledError):
            await cancelled_by_caller(self._execution)
            return
        self._execution.cancel(reason=CancelReason.SCOPE_EXITED)
        await self._ended()

    def __enter__(self) -> Run[T_co]:
        forbid_blocking("async with agent.run(…) as run")
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._owns or self._execution.result is not None:
            return
        if error is not None and not isinstance(error, Exception):
            caller_interrupted(self._execution)
            return
        self._execution.cancel(reason=CancelReason.SCOPE_EXITED)
        self._execution.done.block_until(self._execution.is_over)

    def __repr__(self) -> str:
        return f"<Run {self._execution.definition.name!r} {self.id} {self.status}>"


def current_run() -> Run[Any]:
    """The run that this code belongs to, as a handle that does not own it. Raises `NoCurrentRun`."""
    execution = current_execution()
    if execution is None:
        raise NoCurrentRun("no run is current here; in a thread of your own, carry it in with run.bind(fn)")
    return Run.observing(execution)
