"""What a body gets: `RunContext`, its way to emit, to start children, to hold resources, and to see a stop coming.

1. Events are routed by construction: they go to the log of the run whose context emits them. 2. After the cut, what a
coroutine emits is dropped, and what a thread emits raises `RunCancelled`: its chance to stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from halter import checked, events
from halter.core.approvals import Policy, policy_of
from halter.core.asking import ask
from halter.core.cancellation import CancellationToken
from halter.core.current import current_execution
from halter.core.frames import where_in_thread
from halter.core.lockfree import snapshot
from halter.core.metering import Allowance, Meter, admit, admit_tool, allowance_for
from halter.core.ports import Price, SessionTurn
from halter.core.reply import Reply
from halter.core.resources import Close, Owner, Resource
from halter.core.threads import start_in_thread
from halter.core.using import closer
from halter.errors import NoCurrentRun, RunCancelled, UsageError
from halter.messages import Message, checked_message
from halter.outcome import Cancellation, Ended, RunStatus
from halter.request import ModelRequest
from halter.shown import shown

if TYPE_CHECKING:
    from halter.core.execution import Execution
    from halter.core.run import Run
    from halter.core.runnable import Runnable

P = ParamSpec("P")
T = TypeVar("T")
THREAD_PATIENCE = 0.1  # seconds
DELTAS = (events.TextDelta, events.ReasoningDelta, events.ToolArgumentsDelta, events.ToolProgress)


def _never(_: object) -> bool:
    return False


class RunContext:
    """A body's view of its own run. Everything here is the run's; a context given to a thread still routes to it."""

    __slots__ = ("_execution", "_reply")

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._reply: Reply | None = None

    @property
    def _owner(self) -> Owner | None:
        """What, within the run, that which is opened here belongs to."""
        return None

    @staticmethod
    def current() -> RunContext:
        """The context of the run that this code belongs to. Raises `NoCurrentRun`."""
        execution = current_execution()
        if execution is None:
            raise NoCurrentRun(
                "no run is current here: in a thread of your own, use run.bind(fn); after a run's end there is none"
            )
        return RunContext(execution)

    # --- what it was given ----------------------------------------------------------------------------------

    @property
    def run_id(self) -> str:
        return self._execution.id

    @property
    def input(self) -> Any:
        return self._execution.options.input

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation so far: history, input, answers."""
        return tuple(self._execution.conversation)

    @property
    def context(self) -> Any:
        """The caller's own object: never sent, logged or stored."""
        return self._execution.options.context

    @property
    def token(self) -> CancellationToken:
        """Cancelled at the cut; may be polled in any thread."""
        return self._execution.token

    @property
    def cancellation(self) -> Cancellation | None:
        """The stop that was asked for, whether it has cut the run or lets its turn end; `None` while there is none."""
        return self._execution.request()

    @property
    def deadline(self) -> float | None:
        """When the run's time is over, on its loop's clock (`loop.time()`), or `None`."""
        return self._execution.deadline

    @property
    def run(self) -> Run[Any]:
        """A handle that does not own the run: dropping it stops nothing."""
        from halter.core.run import Run  # the handle stands on this module

        return Run.observing(self._execution)

    # --- showing --------------------------------------------------------------------------------------------

    def text(self, text: str) -> None:
        """Shows more of this run's own answer; from any thread. Raises `UsageError` for what is no text."""
        if not isinstance(text, str):
            raise UsageError(f"ctx.text takes text, not {type(text).__name__}; ctx.emit takes anything")
        self._do(lambda: self._open_reply().text(text))

    def emit(self, name: str, data: Any = None) -> None:
        """Emits a `custom` event; from any thread. After the cut: dropped, and in a thread `RunCancelled`."""
        self.write(events.Custom, name=name, data=data)

    def write(self, kind: type[events.Event], /, **fields: Any) -> None:
        """Emits any event of what happens inside this run, stamped; from any thread, as `emit`.

        Raises `UsageError` for the events of the run itself (`run.started`, `run.completed`, …), which only Halter
        writes, and for deltas whose text is no text.
        """
        _check_event(kind, fields)
        self._do(lambda: self._execution.write(kind, **fields))

    def _do(self, write: Callable[[], object]) -> None:
        home = self._execution.home
        assert home is not None
        if home.is_here:
            if not self._is_closed:
                write()
            return
        self._raise_if_over()
        offered = [write]  # taken once: by the home loop, or back by this thread
        home.post(lambda: self._take(offered))
        # Offered first and looked afterwards: what was offered before the run turned deaf is read, the rest is refused.
        if self._is_deaf and _taken_from(offered) is not None:
            self._raise_if_over()

    def _take(self, offered: list[Callable[[], object]]) -> None:
        write = _taken_from(offered)
        if write is not None and not self._is_closed:
            write()

    @property
    def _is_closed(self) -> bool:
        """Nothing that is emitted here is shown any more."""
        return bool(self._execution.cell)

    @property
    def _is_deaf(self) -> bool:
        """Nothing more is taken from threads."""
        return self._execution.is_deaf or bool(self._execution.cell)

    def _raise_if_over(self) -> None:
        self._execution.token.raise_if_cancelled()
        if self._is_deaf:
            raise NoCurrentRun(f"run {self.run_id} is over; nothing can be emitted into it")

    def _open_reply(self) -> Reply:
        self._reply = self._reply or Reply(self._execution)
        return self._reply

    def close_reply(self) -> None:
        """Finishes the message that `text` has begun, if there is one."""
        if self._reply is not None and not self._execution.cell:
            self._reply.finish()
        self._reply = None

    def reply(self, allowance: Allowance | None = None) -> Reply:
        """Begins an assistant message, for a request about to be sent. For models; other bodies use `text`.

        `allowance`: what `ctx.allowance` gave for it; without one, nobody knows what it costs. With a budget over the
        run: raises `RunCancelled` if nothing is left of it, and `ConfigurationError` if it is in dollars and the
        allowance holds no price.
        """
        execution = self._execution
        admitted = admit(execution, allowance) if execution.accounts else None
        execution.has_asked = True
        reply = Reply(execution)
        reply.was_sent = True
        reply.price = None if allowance is None else allowance.price
        if admitted is not None:
            reply.meter = Meter(execution.accounts, admitted, reply.assembly)
        return reply

    def allowance(self, request: ModelRequest, price: Price | None = None) -> Allowance:
        """What a request costs, and what the budgets over this run leave for it. For models."""
        execution = self._execution
        return allowance_for(execution, request, price) if execution.accounts else Allowance(price=price)

    def count_tool_call(self) -> None:
        """Counts a call of a tool that is about to begin. Raises `RunCancelled` if the budget has none left."""
        admit_tool(self._execution)

    @property
    def is_too_far_ahead(self) -> Callable[[], bool]:
        """Asks whether `drain` would wait. Kept by who asks after each read, so that a read in time costs little."""
        return self._execution.log.is_too_far_ahead

    async def drain(self) -> None:
        """Waits while every reader is far behind: the one place where readers slow a run down.

        With a budget over the run, what has been shown is charged; raises `RunCancelled` if that was too much.
        """
        if self._execution.accounts:
            self._charge()
        log = self._execution.log
        if log.is_too_far_ahead():
            cell = self._execution.cell
            await log.resumed.wait_until(lambda: bool(cell) or not log.is_held())

    def _charge(self) -> None:
        for reply in snapshot(self._execution.replies):
            if reply.meter is not None:
                reply.meter.after_read()
        self._execution.token.raise_if_cancelled()

    # --- turns ----------------------------------------------------------------------------------------------

    def begin_step(self) -> int:
        """A turn begins; its number, from 1."""
        execution = self._execution
        execution.step += 1
        execution.open_step = execution.step
        self.write(events.StepStarted, step=execution.step)
        return execution.step

    def end_step(self) -> None:
        """The turn has ended."""
        execution = self._execution
        if execution.open_step is not None and not execution.cell:
            self.write(events.StepFinished, step=execution.open_step, interrupted=False)
            execution.open_step = None

    def before_next_step(self) -> None:
        """Called where another turn would begin: raises `RunCancelled` if a stop has asked for no more."""
        request = self._execution.request()
        if request is not None:
            if not self._execution.cell:
                self._execution.end_at_boundary(request)
            raise RunCancelled(f"stopped after a turn: {request}", cancellation=request)

    @property
    def state(self) -> Any:
        """What a next run may go on from: given as `run(state=…)`, and in the result, however the run ends."""
        return self._execution.state

    def keep(self, state: Any) -> None:
        """Makes this the run's state. Keep whole values only: a stop may come at the next `await`."""
        self._execution.state = state
        self._execution.changed_words()

    def at_end(self, fn: Callable[[], object] | None) -> None:
        """Has `fn()` called when the run and all under it are over, however they ended, before the result is made.

        There the children's outcomes are known, also after a stop that has cut the body short: `keep` and `say` what
        they have come to. It must not wait. The last one given counts; `None`: nothing is left to add. One that raises
        is logged. It is not called if the run's event loop is gone. Home loop only.
        """
        self._execution.at_end = fn

    def say(self, message: Message) -> None:
        """Adds a message to the conversation. Raises `ConfigurationError` for what is no message."""
        self._execution.add(checked_message(message))

    def steered(self) -> tuple[Message, ...]:
        """What came by `run.send()` since the last look; now part of the conversation."""
        steering = self._execution.steering
        arrived: list[Message] = []
        while steering:
            arrived.append(steering.popleft())
        if arrived:
            self._execution.add(*arrived)
        return tuple(arrived)

    @property
    def session_id(self) -> str | None:
        """The session of this run, or of the nearest one above it that has one."""
        return self._execution.session_id

    @property
    def user(self) -> str | None:
        """Who talks: `run(user=…)`, else the user of this run's session, else the user of the run above it."""
        return self._execution.user

    @property
    def session_turn(self) -> SessionTurn | None:
        """The turn on that session, for what lies with sessions besides what is said; `None` without one."""
        return self._execution.session_turn

    async def committed(self) -> None:
        """Returns when all that was said so far is stored; at once without a session. Cancellation-safe.

        Call it before something that follows from what was said. Raises `SessionsUnavailable`, and `TurnLost` if
        somebody else has the session's turn by now.
        """
        if self._execution.keeping is not None:
            await self._execution.keeping.committed()

    @property
    def compaction(self) -> tuple[int, tuple[Message, ...]] | None:
        """For a model, the second stands for the first so many of `messages`; `None`: nothing was compacted here."""
        return self._execution.compaction

    async def compact(self, upto: int, messages: Sequence[Message]) -> None:
        """From here on, for a model, `messages` stand for the first `upto` of this run's; on a session this is stored.

        The messages themselves stay where they are. It happens whole or not at all; cancelled, either may be. Raises
        `SessionsUnavailable`, `TurnLost`.
        """
        if self._execution.keeping is not None:
            await self._execution.keeping.compact(upto, messages)
        self._execution.compaction = upto, tuple(messages)

    def begin_compaction(self, reason: events.CompactionReason, *, tokens: int, messages: int) -> None:
        """Older messages are about to be trimmed or summarised; the arguments are those of the event."""
        if not self._execution.cell:
            self._execution.has_asked = True  # for an answer of its own: a stop is one of that
            self._execution.open_compaction = tokens
            self.write(events.CompactionStarted, reason=reason, tokens=tokens, messages=messages)

    def end_compaction(self, outcome: events.CompactionOutcome, **told: Any) -> None:
        """It has ended; `told`: what its event says beside the outcome."""
        execution = self._execution
        if execution.open_compaction is not None and not execution.cell:
            self.write(events.CompactionFinished, outcome=outcome, tokens_before=execution.open_compaction, **told)
            execution.open_compaction = None

    def hand_off(self, to_agent: str) -> None:
        """Another agent goes on with the conversation: events from here on carry its name."""
        stamp = self._execution.agent_stamp
        self.write(events.Handoff, from_agent=stamp["agent"], to_agent=to_agent)
        stamp["agent"] = to_agent

    # --- children -------------------------------------------------------------------------------------------

    def start(self, child: Runnable[T], input: Any = None, **options: Any) -> Run[T]:
        """Starts `child` under this run and returns its handle; `options` as for `run()`.

        It is stopped with this run, and at the latest when this body ends; dropping the handle stops nothing. Under a
        cut run it is born cancelled.
        """
        return child.run(input, parent=self.run, **options).start().kept_by_parent()

    def start_in_background(self, child: Runnable[T], input: Any = None, **options: Any) -> str:
        """Has `child` run beside this run, as the runtime's own work; returns its id. `options` as for `run()`.

        It is no child of this run: no stop of this one reaches it, nor does `cancel_all`. When the runtime is shut
        down, and at the end of the event loop, it may go on for its grace, and is stopped then.
        """
        return child.in_background(input, **options).detach()

    def speak_through(self, child: Run[Any]) -> None:
        """From here on the child's answer is this run's own: `text`, and what `text_stream` reads. Home loop only.

        With `ctx.run`, what this run shows itself is its answer again.
        """
        self._execution.voice.speak_through(child._execution)

    def on_voice(self, fn: Callable[[Run[Any]], object]) -> None:
        """Has `fn(run)` called before a child, or this run itself, begins to show text. Home loop only.

        It may let that run speak for this one, by `speak_through`. It must not raise.
        """
        observing = type(self.run).observing
        self._execution.voice.on_voice = lambda execution: fn(observing(execution))

    async def wait_for_children(
        self, runs: Sequence[Run[T]], is_enough: Callable[[Sequence[Run[T]]], bool] = _never
    ) -> list[Run[T]]:
        """Waits until all these children are over, or those that are `is_enough`; these, in the order of their ends.

        `is_enough(over)`: asked whenever another has ended. Observing: cancelled, it leaves the children alone.
        """
        execution = self._execution
        over: list[Run[T]] = []
        waiting = list(runs)

        def look() -> bool:
            ended = [run for run in waiting if run.is_done]
            waiting[:] = [run for run in waiting if not run.is_done]
            over.extend(sorted(ended, key=lambda run: run._execution.last_seq))
            return not waiting or (bool(over) and is_enough(over))

        lifted = execution.log.lift(inside=True)
        try:
            await execution.changed.wait_until(look)
        finally:
            lifted()
        return over

    # --- resources ------------------------------------------------------------------------------------------

    def resource(
        self,
        kind: str,
        label: str,
        close: Close | None,
        *,
        sever: Callable[[], None] | None = None,
        last_resort: Callable[[], None] | None = None,
    ) -> Resource:
        """Registers something that a stop has to end; call `.end()` when it has ended by itself. Home loop only.

        `close()`: called once, on the loop, by a stop or when the body leaves it open. It must not block. If it
        returns an awaitable, the resource has ended when that is done. `None`: only its own end is waited for.
        `sever`, `last_resort`: see `Resource`.
        """
        checked.text("the kind of a resource", kind)
        checked.text("the label of a resource", label)
        execution = self._execution
        return execution.hold(
            Resource(
                kind,
                label,
                self.run_id,
                close,
                execution.on_resource_end,
                sever,
                last_resort=last_resort,
                owner=self._owner,
            )
        )

    def on_cancel(self, fn: Callable[[], object]) -> Resource:
        """Has `fn()`, plain or async, called once if a stop ends the run, and awaited within the grace. Home loop only.

        One that raises is logged; one that does not end is abandoned and named. `.end()` what this returns when it is
        no longer wanted; if the run ends otherwise, nothing is called.
        """
        return self.resource("callback", _name_of(fn), lambda: _if_cancelled(self, fn))

    @property
    def grace(self) -> float:
        """Seconds that a stop of this run waits before it abandons what has not ended."""
        return self._execution.options.grace

    @asynccontextmanager
    async def use(self, thing: T, *, kind: str = "stream", label: str | None = None) -> AsyncGenerator[T]:
        """Somebody else's stream or client as a resource of this run: closed by a stop, and at the end of the block.

        `thing` must have `aclose()` or `close()`, plain or async. Raises `UsageError` if it has neither.
        """
        close = closer(thing, self._execution.spawn)
        resource = self.resource(kind, label or type(thing).__name__, close)
        try:
            yield thing
        finally:
            await asyncio.shield(close())  # a second cancel must not cut the closing short
            resource.end(Ended.CLOSED if resource.is_closing else Ended.FINISHED)

    async def in_thread(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls a blocking function in a daemon thread that carries this run; returns or raises what it does.

        At a stop it has 100 ms to end by itself (it may poll `ctx.token`), then it is abandoned and named. Raises
        `RunCancelled` after the cut: nothing new is started.
        """
        self._raise_if_over()
        execution = self._execution
        resource = self.resource("thread", _name_of(fn), None)
        resource.patience = THREAD_PATIENCE
        future, thread = start_in_thread(fn, *args, **kwargs)
        resource.place = lambda: where_in_thread(thread.ident)

        def returned(future: asyncio.Future[T]) -> None:
            assert execution.home is not None
            execution.home.read_inbox()  # what it emitted comes before what it returned
            if not future.cancelled():
                future.exception()  # looked at: of an abandoned thread nobody else will
            resource.end(Ended.FINISHED)

        future.add_done_callback(returned)
        # Shielded: a cancelled wait must not count the thread, which goes on, as ended.
        return await asyncio.shield(future)

    # --- asking somebody ------------------------------------------------------------------------------------

    async def ask(
        self,
        prompt: str,
        *,
        kind: str = "text",
        schema: Any = None,
        options: tuple[str, ...] = (),
        timeout: float | None = None,
        call_id: str | None = None,
    ) -> Any:
        """Waits for `run.answer(request_id, value)` and returns the value; the run is `waiting` meanwhile.

        `options`: the answers that are accepted, if not all are. `timeout`: seconds; then `TimeoutError`. `call_id`:
        the tool call that it is about. Cancellation-safe: the request is resolved as cancelled. Raises `RunCancelled`
        after the cut: nobody would answer any more.
        """
        self._raise_if_over()
        answer = await ask(
            self._execution, prompt, kind=kind, schema=schema, options=options, timeout=timeout, call_id=call_id
        )
        return answer.value

    @property
    def policy(self) -> Policy:
        """Which tools ask here: the policy of this run's agent, else of the nearest one above it, else the default."""
        return policy_of(self._execution)

    def follow(self, policy: Policy | None) -> None:
        """Makes this the policy of the run, and of those under it that have none. `None`: that of the run above it."""
        self._execution.policy = policy

    def __repr__(self) -> str:
        return f"<RunContext of {self._execution!r}>"


def _taken_from(offered: list[Callable[[], object]]) -> Callable[[], object] | None:
    try:
        return offered.pop()
    except IndexError:
        return None


def _name_of(fn: Callable[..., object]) -> str:
    while isinstance(fn, partial):
        fn = fn.func
    name = getattr(fn, "__qualname__", None)
    return name if isinstance(name, str) else shown(fn)


def _check_event(kind: object, fields: Mapping[str, Any]) -> None:
    if not isinstance(kind, type) or not issubclass(kind, events.AgentEvent):
        found = shown(kind)
        raise UsageError(f"ctx.write takes the events of what happens in a run, not {found}; ctx.emit takes anything")
    if issubclass(kind, DELTAS):  # they are merged later, when nobody could be told any more
        for field in ("text", "fragment"):
            checked.text(f"{field} of {kind.__name__}", fields.get(field, ""))


def _if_cancelled(ctx: RunContext, fn: Callable[[], object]) -> object:
    ending = ctx._execution.cell.get("end")
    if ending is None or ending.status is not RunStatus.CANCELLED:
        return None
    return fn()
