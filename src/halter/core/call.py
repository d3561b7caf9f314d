"""One tool call: allowed, run, and ended.

1. Each call is a task of its own, so that a stop can spare one and end another. 2. Whoever comes first ends it, once:
its own end, its time-out, the stop that gives it up, the seal of the run. What it comes to afterwards is `tool.late`.
3. A call that had not begun when the stop came never runs, nor one whose arguments were cut off. 4. The model gets
exactly one result for each call.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any, TypeAlias, cast
from weakref import WeakKeyDictionary

from halter import events
from halter.core import log
from halter.core.approvals import decide, options_for
from halter.core.asking import ask
from halter.core.attaching import Attachment, Takes, told
from halter.core.current import CURRENT, CurrentRun
from halter.core.ending import cancel_task, end_one, give_up
from halter.core.execution import Execution
from halter.core.frames import where
from halter.core.grace import Grace
from halter.core.history import CUT_OFF, MAY_HAVE_RUN, NOT_RUN
from halter.core.lockfree import snapshot
from halter.core.ports import Question, Tool
from halter.core.resources import Resource
from halter.core.run_token import CallToken
from halter.core.scrubbing import scrubbed
from halter.core.tool_context import ToolContext
from halter.errors import RunCancelled, RunFailed, ToolError, UsageError
from halter.messages import ToolCall, ToolResult
from halter.outcome import CancelMode, CancelReason, Ended
from halter.shown import message_of, shown, well_formed

RETRY_DELAY = 0.1  # seconds before the second attempt; twice as long before each further one
SHORT_ERROR = 2_000  # characters that are told of any failure, however short the tool keeps its results
DENIED = "This call was not allowed."
LONGEST_QUESTION = 100_000  # characters; what takes more to show is not approved by anybody
TOO_LONG_TO_ASK = (
    "The call was not made: somebody has to approve it, and it takes {:,} characters to show what it does; {:,} are "
    "the most. Do it in smaller parts."
)
TOOK_TOO_LONG = "This call took too long and was ended: part of it may have taken effect."
RUN_STOPPED = "The run that it had started was stopped."
_logger = logging.getLogger("halter")

Before: TypeAlias = Callable[[ToolContext, ToolCall], Awaitable[ToolCall | str | None]]
Ending: TypeAlias = tuple[events.ToolOutcome, str]
After: TypeAlias = Callable[[ToolContext, ToolCall, ToolResult], Awaitable[str | None]]


class Denied(ToolError):
    """Nobody said yes to what a call that has begun turned out to do."""


class Call:
    """One tool call, from the model's asking to its result. Home loop only."""

    __slots__ = (
        "_after",
        "_before",
        "_cell",
        "_is_compensating",
        "_takes",
        "_timer",
        "_tools",
        "attachments",
        "began_at",
        "carried",
        "context",
        "deadline",
        "ended",
        "execution",
        "expired",
        "given_up",
        "has_expired",
        "is_deaf",
        "outcome",
        "request",
        "resource",
        "result",
        "so_far",
        "token",
        "tool",
    )

    def __init__(
        self,
        execution: Execution,
        request: ToolCall,
        tools: Mapping[str, Tool],
        before: Before | None,
        after: After | None,
        takes: Takes | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.execution = execution
        self.request = request
        self.token = CallToken(self)
        self.context = ToolContext(execution, self)
        self.deadline: float | None = None  # on the loop's clock
        self.began_at: float | None = None
        self.outcome: events.ToolOutcome | None = None
        self.result: ToolResult | None = None
        self.attachments: tuple[Attachment, ...] = ()
        self.so_far = ""  # what the model gets of it if it is cut short
        self.expired = False
        self.has_expired = False  # stays, where `expired` is taken back for a compensation
        self.is_deaf = False  # nothing more is taken from threads: it is about to end
        self.ended: asyncio.Future[None] = loop.create_future()
        self.given_up: asyncio.Future[None] = loop.create_future()
        self.resource: Resource | None = None
        self.tool: Tool | None = None  # what runs: a hook may have chosen another than the model
        self._tools = tools
        self._before = before
        self._after = after
        self._takes = takes
        self.carried = contextvars.copy_context()  # of the body's task, which makes the calls of a turn
        self._cell = CurrentRun(None, of=execution.current, call=self)
        self._is_compensating = False
        self._timer: asyncio.TimerHandle | Grace | None = None

    # --- looking --------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return self.outcome is not None

    @property
    def is_cut(self) -> bool:
        """It has to end: at its time-out, or by a stop that does not spare it. From any thread."""
        if self.is_timed_out:
            return True
        request = self.execution.request() if self.execution.is_cut else None
        return request is not None and not self.is_spared(request.mode)

    @property
    def is_timed_out(self) -> bool:
        """It has to end, or had to, at its time-out: a thread of it may still look when the call is over."""
        return self.expired or (self.has_expired and self.is_over)

    @property
    def _was_cut(self) -> bool:
        """The same within its task, which may also have been cancelled from outside: at the end of `asyncio.run`."""
        task = asyncio.current_task()
        return self.is_cut or (task is not None and task.cancelling() > 0)

    @property
    def is_closed(self) -> bool:
        """Nothing that it shows is shown any more."""
        return self.is_over or self.is_cut or self.execution.result is not None

    @property
    def _must_finish(self) -> bool:
        return self._is_compensating or (self.tool is not None and self.tool.rules.must_finish)

    @property
    def _is_running(self) -> bool:
        return self.began_at is not None and not self.is_over and not self.expired

    def is_spared(self, mode: CancelMode) -> bool:
        """A call that has begun finishes where tools are drained, and one that must finish where they are not."""
        if mode is CancelMode.KILL or not self._is_running:
            return False
        return mode is not CancelMode.IMMEDIATE or self._must_finish

    def shields(self, mode: CancelMode) -> bool:
        """The runs that it has started end with the models, unless it must finish; a turn that may end has them too."""
        if mode is CancelMode.KILL or not self._is_running:
            return False
        return mode is CancelMode.AFTER_TURN or self._must_finish

    # --- running --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Makes its task."""
        execution = self.execution
        self.carried.run(CURRENT.set, self._cell)
        task = execution.spawn(self._main(), f"tool:{self.request.name}", self.carried)
        self.resource = execution.task_resource("tool", self.request.name, task, self)
        self.resource.on_end = self._on_resource_end
        execution.hold(self.resource)
        task.add_done_callback(self._on_task_done)

    async def _main(self) -> None:
        outcome, text = await self._caught(self._come_to_an_end())
        if self._after is not None and outcome != "cancelled" and not self.is_over and not self.ended.done():
            outcome, text = await self._caught(self._changed(self._after, outcome, text))
        self.end(outcome, text)

    async def _caught(self, way: Awaitable[Ending]) -> Ending:
        """Nothing that a tool or a hook raises may travel through the loop."""
        try:
            return await way
        except BaseException as error:
            home = self.execution.home
            if isinstance(error, GeneratorExit) and (home is None or not home.is_here):
                raise  # thrown away with its loop: nothing can be done any more
            return self._cut_short(error)

    async def _come_to_an_end(self) -> Ending:
        """What the call comes to, if nothing cuts it short."""
        request = self.request
        if request.incomplete:
            raise ToolError(CUT_OFF)
        if self._before is not None:
            answer = await self._before(self.context, request)
            if isinstance(answer, str):
                return "ok", answer
            request = request if answer is None else _call_in(answer)
        tool = self.tool = self._tools.get(request.name)
        if tool is None:
            there = ", ".join(sorted(self._tools)) or "none"
            raise ToolError(f"There is no tool {request.name!r}. There are: {there}.")
        arguments = tool.read(request.arguments)
        question = await tool.question(arguments, self.context)
        if question is not None:
            refusal = await self._refusal(question, tool.rules.approval_timeout)
            if refusal is not None:
                return "denied", refusal
        async with self._place(tool):
            try:
                return "ok", self._kept(tool, await self._attempts(tool, arguments))
            except (asyncio.CancelledError, RunCancelled):
                if self._was_cut and not self.is_over and self.began_at is not None:
                    return await self._undone(tool, arguments)
                raise

    def _kept(self, tool: Tool, value: Any) -> str:
        """The text of what a tool has returned; its images and files are kept. Raises `ToolError`."""
        text, self.attachments = told(value, tool.text, self._takes)
        return text

    async def _refusal(self, question: Question, timeout: float | None) -> str | None:
        """Asks whether it may run: `None` if it may, else what the model is told. After a stop nobody is asked.

        Raises `ToolError` for what cannot be shown whole: nobody approves what they cannot see.
        """
        if len(question.prompt) > LONGEST_QUESTION:
            raise ToolError(TOO_LONG_TO_ASK.format(len(question.prompt), LONGEST_QUESTION))
        request = self.execution.request()
        if request is not None:
            raise RunCancelled("stopped", cancellation=request)
        self.context._raise_if_over()
        assert self.tool is not None
        name = self.tool.spec.name
        try:
            answer = await ask(
                self.execution,
                question.prompt,
                kind="approval",
                schema=None,
                options=options_for(self.execution, question),
                timeout=timeout,
                call_id=self.request.id,
                pattern=question.pattern,
            )
        except TimeoutError:
            await decide(self.execution, name, question, None)
            return f"{DENIED} Nobody answered in time."
        await decide(self.execution, name, question, answer)
        if answer.value != "no":
            return None
        return DENIED if answer.reason is None else f"{DENIED} The reason given: {answer.reason}"

    async def approve(self, question: str, timeout: float | None) -> None:
        """Asks within the call. The call's own time-out stands still meanwhile. Raises `Denied`."""
        self.token.raise_if_cancelled()
        left = None if self.deadline is None else self.deadline - asyncio.get_running_loop().time()
        self._expires_in(None)
        try:
            refusal = await self._refusal(Question(prompt=question), timeout)
        finally:
            self._expires_in(left)
        if refusal is not None:
            raise Denied(refusal)

    def _place(self, tool: Tool) -> AbstractAsyncContextManager[Any]:
        """One of the places that the tool has on this loop."""
        most, home = tool.rules.max_concurrency, self.execution.home
        if most is None or home is None:
            return nullcontext()
        places = home.kept.setdefault(Tool, WeakKeyDictionary[Tool, asyncio.Semaphore]())
        return places.setdefault(tool, asyncio.Semaphore(most))

    async def _attempts(self, tool: Tool, arguments: Any) -> Any:
        self._begin(tool)
        for attempt in range(tool.rules.retries + 1):
            try:
                return await tool.call(arguments, self.context)
            except (ToolError, RunCancelled):
                raise
            except Exception as error:
                if attempt == tool.rules.retries or self.is_cut:
                    raise
                _logger.info(
                    "call %s of %s failed, and is tried again: %s", self.request.id, self.request.name, shown(error)
                )
            await asyncio.sleep(RETRY_DELAY * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def _begin(self, tool: Tool) -> None:
        """From here on the call has begun: its effects may be there."""
        execution = self.execution
        execution.token.raise_if_cancelled()
        self.context.count_tool_call()
        self.began_at = time.monotonic()
        if self._must_finish:
            self._outlast_the_loop()
        execution.write(events.ToolStarted, call_id=self.request.id)
        self._expires_in(tool.rules.timeout)

    def _expires_in(self, seconds: float | None) -> None:
        """Sets the call's time-out anew; `None`: it has none."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.deadline = None
        if seconds is not None:
            loop = asyncio.get_running_loop()
            self.deadline = loop.time() + seconds
            self._timer = loop.call_at(self.deadline, self._expire)

    def _outlast_the_loop(self) -> None:
        """The end of `asyncio.run` cancels all tasks that it knows; the run, which it waits for, ends this one itself.

        Source: https://docs.python.org/3/library/asyncio-extending.html#task-lifetime-support
        """
        if self.resource is not None and self.resource.task is not None:
            asyncio._unregister_task(self.resource.task)

    def is_in_thread(self, place: Callable[[], str], patience: float) -> None:
        """A thread does its work, at `place()`; a stop that does not spare it waits `patience` seconds."""
        if self.resource is not None:
            self.resource.place = place
            if not self._must_finish:
                self.resource.patience = patience

    def is_back(self) -> None:
        """The thread has returned: what follows is its task's again."""
        resource = self.resource
        if resource is not None and resource.task is not None:
            resource.patience, resource.place = None, partial(where, resource.task)

    # --- ending ---------------------------------------------------------------------------------------------

    def _expire(self) -> None:
        """Its time is over: it is ended as by a stop, and the run goes on."""
        resource, execution = self.resource, self.execution
        if self.is_over or resource is None or execution.home is None:
            return
        self.expired = self.has_expired = True
        self.token.notify()
        cancel_task(resource, execution)
        self._end_what_it_has("at its time-out")
        patience = execution.options.grace if resource.patience is None else resource.patience
        self._timer = Grace(
            execution.home.loop,
            execution.home.loop.time() + patience,
            partial(cancel_task, resource, execution),
            partial(give_up, resource, execution),
        )

    def _cut_short(self, error: BaseException) -> Ending:
        was_cut = self._was_cut or self.began_at is None
        # A run that it has started may have been cut where the call itself is spared.
        was_cut = was_cut or (isinstance(error, RunCancelled) and self.execution.is_cut)
        if isinstance(error, asyncio.CancelledError | RunCancelled) and was_cut:
            if self.began_at is None:
                return "cancelled", NOT_RUN
            return ("cancelled", MAY_HAVE_RUN) if self.is_over else self._ended_early()
        if isinstance(error, ToolError):
            return "denied" if isinstance(error, Denied) else "error", self._told(message_of(error))
        if _ends_the_run(error):
            self.surface(error)
            return "error", type(error).__name__
        _logger.info("call %s of %s failed", self.request.id, self.request.name, exc_info=error)
        return "error", self._told(_described(error))

    def surface(self, error: BaseException) -> None:
        """`SystemExit`, `KeyboardInterrupt`: whoever waits for the run gets it."""
        if not self.ended.done():
            self.ended.set_exception(error)
            self.ended.exception()  # looked at: after a stop nobody else will

    def _told(self, text: str) -> str:
        """The text of an exception as the model gets it: without secrets, and no longer than any result."""
        text = scrubbed(text)
        return text if len(text) <= SHORT_ERROR or self.tool is None else self.tool.text(text)

    async def _undone(self, tool: Tool, arguments: Any) -> Ending:
        """After the cut: its compensation, which has the whole grace."""
        outcome, text = self._ended_early()
        self._begin_to_compensate()
        try:
            if await tool.compensate(arguments, self.context):
                return outcome, f"{text} What it had done was undone."
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError | GeneratorExit) or _ends_the_run(error):
                raise
            _logger.exception("the compensation of %s failed", self.request.name)
            return outcome, self._told(f"{text} Undoing it failed: {message_of(error)}")
        finally:
            self._is_compensating = False
        return outcome, text

    def _begin_to_compensate(self) -> None:
        """Neither the call's own time-out nor the short patience with a thread counts for what undoes it."""
        execution, resource = self.execution, self.resource
        if self._timer is not None:
            self._timer.cancel()
        if self.expired and resource is not None and execution.home is not None:
            self._timer = execution.home.loop.call_later(execution.options.grace, give_up, resource, execution)
        self._is_compensating, self.expired = True, False
        self._outlast_the_loop()

    def _ended_early(self) -> Ending:
        if self.expired and self.deadline is not None:
            return "error", f"{TOOK_TOO_LONG}{self._shown_so_far()}"
        return "cancelled", f"{MAY_HAVE_RUN}{self._shown_so_far()}"

    def _shown_so_far(self) -> str:
        return f"\nBy then it had given:\n{self.so_far}" if self.so_far else ""

    async def _changed(self, after: After, outcome: events.ToolOutcome, text: str) -> Ending:
        """What the hook makes of the result; stopped while it looks, the result is what it was."""
        try:
            changed = await after(self.context, self.request, self._result_of(outcome, text))
        except asyncio.CancelledError:
            return outcome, text
        if changed is not None and not isinstance(changed, str):
            raise UsageError(f"after_tool returns text for the model, or nothing, not {type(changed).__name__}")
        if changed is None:
            return outcome, text
        self.attachments = ()  # another result stands for all of this one
        return outcome, changed

    def _result_of(self, outcome: events.ToolOutcome, text: str) -> ToolResult:
        is_ok = outcome == "ok"
        return ToolResult(self.request.id, text, is_error=not is_ok, attachments=self.attachments if is_ok else ())

    def end(self, outcome: events.ToolOutcome, text: str) -> None:
        """Ends it with this result, unless it has one: then this is late."""
        if self.is_over:
            self._late(outcome, text)
            return
        self._hear_out()
        self._write_down(outcome, text)
        if self._timer is not None:
            self._timer.cancel()
        self._end_what_it_has("at its end")
        self._cell.call = None  # nothing that outlives the call keeps it
        if self.resource is not None:
            self.resource.end(Ended.CANCELLED if outcome == "cancelled" else Ended.FINISHED)
        if not self.ended.done():
            self.ended.set_result(None)

    def _hear_out(self) -> None:
        """What its threads have shown so far comes before its end; from here on they are refused."""
        self.is_deaf = True
        home = self.execution.home
        if home is not None and home.is_here:
            home.read_inbox()

    def _write_down(self, outcome: events.ToolOutcome, text: str) -> None:
        text = well_formed(text)
        self.outcome = outcome
        self.result = self._result_of(outcome, text)
        self.execution.write(
            events.ToolFinished,
            call_id=self.request.id,
            name=self.request.name,
            outcome=outcome,
            result=text,
            elapsed=self._elapsed(),
        )
        self.execution.changed_words()

    def _elapsed(self) -> float:
        return 0.0 if self.began_at is None else time.monotonic() - self.began_at

    def _end_what_it_has(self, when: str) -> None:
        """What it has opened and not closed, the newest first, and the runs that it has started."""
        execution = self.execution
        for resource in reversed(snapshot(execution.resources)):
            if resource.owner is self and resource is not self.resource:
                end_one(resource, execution)
        reason = CancelReason.TIMEOUT if self.expired else CancelReason.PARENT_FINISHED
        for child in snapshot(execution.children):
            if child.within is self:
                child.cancel(f"its tool call ended {when}", reason=reason)

    def seal(self) -> None:
        """The run ends: so does the call. On another thread than the loop's, which is lost, it is only written down."""
        if self.is_over:
            return
        ending: Ending = ("cancelled", NOT_RUN) if self.began_at is None else ("abandoned", MAY_HAVE_RUN)
        if self.execution.home is not None and self.execution.home.is_here:
            self.end(*ending)
        else:
            self._write_down(*ending)

    def _on_resource_end(self, resource: Resource) -> None:
        if resource.ended is Ended.ABANDONED:
            if not self.is_over:
                self.end("abandoned", MAY_HAVE_RUN)
            if not self.given_up.done():
                self.given_up.set_result(None)
            if resource.task is not None and not resource.task.done():
                asyncio._register_task(resource.task)  # the loop's business again
        self.execution.on_resource_end(resource)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():  # before its first step
            self.end("cancelled", NOT_RUN)
        elif (error := task.exception()) is not None:
            _logger.error("the machinery of a tool call failed; please report this", exc_info=error)
            self.end("error", self._told(_described(error)))

    # --- too late -------------------------------------------------------------------------------------------

    def thread_returned(self, future: asyncio.Future[Any]) -> None:
        """Its thread has come to an end; if the call was given up, that is late."""
        error = future.exception()
        if not self.is_over:
            return
        ending: Ending = "error", self._told(_described(error))
        if error is None and self.tool is not None:
            try:
                ending = "ok", told(future.result(), self.tool.text)[0]
            except Exception as unfit:
                ending = "error", self._told(_described(unfit))
        self._late(*ending)

    def _late(self, outcome: events.ToolOutcome, text: str) -> None:
        """In the log while the run goes on; after its end, to the observers alone: an ended log never grows."""
        execution = self.execution
        if outcome not in ("ok", "error"):
            return
        late = events.ToolLate(
            seq=execution.log.head + (execution.result is None),
            at=time.time(),
            **execution.agent_stamp,
            call_id=self.request.id,
            name=self.request.name,
            outcome=outcome,
            result=well_formed(text),
            elapsed=self._elapsed(),
        )
        if execution.result is None:
            execution.log.append(late)
        elif log.publish is not None:
            log.publish(late)
        if execution.ended_as is not None:
            self._put_on_record(late)

    def _put_on_record(self, late: events.ToolLate) -> None:
        """Into the record of its run, or of the nearest run above it that has one: once that is whole."""
        for run in (self.execution, *self.execution.ancestors()):
            if run.keeping is not None:
                if run.result is None:
                    run.on_done[object()] = partial(run.keeping.late, late)
                else:
                    run.keeping.late(late)
                return


def _ends_the_run(error: BaseException) -> bool:
    """`SystemExit` and `KeyboardInterrupt`, also in a group. Any other exception of a tool is told to the model."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(_ends_the_run, cast("BaseExceptionGroup[BaseException]", error).exceptions))
    return isinstance(error, SystemExit | KeyboardInterrupt)


def _call_in(answer: Any) -> ToolCall:
    if not isinstance(answer, ToolCall):
        raise UsageError(f"before_tool returns a ToolCall, text or nothing, not {type(answer).__name__}")
    return answer


def _described(error: BaseException | None) -> str:
    """An exception, as a model is told of it."""
    if error is None:
        return "It failed."
    if isinstance(error, RunCancelled):
        return RUN_STOPPED  # by whom and why is nobody's business there
    if isinstance(error, RunFailed) and error.result is not None and error.result.error is not None:
        error = error.result.error
    failure = events.failure_of(error)
    return failure.type if failure.message == failure.type else f"{failure.type}: {failure.message}"
