"""Random trees of agents, tools and compositions, stopped at random moments: what must hold, holds for every seed.

Tools fail, are slow, must finish, swallow their cancellation, clean up, undo, ask, leave children and tasks behind, and
stop other runs; agents are tools of agents, and hand over to each other. A seed fixes the tree, the stops and the
schedule of the loop, so that a failure replays.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from halter import Agent, CancellationToken, CancelMode, CancelReason, Run, RunContext, RunStatus, events, tool
from halter.compose import Loop, Parallel, Race, Sequential
from halter.core.history import MAY_HAVE_RUN, NOT_RUN
from halter.core.home import LIVE
from halter.core.runnable import Runnable
from halter.crews import Crew, Task
from halter.flows import Flow, listen, start
from halter.hooks import Hooks
from halter.messages import ToolCall
from halter.models.scripted import Answer, Scripted, calls
from halter.teams import RoundRobin
from halter.terminations import MaxMessages
from halter.testing import VirtualTimeLoop
from halter.tools import FunctionTool, ToolContext, ToolError

from .conversations import bodies_of, check_bodies, check_by_sdk, check_history

SEEDS = 500
BLOCKS = 10
BY_SDK = 25  # one in so many is also read by the SDKs' types
DEPTH = 3
MOST = 8  # agents in one tree: each may run many times
MODES = [CancelMode.AFTER_TURN, CancelMode.DRAIN_TOOLS, CancelMode.IMMEDIATE, CancelMode.IMMEDIATE, CancelMode.KILL]
STEERING = "A word from outside."
WORDS = ("one ", "two three ", "four five six seven ")
KINDS = {
    "quick": 4,
    "slow": 4,
    "fails": 2,
    "keeps": 3,
    "stubborn": 2,
    "cleans": 2,
    "late": 2,
    "flaky": 1,
    "undone": 2,
    "asks": 2,
    "holds": 2,
    "spawns": 1,
    "starts": 6,
    "leaves": 3,
    "stops": 1,
    "exits": 0.2,
    "tells": 1,
}


class Bug(Exception):
    """What a failing tool raises."""


# -- what happened


@dataclass
class World:
    source: random.Random
    agents: int = 0
    runs: dict[str, Run[Any]] = field(default_factory=dict)
    graces: dict[str, float] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    returned: set[str] = field(default_factory=set)
    undone: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    closed: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)

    def is_full(self, depth: int) -> bool:
        return depth >= DEPTH or self.agents >= MOST

    def know(self, ctx: RunContext) -> str:
        self.runs.setdefault(ctx.run_id, ctx.run)
        return "Be brief."

    def send(self, run: Run[Any]) -> None:
        self.sent[run.id] += run.send(STEERING)

    def pick(self, place: float) -> Run[Any] | None:
        runs = list(self.runs.values())
        return runs[int(place * len(runs))] if runs else None


class Listening(Hooks):
    """Counts what it is told of a stop, and takes its time."""

    def __init__(self, world: World, seconds: float) -> None:
        self._world = world
        self._seconds = seconds

    async def on_cancel(self, ctx: RunContext, cancellation: Any) -> None:
        self._world.told[ctx.run_id] += 1
        await asyncio.sleep(self._seconds)

    async def after_model(self, ctx: RunContext, answer: Any) -> None:
        await asyncio.sleep(self._seconds)


# -- tools, from a seed


def make_tool(world: World, depth: int, name: str) -> FunctionTool[..., Any]:
    source = world.source
    kind = source.choices(list(KINDS), list(KINDS.values()))[0]
    if kind in ("starts", "leaves") and world.is_full(depth):
        kind = "slow"
    seconds = source.choice([0.0, 0.3, 1.0, 3.0])
    child = make_runnable(world, depth + 1) if kind in ("starts", "leaves") else None
    place, mode, detail = source.random(), source.choice(MODES), source.choice([0.0, 0.4, 30.0])
    grace = source.choice([0.0, 1.0, 5.0])
    attempts: Counter[str] = Counter()

    async def work(ctx: ToolContext) -> str:
        world.know(ctx)
        world.begun.add(ctx.call_id)
        text = await act(ctx)
        world.returned.add(ctx.call_id)
        return text

    async def act(ctx: ToolContext) -> str:
        match kind:
            case "fails":
                await asyncio.sleep(seconds)
                raise ToolError("no") if place < 0.5 else Bug("a tool failed")
            case "stubborn":
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(seconds)
                await asyncio.sleep(detail)
            case "cleans":
                try:
                    await asyncio.sleep(seconds)
                finally:
                    await asyncio.sleep(detail)
                    ctx.progress("cleaned up")
            case "flaky":
                attempts[ctx.call_id] += 1
                if attempts[ctx.call_id] < 3:
                    raise Bug("again")
            case "holds":
                resource = ctx.resource("thing", name, lambda: close(ctx))
                ctx.on_cancel(lambda: asyncio.sleep(detail))
                await asyncio.sleep(seconds)
                if place < 0.5 and not resource.is_closing:
                    resource.end()
            case "spawns":
                ctx.spawn(asyncio.sleep(detail))
                await asyncio.sleep(seconds)
            case "starts" | "leaves":
                assert child is not None
                run = ctx.start(child, "Help.", grace=grace)
                world.runs[run.id] = run
                if kind == "starts":
                    return (await run).text
            case "stops":
                if victim := world.pick(place):
                    victim.cancel("from a tool", mode=mode, reason=CancelReason.POLICY)
                await asyncio.sleep(seconds)
            case "exits":
                raise SystemExit(3)
            case "tells":
                world.send(ctx.run)
                await asyncio.sleep(seconds)
            case _:
                await asyncio.sleep(seconds)
        return name

    def close(ctx: ToolContext) -> Any:
        world.closed[ctx.call_id] += 1
        return asyncio.sleep(0.2) if place < 0.5 else None

    async def undo(ctx: ToolContext) -> None:
        world.undone[ctx.call_id] += 1
        await asyncio.sleep(detail)

    return tool(
        work,
        name=name,
        cancel="must_finish" if kind == "keeps" or source.random() < 0.1 else "cancellable",
        timeout=0.5 if kind == "late" else source.choice([None, None, None, 2.0]),
        retries=2 if kind == "flaky" else 0,
        compensate=undo if kind == "undone" else None,
        approval="always" if kind == "asks" else "never",
        approval_timeout=source.choice([None, 1.0]),
        max_concurrency=source.choice([None, None, 1]),
    )


# -- agents and compositions, from a seed


def make_runnable(world: World, depth: int) -> Runnable[Any]:
    source = world.source
    kinds = ["agent", "sequential", "parallel", "race", "loop", "team", "crew", "flow"]
    kind = source.choices(kinds, [14, 1, 2, 2, 1, 2, 2, 2])[0]
    if kind == "agent" or world.is_full(depth):
        return make_agent(world, depth)
    name = f"group_{source.randrange(1_000_000)}"
    parts = [make_runnable(world, depth + 1) for _ in range(source.randint(1, 3))]
    match kind:
        case "sequential":
            return Sequential(*parts, name=name)
        case "parallel":
            return Parallel(*parts, name=name, on_failure=source.choice(["cancel", "wait", "collect"]))
        case "race":
            return Race(*parts, name=name)
        case "team":
            members = {f"member_{place}": part for place, part in enumerate(parts)}
            return RoundRobin(members, until=MaxMessages(source.randint(1, 3)), name=name)
        case "crew":
            return Crew([Task(description="Help with {it}.", agent=part) for part in parts], name=name)
        case "flow":
            return make_flow(parts, name)
        case _:
            return Loop(parts[0], max_iterations=source.randint(1, 3), name=name)


def make_flow(parts: list[Runnable[Any]], group: str) -> Runnable[Any]:
    """The first part, then all others at once."""

    class Group(Flow[dict[str, Any]], name=group):
        @start()
        async def begin(self, ctx: RunContext, value: Any) -> Any:
            return (await ctx.start(parts[0], value)).output

        @listen(begin)
        async def go_on(self, ctx: RunContext, value: Any) -> Any:
            runs = [ctx.start(part, str(value) or "Go on.") for part in parts[1:]]
            return [(await run).output for run in runs]

    return Group()


def make_agent(world: World, depth: int) -> Agent[Any]:
    source = world.source
    number = source.randrange(1_000_000)
    world.agents += 1
    tools: list[Any] = [make_tool(world, depth, f"tool_{place}") for place in range(source.randint(1, 3))]
    if not world.is_full(depth) and source.random() < 0.4:
        tools.append(make_runnable(world, depth + 1))
    handoffs = [make_agent(world, depth + 1)] if not world.is_full(depth) and source.random() < 0.15 else []
    names = [each.name for each in tools] + [f"transfer_to_{agent.name}" for agent in handoffs]
    script = [make_answer(source, names) for _ in range(source.randint(1, 3))]
    return Agent(
        Scripted(*script, source.choice(WORDS), pace=source.choice([0.0, 0.01, 0.5])),
        instructions=world.know,
        name=f"agent_{number}",
        tools=tools,
        handoffs=handoffs,
        parallel_tools=source.random() < 0.7,
        max_turns=source.choice([2, 4, 100]),
        hooks=Listening(world, source.choice([0.0, 0.4, 30.0])) if source.random() < 0.2 else None,
    )


def make_answer(source: random.Random, names: list[str]) -> Answer:
    said: list[str | ToolCall] = [source.choice(WORDS)] if source.random() < 0.5 else []
    for _ in range(source.randint(1, 4)):
        name = source.choice(names)
        if source.random() < 0.05:
            name, arguments = source.choice([("nowhere", "{}"), (name, '{"a'), (name, "[]"), (name, '{"zz": 1}')])
            said.append(ToolCall("", name, arguments))
        else:
            said.append(calls(name, input="Help.") if name.startswith(("agent_", "group_")) else calls(name))
    return tuple(said)


# -- one seed


class Story:
    """One tree on one loop, from its start to the end of everything."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.source = random.Random(seed)
        self.loop = VirtualTimeLoop(seed=seed)
        self.world = World(self.source)
        self.reported: list[dict[str, Any]] = []
        self.log: list[Any] = []
        self.stops: list[asyncio.TimerHandle] = []
        self.token = CancellationToken()
        self.cut_at: float | None = None
        self.ended_at = 0.0
        self.grace = self.source.choice([0.0, 1.0, 2.0, 5.0])

    def play(self) -> None:
        self.loop.set_exception_handler(lambda _, context: self.reported.append(context))
        try:
            self.loop.run_until_complete(self._main())
        finally:
            with contextlib.suppress(Exception):
                self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    async def _main(self) -> None:
        agent = make_runnable(self.world, 0)
        timeout = self.source.choice([None, None, None, 1.0, 4.0])
        self.root = agent.run("Hi.", timeout=timeout, grace=self.grace, cancellation=self.token)
        self.world.runs[self.root.id] = self.root
        self._arrange_stops()
        answerer = asyncio.ensure_future(self._answer())
        watcher = asyncio.ensure_future(self._watch())
        await self.root.finished()
        self.ended_at = self.loop.time()
        await asyncio.wait([answerer, watcher])
        for stop in self.stops:
            stop.cancel()
        self.log = [event async for event in self.root.events()]
        self.left_at_the_end = dict(LIVE)
        # An abandoned tool goes on until it ends by itself; nothing of ours may be left when it has.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)
        self.log_later = [event async for event in self.root.events()]
        self.timers = [timer for timer in self.loop._scheduled if not timer._cancelled]

    def _arrange_stops(self) -> None:
        for _ in range(self.source.choice([0, 1, 1, 2, 3])):
            place = self.source.random() if self.source.random() < 0.5 else 0.0
            stop = self._stopper(place, self.source.choice(MODES))
            if self.source.random() < 0.5:
                self.loop.at_step(self.loop.steps + self.source.randint(1, 150), stop)
            else:
                self.stops.append(self.loop.call_later(self.source.choice([0.0, 0.5, 1.0, 2.0]), stop))

    def _stopper(self, place: float, mode: CancelMode) -> Callable[[], None]:
        how = self.source.choice(["handle", "handle", "handle", "token", "task", "send"])

        def stop() -> None:
            victim = self.world.pick(place)
            if self.root.is_done:
                return
            match how:
                case "token":
                    self.token.cancel("by token", mode=mode)
                case "task" if victim and (task := victim._execution.task):
                    task.cancel()  # by somebody who knows nothing of us: the end of `asyncio.run`
                case "send" if victim:
                    self.world.send(victim)
                case _ if victim:
                    victim.cancel("from outside", mode=mode)
                case _:
                    pass

        return stop

    async def _answer(self) -> None:
        async for event in self.root.events():
            # What has no time-out of its own would wait for ever.
            if isinstance(event, events.InputRequested) and (not event.expires_at or self.source.random() < 0.7):
                with contextlib.suppress(Exception):
                    self.root.answer(event.request_id, self.source.random() < 0.7)

    async def _watch(self) -> None:
        async for event in self.root.events():
            if isinstance(event, events.Cancelling) and event.run_id == self.root.id and event.mode.cuts:
                self.cut_at = self.loop.time() if self.cut_at is None else self.cut_at

    # -- what must hold

    def check(self, check_log: Callable[[list[Any]], None]) -> None:
        assert not self.reported, f"reported to the loop: {self.reported}"
        assert not self.left_at_the_end, "runs are alive after the root's end"
        assert not LIVE
        assert not self.token._listeners
        assert not self.timers, f"timers are left: {self.timers}"
        assert self.log_later == self.log, "an ended log never grows"
        check_log(self.log)
        if self.cut_at is not None:
            assert self.ended_at - self.cut_at <= self.grace + 1e-6, "it ended after its grace"
        terminal = {event.run_id: event for event in self.log if event.is_terminal}
        for handle in self.world.runs.values():
            self._check_run(handle, terminal.get(handle.id))
        self._check_calls()
        assert all(times == 1 for times in self.world.closed.values()), "a resource is closed once"
        assert all(times == 1 for times in self.world.undone.values()), "a call is undone once"
        assert set(self.world.undone) <= self.world.begun

    def _check_run(self, handle: Run[Any], terminal: Any) -> None:
        result = handle.outcome
        assert result is not None, f"{handle} has no outcome"
        assert handle.status is result.status
        assert not handle._execution.resources
        assert not handle._execution.children
        assert (result.receipt is not None) == (result.cancellation is not None) == result.is_cancelled
        assert result.is_failed == (result.error is not None) or result.is_cancelled
        assert result.output is None or result.is_completed
        assert self.world.told[handle.id] <= (1 if result.is_cancelled else 0)
        heard = [message.text for message in (*result.messages, *result.undelivered)].count(STEERING)
        sent = self.world.sent[handle.id]
        execution = handle._execution
        if any(each.definition.kind == "round_robin" for each in (execution, *execution.ancestors())):
            assert heard >= sent, "what was sent is not lost; a team's members hear what the others were told"
        else:
            assert heard == sent, "what was sent is delivered or told, once"
        if terminal is None:
            return
        kinds = {
            RunStatus.COMPLETED: events.Completed,
            RunStatus.FAILED: events.Failed,
            RunStatus.CANCELLED: events.Cancelled,
        }
        assert type(terminal) is kinds[result.status]
        assert terminal.text == result.text
        if result.receipt is not None:
            abandoned = [line for line in result.receipt.resources if line.ended == "abandoned"]
            assert result.receipt.confirmed == (not abandoned)
        check_history(result.messages)
        if result.messages:
            bodies = bodies_of(result.messages)
            check_bodies(bodies, sum(len(message.tool_calls) for message in result.messages))
            if self.seed % BY_SDK == 0:
                check_by_sdk(bodies)

    def _check_calls(self) -> None:
        called = Counter(event.call_id for event in self.log if isinstance(event, events.ToolCalled))
        ended = {event.call_id: event for event in self.log if isinstance(event, events.ToolFinished)}
        assert called == Counter(event.call_id for event in self.log if isinstance(event, events.ToolFinished))
        assert set(called.values()) <= {1}
        over: set[str] = set()
        cut: set[str] = set()
        for event in self.log:
            if isinstance(event, events.Cancelling) and event.mode.cuts:
                cut.add(event.run_id)
            elif isinstance(event, events.ModelRequested | events.ToolStarted):
                assert event.run_id not in cut, f"{event} after the cut"
            if isinstance(event, events.ToolFinished):
                over.add(event.call_id)
            elif isinstance(event, events.ToolStarted | events.ToolProgress):
                assert event.call_id not in over, f"{event} after the call's end"
        for id, event in ended.items():
            if event.result == NOT_RUN:
                assert id not in self.world.begun, f"{event} is not true: it ran"
            if event.outcome == "abandoned" or event.result == MAY_HAVE_RUN:
                assert event.outcome in ("cancelled", "abandoned")
        for id in self.world.returned & set(ended):
            assert ended[id].outcome in ("ok", "abandoned"), f"{ended[id]}, but it returned"


def play(seeds: range | list[int], check_log: Callable[[list[Any]], None]) -> None:
    for seed in seeds:
        story = Story(seed)
        try:
            story.play()
            story.check(check_log)
        except BaseException as error:
            LIVE.clear()
            shown = "\n".join(f"  {event}"[:240] for event in story.log[-200:])
            error.add_note(f"replay: HALTER_FUZZ_SEED={seed} pytest tests/agents/test_fuzz.py -k replay\n{shown}")
            raise


pytestmark = [pytest.mark.usefixtures("quiet"), pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.mark.scenario("I82", "B18", "C30", "D41", "D42", "D49", "J89")
@pytest.mark.parametrize("block", range(BLOCKS))
def test_what_must_hold_holds_for_every_random_tree_of_agents(block: int, check_log: Any) -> None:
    """One terminal event each, one end for each call, histories that every provider takes, and nothing is left."""
    size = SEEDS // BLOCKS
    play(range(block * size, (block + 1) * size), check_log)


@pytest.mark.soak
@pytest.mark.parametrize("block", range(BLOCKS))
def test_the_same_holds_for_many_more_trees(block: int, check_log: Any) -> None:
    """The seeds behind those of the ordinary run."""
    play(range(SEEDS + block * 2_000, SEEDS + (block + 1) * 2_000), check_log)


def test_replay(check_log: Any) -> None:
    """One seed, from the environment: how a failure above is looked at."""
    seed = os.environ.get("HALTER_FUZZ_SEED")
    if seed is None:
        pytest.skip("set HALTER_FUZZ_SEED to a seed")
    play([int(seed)], check_log)


def test_the_same_seed_gives_the_same_story(check_log: Any) -> None:
    """Else no failure could be replayed."""

    def told(seed: int) -> list[tuple[str, str | None]]:
        story = Story(seed)
        story.play()
        story.check(check_log)
        ids = {event.run_id: str(place) for place, event in enumerate(story.log, 1)}
        return [(event.type, ids.get(event.run_id)) for event in story.log]

    for seed in range(10):
        assert told(seed) == told(seed)
