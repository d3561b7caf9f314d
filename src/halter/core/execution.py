"""The state of one run: its cell, its place in the tree, its log, its end.

1. `cell.setdefault("end", mine) is mine` claims the one end; whoever wins fixes the status. 2. Only the home loop's
thread changes anything else, except to end a run whose loop is gone. 3. A run ends when its task, its children and its
resources have; `settle` looks, and is called whenever one of them has. 4. The terminal event is the last, always.
How a stop gets there is in `stopping.py`.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import ref

from halter import events
from halter.core import body, finishing, stopping
from halter.core.asking import Asked
from halter.core.budget import accounts_over
from halter.core.current import CurrentRun, call_of
from halter.core.frames import where
from halter.core.ids import new_id
from halter.core.keeping import Keeping, said_in
from halter.core.lasting import whole
from halter.core.lifecycle import Ending, advance
from halter.core.lockfree import Wakers, snapshot
from halter.core.log import Log
from halter.core.options import RunOptions
from halter.core.ports import Definition, SessionTurn
from halter.core.reply import Reply
from halter.core.resources import Owner, Resource
from halter.core.run_token import RunToken
from halter.core.voice import Voice
from halter.errors import BusyError, RunLost, TooDeep
from halter.messages import Message, ToolCall, Usage
from halter.outcome import Cancellation, CancelMode, CancelReason, RunResult, RunStatus

if TYPE_CHECKING:
    from halter.core.approval_file import Allowed
    from halter.core.approvals import Policy
    from halter.core.call import Call
    from halter.core.cancellation import Registration
    from halter.core.home import Home

T = TypeVar("T")
_logger = logging.getLogger("halter")
NEVER = 1 << 62
MAX_DEPTH = 1_000  # runs under one another


class Execution:
    """One run, from `run()` to its result. Everything public about it is on `Run` and `RunContext`."""

    def __init__(self, definition: Definition, options: RunOptions, parent: Execution | None) -> None:
        self.definition = definition
        self.options = options
        self.id = options.id or new_id()
        self.parent = parent
        self.pool: str | None = None  # the executor in whose thread it was made, if that is no run's
        self.depth: int = _depth_under(parent)
        self.root: Execution = parent.root if parent else self
        self.log = parent.log if parent else Log()
        self.accounts = accounts_over(self, options.budgets)
        self.is_background = False  # the runtime's own work: a stop of all runs does not reach it
        self.within = call_of(parent)  # the tool call that starts it
        self.carried = contextvars.copy_context()
        # Claims: each key is taken once, by whoever comes first, in any thread.
        self.cell: dict[str, Ending] = {}
        self.claims: dict[str, object] = {}
        self.requests: list[Cancellation] = []
        self.given_to: Home | None = None  # by whoever starts it, in any thread
        # Set on the home loop.
        self.home: Home | None = None
        self.task: asyncio.Task[None] | None = None
        self.status = RunStatus.QUEUED
        self.body: Resource | None = None
        self.children: dict[str, Execution] = {}
        self.family = {self.id}  # whose events are its readers'; of a root, which has all of the log, it alone
        self.resources: dict[int, Resource] = {}
        self.stop: stopping.Stop | None = None
        self.deadline: float | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.governor: Registration | None = None
        self.announced: tuple[ToolCall, ...] = ()  # called by the last answer, and not taken up yet
        self.calls: list[Call] = []  # of the turn that is under way
        # What it produces.
        self.voice = Voice(self)
        self.conversation: list[Message] = [*options.history, *said_in(options.state)]
        self.base = len(self.conversation)  # messages of it that were there before this run
        self.compaction: tuple[int, tuple[Message, ...]] | None = None  # for a model, these stand for the first ones
        self.keeping = Keeping(self, options.session.turn()) if options.session is not None else None
        self.replies: dict[str, Reply] = {}
        self.has_asked = False  # a model, for an answer of its own
        self.step = 0
        self.open_step: int | None = None
        self.open_compaction: int | None = None  # tokens of the request before it
        self.usage = Usage()
        self.cost: float | None = 0.0  # US dollars; `None` once a price was not known
        self.state: Any = options.state  # what a next run may go on from
        self.state_before = self.state
        self.at_end: Callable[[], object] | None = None  # what the body has to add when all under it is over
        self.inputs: dict[str, Asked] = {}
        self.policy: Policy | None = None  # of the agent that runs; `None`: that of the run above it
        self.allowed: list[Allowed] = []  # what somebody has said yes to for this tree; of a root without a session
        self.token = RunToken(self)
        self.steering: deque[Message] = deque()
        self.body_error: BaseException | None = None
        self.body_is_over = False
        self.is_deaf = False  # nothing more is taken from threads: its end is about to be claimed
        # How it ended.
        self.first_seq = NEVER if parent else 1  # in the tree's log; not known before it begins
        self.last_seq = NEVER
        self.ended_as: RunResult[Any] | None = None  # the result, while the last of it is stored
        self.result: RunResult[Any] | None = None
        self.done = Wakers()
        self.changed = Wakers()
        self.on_done: dict[object, Callable[[], None]] = {}
        self.current = CurrentRun(self)
        self.stamp: dict[str, Any] = {
            "run_id": self.id,
            "parent_id": parent.id if parent else None,
            "root_id": self.root.id,
        }
        task = options.task or (parent.agent_stamp["task"] if parent else None)
        self.agent_stamp: dict[str, Any] = {**self.stamp, "agent": definition.name, "task": task}

    # --- looking --------------------------------------------------------------------------------------------

    @property
    def is_begun(self) -> bool:
        """Somebody has started it, and it is not over."""
        return "starter" in self.claims and self.result is None

    def is_over(self) -> bool:
        """True once there is a result. A run whose loop was closed under it ends here: nobody else can end it."""
        if self.result is None and self.given_to is not None and self.given_to.loop.is_closed():
            stopping.lose(self)
        return self.result is not None

    @property
    def is_detached(self) -> bool:
        """Its handle has let it go: nobody owns it any more."""
        return "detached" in self.claims

    @property
    def is_stopping(self) -> bool:
        """A request to stop is in force, whether it has cut the run or not."""
        if self.result is not None:
            return False
        ending = self.cell.get("end")
        return ending.status is RunStatus.CANCELLED if ending else bool(self.requests)

    @property
    def is_cut(self) -> bool:
        """Text and reasoning have ended by a stop, of this run or of one above it."""
        ending = self.cell.get("end")
        if ending is not None:
            return ending.cancellation is not None and ending.cancellation.mode.cuts
        return self._is_cut_from_above()

    def _is_cut_from_above(self) -> bool:
        below: list[Execution] = []
        run = self
        while (ending := run.cell.get("end")) is None:
            if run.parent is None:
                return False
            below.append(run)
            run = run.parent
        if ending.cancellation is None or not ending.cancellation.mode.cuts:
            return False
        request = run.request()
        for member in reversed(below):
            if request is not None and member.is_spared(request.mode):
                return False
            request = member._own_request() or request
        return True

    def is_spared(self, mode: CancelMode) -> bool:
        """True while a stop of this mode above leaves it alone: the tool call that has started it must finish."""
        return self.within is not None and self.within.shields(mode)

    @property
    def text(self) -> str:
        """This run's own answer so far; in the end, what it returned if that is text and nothing was shown."""
        if self.result is not None:
            return self.result.text
        return self.voice.text

    @property
    def shown_status(self) -> RunStatus:
        """The status as a reader in any thread should see it: a stop shows at once."""
        return RunStatus.CANCELLING if self.is_stopping else self.status

    def request(self) -> Cancellation | None:
        """The stop in force: the first reason, with the strongest mode; of an ancestor, if it is not its own."""
        run, below = self, list[Execution]()
        while (request := run._own_request()) is None:
            if run.parent is None:
                return None
            below.append(run)
            run = run.parent
        if any(member.is_spared(request.mode) for member in below):
            return None
        return inherited(request) if below else request

    def _own_request(self) -> Cancellation | None:
        first = self.claims.get("request")
        if not isinstance(first, Cancellation):
            return None
        strongest = max((r.mode for r in self.requests), key=lambda mode: mode.strength, default=first.mode)
        return first.with_mode(strongest)

    def subtree(self) -> Iterator[Execution]:
        """The live runs under this one and it itself, innermost first."""
        found: list[Execution] = [self]
        for member in found:  # which grows meanwhile: depth costs no stack
            found.extend(snapshot(member.children))
        return reversed(found)

    def ancestors(self) -> Iterator[Execution]:
        """The runs above this one, the nearest first."""
        ancestor = self.parent
        while ancestor is not None:
            yield ancestor
            ancestor = ancestor.parent

    @property
    def session_turn(self) -> SessionTurn | None:
        """Its turn on a session, or that of the nearest run above it that has one."""
        for run in (self, *self.ancestors()):
            if run.keeping is not None and run.keeping.turn.session_id is not None:
                return run.keeping.turn
        return None

    @property
    def session_id(self) -> str | None:
        """The id of that session."""
        turn = self.session_turn
        return None if turn is None else turn.session_id

    @property
    def user(self) -> str | None:
        """Who talks: as the caller said, else the user of its session, else who talks in the run above it."""
        if self.options.user is not None:
            return self.options.user
        own = self.keeping.turn.user if self.keeping is not None else None
        return self.parent.user if own is None and self.parent is not None else own

    @property
    def session_key(self) -> Hashable:
        """The same, and where that session is kept; `None` without one."""
        turn = self.session_turn
        return None if turn is None else turn.key

    # --- starting -------------------------------------------------------------------------------------------

    def start(self, home: Home) -> None:
        """Begins it on its home loop, once; from any thread. Raises `BusyError` if a live run has its id."""
        me = object()
        try:
            if self.claims.setdefault("starter", me) is me:
                self.given_to = home  # a loop that closes before it looks loses it as one that carried it
                home.admit(self)
                _unstarted.pop(id(self), None)  # it is in the index of the live by now: it can always be found
                home.submit(lambda: body.launch(self, home))
        except BusyError:
            self.given_to = None
            del self.claims["starter"]  # it may start once the other has ended
            raise
        except RunLost as lost:
            stopping.lose(self, lost)
            raise
        except BaseException:
            if self.claims.get("starter") is me:
                self._end_interrupted_start(home)
            raise

    def _end_interrupted_start(self, home: Home) -> None:
        """Ctrl-C came while it was being started: it is stopped, so that nobody waits for it for ever."""
        self.cancel("interrupted while it was being started", reason=CancelReason.CALLER_CANCELLED)
        if home.is_here or not home.wake(lambda: body.launch(self, home)):  # once more: the first may have been cut off
            stopping.lose(self)

    # --- stopping -------------------------------------------------------------------------------------------

    def claim(self, ending: Ending) -> Ending:
        """Claims the end. Returns the claim that holds: this one, or one that came before."""
        return self.cell.setdefault("end", ending)

    def cancel(
        self,
        message: str | None = None,
        *,
        reason: CancelReason = CancelReason.USER_STOP,
        mode: CancelMode = CancelMode.IMMEDIATE,
        actor: str | None = None,
    ) -> bool:
        return self.request_stop(Cancellation.of(reason, mode, actor, message))

    def request_stop(self, request: Cancellation) -> bool:
        """Asks it to stop; the one path. Lock-free, from anywhere. True: a stop is in force."""
        try:
            return self._request_stop(request)
        except BaseException:  # Ctrl-C in the middle of it: a stop that is claimed must be carried out
            if any(each is request for each in self.requests):
                self._pass_on()
            else:
                self._request_stop(request)
            raise

    def _request_stop(self, request: Cancellation) -> bool:
        if self.result is not None:
            return False
        if self.stop_in_force(request.mode):
            return True
        self.claims.setdefault("instant", time.monotonic())
        self.claims.setdefault("request", request)
        if request.mode.cuts:
            held = self.claim(Ending(RunStatus.CANCELLED, cancellation=request))
        else:
            held = self.cell.get("end")
        if held is not None and held.status is not RunStatus.CANCELLED:
            return False
        self.requests.append(request)
        self._pass_on()
        return True

    def stop_in_force(self, mode: CancelMode) -> bool:
        """True if a stop at least this strong is under way: asking again changes nothing, and must cost nothing."""
        ending = self.cell.get("end")
        stopping = not mode.cuts if ending is None else ending.status is RunStatus.CANCELLED
        return stopping and any(request.mode.strength >= mode.strength for request in self.requests)

    def note(self, request: Cancellation | None) -> None:
        """Puts down a stop that somebody else's claim has made."""
        if request is not None:
            self.claims.setdefault("request", request)
            self.requests.append(request)

    def end_at_boundary(self, request: Cancellation) -> None:
        """Between two turns, on the home loop: makes a stop that waited for the turn final."""
        self.claim(Ending(RunStatus.CANCELLED, cancellation=request))
        self.note(request if not self.requests else None)

    def _pass_on(self) -> None:
        """Brings the request to the home loop; a run that was never started ends here."""
        home = self.home
        if home is not None:
            if home.is_paused_here:
                stopping.sever(self)  # nobody knows when this loop runs again
            if home.wake(lambda: stopping.on_request(self)):
                stopping.sever(self)  # only now: the loop must come to the stop before it sees that its sockets ended
            else:
                stopping.lose(self)
            return
        me = object()
        if self.claims.setdefault("starter", me) is me:
            self.end_unstarted()

    def end_unstarted(self) -> None:
        """Its one and only event, in a log of its own unless its parent still writes."""
        request = self.request() or self.cell["end"].cancellation if self.cell else self.request()
        assert request is not None
        self.claim(Ending(RunStatus.CANCELLED, cancellation=request))
        self.note(request if not self.requests else None)
        self.status = advance(self.status, RunStatus.CANCELLING)
        self.finish(confirmed=True)

    def part_from_tree(self) -> None:
        """One that never ran has a log of its own, unless its parent still writes and this is the tree's loop."""
        if self.parent is not None and (self.home is None or self.parent.result is not None):
            tree, self.log = self.log, Log()
            self.on_done[tree] = partial(tree.arrived.wake, threadsafe=True)  # whoever reads this run looked there
        self.first_seq = self.log.head + 1

    # --- ending ---------------------------------------------------------------------------------------------

    def may_end(self, *, ignoring_task: bool = False) -> bool:
        others = [resource for resource in self.resources.values() if resource is not self.body]
        return bool(self.cell) and not self.children and not (others if ignoring_task else self.resources)

    def settle(self) -> None:
        """Ends the run if nothing of it is left. Home loop."""
        if self.result is None and self.may_end():
            self.finish(confirmed=True)
        else:
            self.changed.wake()

    def hold(self, resource: Resource) -> Resource:
        """Counts it among what a stop must end."""
        self.resources[resource.age] = resource
        return resource

    def task_resource(self, kind: str, label: str, task: asyncio.Task[Any], owner: Owner | None = None) -> Resource:
        """A task as something that a stop has to end."""
        return Resource(
            kind, label, self.id, None, self.on_resource_end, task=task, owner=owner, place=lambda: where(task)
        )

    def on_resource_end(self, resource: Resource) -> None:
        self.resources.pop(resource.age, None)
        self.settle()

    def finish(self, *, confirmed: bool) -> None:
        """Ends it, once; never raises. See `finishing.py`."""
        finishing.finish(self, confirmed=confirmed)

    def tell(self) -> None:
        """Tells those who listen to its tokens of the cut."""
        self.token.notify()
        for call in self.calls:
            call.token.notify()

    def disarm(self) -> None:
        """Ends what is the loop's own: clocks, and waits for an answer. Home loop."""
        if self.timer is not None:
            self.timer.cancel()
        if self.stop is not None:
            self.stop.disarm()
        for asked in snapshot(self.inputs):
            asked.answer.cancel()
        self.inputs.clear()

    # --- writing --------------------------------------------------------------------------------------------

    def write(self, kind: type[events.Event], /, **fields: Any) -> events.Event:
        """Appends one event of this run to the tree's log. Home loop."""
        stamp = self.agent_stamp if issubclass(kind, events.AgentEvent) else self.stamp
        event = kind(seq=self.log.head + 1, at=time.time(), **stamp, **fields)
        self.log.append(event)
        return event

    def spawn(
        self, coroutine: Coroutine[Any, Any, Any], name: str = "closing", context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        """A task of this run beside its body: a tool call, the closing of a resource."""
        assert self.home is not None
        return asyncio.Task(coroutine, loop=self.home.loop, name=f"halter:{name}:{self.id}", context=context)

    def add(self, *messages: Message) -> None:
        """Adds to the conversation. Home loop."""
        self.conversation.extend(messages)
        self.changed_words()

    def add_cost(self, cost: float | None) -> None:
        """US dollars; `None`: nobody knows how many. Home loop."""
        self.cost = None if self.cost is None or cost is None else self.cost + cost

    def changed_words(self) -> None:
        """Something was said, a call has ended, or the state is another. Home loop."""
        if self.keeping is not None:
            self.keeping.changed()

    def work(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Work for the run that neither a stop nor the end of `asyncio.run` cuts short."""
        assert self.home is not None
        return self.home.work(coroutine, self.id)

    async def whole(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Awaits such work; cancelled, it leaves it to its end."""
        return await whole(self.work(coroutine))

    def __repr__(self) -> str:
        return f"<Execution {self.definition.name} {self.id} {self.shown_status}>"


_unstarted: dict[int, ref[Execution]] = {}


def wait_for_start(execution: Execution) -> None:
    """Has it found by its id and its tags until it starts, ends, or is dropped."""
    key = id(execution)
    _unstarted[key] = ref(execution, lambda _: _unstarted.pop(key, None))


def unstarted() -> list[Execution]:
    """The runs that are made and have not started."""
    made = [reference() for reference in snapshot(_unstarted)]
    return [execution for execution in made if execution is not None and execution.result is None]


def _depth_under(parent: Execution | None) -> int:
    depth = 1 if parent is None else parent.depth + 1
    if depth > MAX_DEPTH:
        raise TooDeep(f"runs are nested {MAX_DEPTH} deep, which is the limit: does one of them start itself?")
    return depth


def inherited(request: Cancellation) -> Cancellation:
    """A parent's stop, as its children see it."""
    return Cancellation(
        reason=CancelReason.PARENT_CANCELLED, mode=request.mode, actor=request.actor, message=request.message
    )
