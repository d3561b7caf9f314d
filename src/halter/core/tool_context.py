"""`ToolContext`: what a tool's function gets of the run that it is called in.

It is the run's context, narrowed to one call: what the call shows, starts and opens belongs to it, and its token is
cancelled when the call has to end, which for one that must finish is later than the run's own cut.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

from halter import events
from halter.core.approvals import is_allowed
from halter.core.cancellation import CancellationToken
from halter.core.context import THREAD_PATIENCE, RunContext
from halter.core.frames import where_in_thread
from halter.core.threads import start_in_thread
from halter.errors import RunCancelled, UsageError
from halter.shown import well_formed

if TYPE_CHECKING:
    from halter.core.call import Call
    from halter.core.execution import Execution

P = ParamSpec("P")
T = TypeVar("T")


class ToolContext(RunContext):
    """One tool call's view of its run. What it gives works in any thread, unless said otherwise."""

    __slots__ = ("_call",)

    def __init__(self, execution: Execution, call: Call) -> None:
        super().__init__(execution)
        self._call = call

    @property
    def _owner(self) -> Call:
        return self._call

    # --- looking --------------------------------------------------------------------------------------------

    @property
    def call_id(self) -> str:
        """The model's id of this call."""
        return self._call.request.id

    @property
    def name(self) -> str:
        """The tool's name."""
        return self._call.request.name

    @property
    def token(self) -> CancellationToken:
        """Cancelled when this call has to end: by a stop, or at its time-out. Cancelling it cancels the run."""
        return self._call.token

    @property
    def timeout(self) -> float | None:
        """Seconds that are left for this call, by its own time-out and the run's; `None`: no limit."""
        ends = [at for at in (self._call.deadline, self.deadline) if at is not None]
        assert self._execution.home is not None
        return max(0.0, min(ends) - self._execution.home.loop.time()) if ends else None

    # --- showing --------------------------------------------------------------------------------------------

    def progress(self, text: str, data: Any = None) -> None:
        """Shows how far the call has come, as `tool.progress`; from any thread.

        Once the call has to end: dropped, and in a thread `RunCancelled`, its chance to end.
        """
        if not isinstance(text, str):
            raise UsageError(f"ctx.progress takes text, and anything as data, not {type(text).__name__}")
        self._do(lambda: self._write_progress(text, data))

    def _write_progress(self, text: str, data: Any) -> None:
        first_seq = self._execution.log.head + 1
        self._execution.write(
            events.ToolProgress, call_id=self.call_id, text=well_formed(text), data=data, first_seq=first_seq
        )

    def so_far(self, text: str) -> None:
        """What the model is to have of this call if it is cut short: the output until then. The last word counts."""
        self._call.so_far = text

    def text(self, text: str) -> NoReturn:
        """Not for tools: raises `UsageError`. The run's answer is the model's; a tool has `progress`."""
        raise UsageError("a tool has no voice of its own in the answer: use ctx.progress(…)")

    @property
    def _is_closed(self) -> bool:
        return self._call.is_closed

    @property
    def _is_deaf(self) -> bool:
        return self._call.is_deaf or self._call.is_closed

    def _raise_if_over(self) -> None:
        self.token.raise_if_cancelled()
        if self._is_deaf:
            raise RunCancelled(f"the call {self.call_id} of {self.name} is over")

    async def approve(self, question: str, *, timeout: float | None = 300.0) -> None:
        """Asks for a yes to what the call turns out to do; returns once it is given. On the run's loop only.

        Args:
            question: What somebody is asked, as an `input.requested` event of the kind `approval`.
            timeout: Seconds until the answer is a no; `None`: no limit. The call's own time-out stands still meanwhile.

        Raises:
            ToolError: Somebody said no, or nobody answered in time. Let it pass: the call ends as denied.

        Cancellation-safe: a stop resolves the question as cancelled.
        """
        await self._call.approve(question, timeout)

    async def is_allowed(self, tool: str, fits: Callable[[Mapping[str, Any]], bool]) -> bool:
        """True if a yes is remembered for calls of this tool whose pattern `fits`. On the run's loop only."""
        return await is_allowed(self._execution, tool, fits)

    # --- what belongs to the call ---------------------------------------------------------------------------

    def spawn(self, coroutine: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """A task of this call: cancelled at its end, and by whatever ends the call. On the run's loop only."""
        execution, label = self._execution, name or coroutine.__qualname__
        task = execution.spawn(self._contained(coroutine), label, contextvars.copy_context())
        resource = execution.hold(execution.task_resource("task", label, task, self._call))

        def done(_: asyncio.Task[T]) -> None:
            coroutine.close()  # cancelled before its first step, it was never begun
            resource.end()

        task.add_done_callback(done)
        return task

    async def _contained(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """`SystemExit` in a task would end the loop, and every run on it."""
        try:
            return await coroutine
        except (SystemExit, KeyboardInterrupt) as error:
            self._call.surface(error)
            raise asyncio.CancelledError from error

    async def blocking(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls a blocking function, as the call itself: in a daemon thread that carries this run.

        A cancelled call goes on waiting for it: the function sees `ctx.token`, and may end by itself. After 100 ms (if
        the tool must finish: at the end of the grace) the call is given up, and what the thread comes to is late.
        """
        self._raise_if_over()
        execution, call = self._execution, self._call
        future, thread = start_in_thread(fn, *args, **kwargs)
        call.is_in_thread(lambda: where_in_thread(thread.ident), THREAD_PATIENCE)

        def returned(future: asyncio.Future[T]) -> None:
            assert execution.home is not None
            execution.home.read_inbox()  # what it emitted comes before what it returned
            call.thread_returned(future)

        future.add_done_callback(returned)
        while not future.done() and not call.given_up.done():
            try:
                await asyncio.wait((future, call.given_up), return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                if execution.result is not None:
                    raise  # its loop had been given up with it
                # Nobody can end a thread: it is waited for until it is given up.
        if not future.done():
            raise asyncio.CancelledError
        call.is_back()
        return future.result()

    def __repr__(self) -> str:
        return f"<ToolContext of {self.name} {self.call_id} in {self._execution!r}>"
