"""Random trees of runs, stopped at random moments from random places: what must hold, holds for every seed.

Bodies fail, leave children behind, swallow their cancellation, clean up slowly, ask, hold resources that close late,
badly or not at all. A seed fixes the tree, the stops and the schedule of the loop, so that a failure replays.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from halter import CancellationToken, CancelMode, CancelReason, Run, RunContext, RunStatus, events, runnable, runtime
from halter.core.home import LIVE
from halter.testing import VirtualTimeLoop

SEEDS = 1_000
BLOCKS = 10
SOAK = 50_000
DEPTH = 3
MODES = [CancelMode.AFTER_TURN, CancelMode.DRAIN_TOOLS, CancelMode.IMMEDIATE, CancelMode.IMMEDIATE, CancelMode.KILL]
Plan = dict[str, Any]


class Bug(Exception):
    """What a failing body raises."""


# -- a tree, from a seed


def plan_of(source: random.Random, depth: int) -> Plan:
    weights = {
        "sleep": 5,
        "text": 3,
        "emit": 2,
        "child": 5 if depth < DEPTH else 0,
        "use": 3,
        "hold": 2,
        "ask": 1,
        "turn": 2,
        "drain": 1,
        "cancel": 1,
        "fail": 1,
        "task": 1,
    }
    names = source.choices(list(weights), list(weights.values()), k=source.randint(1, 5))
    return {
        "steps": [(name, _arguments(name, source, depth)) for name in names],
        "timeout": source.choice([None, None, None, 1.0, 4.0]),
        "grace": source.choice([0.0, 1.0, 2.0, 5.0]),
        "swallows": source.choice([0, 0, 0, 0, 1, 2, 9]),
        "goes on": source.choice([0.0, 0.5, 30.0]),
        "cleans up": source.choice([None, None, 0.0, 0.4, 3.0, 40.0]),
    }


def _arguments(name: str, source: random.Random, depth: int) -> Any:
    match name:
        case "sleep":
            return source.choice([0.0, 0.0, 0.5, 1.0, 3.0])
        case "child":
            hows = ["await", "await", "leave", "finished", "read", "wait_for", "scope", "drop"]
            return plan_of(source, depth + 1), source.choice(hows)
        case "use" | "hold":
            closes = ["at once", "late", "late", "never", "raises", "fails"]
            return source.choice(closes), source.choice([0.0, 1.0]), source.random() < 0.5
        case "ask":
            return source.choice([None, 0.5, 2.0])
        case "turn":
            return source.choice([0.0, 1.0])
        case "cancel":
            return source.random(), source.choice(MODES)
        case "task":
            return source.choice([0.0, 2.0])
        case _:
            return None


# -- what happened


@dataclass
class Thing:
    """A resource, and what came of it. `by_stop`: closed from outside the body."""

    label: str
    how: str
    run_id: str
    opened_after_cut: bool
    closings: int = 0
    by_stop: bool = False
    is_closed: bool = False

    def begin(self) -> None:
        self.closings += 1
        self.by_stop = asyncio.current_task() is None
        if self.how == "raises":
            raise Bug("close raises")

    async def end(self) -> None:
        if self.how == "late":
            await asyncio.sleep(0.7)
        if self.how == "fails":
            await asyncio.sleep(0)
            raise Bug("close fails")
        if self.how == "never":
            await asyncio.sleep(60)
        self.is_closed = True


class Stream:
    """The same as somebody else's stream, for `ctx.use`."""

    def __init__(self, thing: Thing) -> None:
        self._thing = thing

    async def aclose(self) -> None:
        self._thing.begin()
        await self._thing.end()


@dataclass
class World:
    source: random.Random
    runs: dict[str, Run[Any]] = field(default_factory=dict)
    things: list[Thing] = field(default_factory=list)
    bodies: set[str] = field(default_factory=set)

    def thing(self, how: str, ctx: RunContext) -> Thing:
        thing = Thing(f"thing {len(self.things)}", how, ctx.run_id, ctx.token.is_cancelled)
        self.things.append(thing)
        return thing

    def pick(self, place: float) -> Run[Any] | None:
        runs = list(self.runs.values())
        return runs[int(place * len(runs))] if runs else None


# -- the body


@runnable
async def node(ctx: RunContext, given: tuple[World, Plan]) -> str:
    world, plan = given
    world.runs.setdefault(ctx.run_id, ctx.run)
    world.bodies.add(ctx.run_id)
    swallows = plan["swallows"]
    steps = iter(plan["steps"])
    try:
        while True:
            try:
                for name, arguments in steps:
                    await STEPS[name](ctx, world, arguments)
                return "done"
            except asyncio.CancelledError:
                swallows -= 1
                if swallows < 0:
                    raise
                await asyncio.sleep(plan["goes on"])
    finally:
        if plan["cleans up"] is not None:
            await asyncio.sleep(plan["cleans up"])
            ctx.emit("cleaned up")


async def _sleep(ctx: RunContext, world: World, seconds: float) -> None:
    await asyncio.sleep(seconds)


async def _text(ctx: RunContext, world: World, _: None) -> None:
    ctx.text("word ")
    await asyncio.sleep(0)


async def _emit(ctx: RunContext, world: World, _: None) -> None:
    ctx.emit("something", 1)


async def _child(ctx: RunContext, world: World, given: tuple[Plan, str]) -> None:
    plan, how = given
    child = ctx.start(node, (world, plan), timeout=plan["timeout"], grace=plan["grace"])
    world.runs[child.id] = child  # kept: a child belongs to its parent
    with contextlib.suppress(Exception):
        match how:
            case "await":
                await child
            case "finished":
                await child.finished()
            case "read":
                async for event in child:
                    if isinstance(event, events.Custom):
                        break
            case "wait_for":
                await asyncio.wait_for(child.wait(), 0.5)
            case "scope":
                async with child:
                    await asyncio.sleep(0.5)
            case _:
                pass  # left to its parent's end


async def _use(ctx: RunContext, world: World, given: tuple[str, float, bool]) -> None:
    how, seconds, _ = given
    thing = world.thing(how, ctx)
    with contextlib.suppress(Bug):
        async with ctx.use(Stream(thing), label=thing.label):
            await asyncio.sleep(seconds)


async def _hold(ctx: RunContext, world: World, given: tuple[str, float, bool]) -> None:
    how, seconds, ends_itself = given
    thing = world.thing(how, ctx)

    def close() -> Any:
        thing.begin()
        if how == "at once":
            thing.is_closed = True
            return None
        return thing.end()

    resource = ctx.resource("thing", thing.label, close)
    await asyncio.sleep(seconds)
    if ends_itself and not thing.closings:
        thing.is_closed = True
        resource.end()


async def _ask(ctx: RunContext, world: World, timeout: float | None) -> None:
    with contextlib.suppress(TimeoutError):
        await ctx.ask("well?", timeout=timeout)


async def _turn(ctx: RunContext, world: World, seconds: float) -> None:
    ctx.begin_step()
    await asyncio.sleep(seconds)
    ctx.end_step()
    ctx.before_next_step()


async def _drain(ctx: RunContext, world: World, _: None) -> None:
    await ctx.drain()


async def _cancel(ctx: RunContext, world: World, given: tuple[float, CancelMode]) -> None:
    place, mode = given
    if victim := world.pick(place):
        victim.cancel("from a body", mode=mode, reason=CancelReason.POLICY)
    await asyncio.sleep(0)


async def _fail(ctx: RunContext, world: World, _: None) -> None:
    raise Bug("a body failed")


async def _task(ctx: RunContext, world: World, seconds: float) -> None:
    """A task group of the body's own: what a stop must not turn into an exception group."""
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(seconds))
        group.create_task(asyncio.sleep(0.1))


STEPS: dict[str, Callable[[RunContext, World, Any], Any]] = {
    "sleep": _sleep,
    "text": _text,
    "emit": _emit,
    "child": _child,
    "use": _use,
    "hold": _hold,
    "ask": _ask,
    "turn": _turn,
    "drain": _drain,
    "cancel": _cancel,
    "fail": _fail,
    "task": _task,
}


# -- one seed


@dataclass
class Story:
    """One tree on one loop, from its start to the end of everything."""

    seed: int

    def __post_init__(self) -> None:
        self.source = random.Random(self.seed)
        self.loop = VirtualTimeLoop(seed=self.seed)
        self.world = World(self.source)
        self.reported: list[dict[str, Any]] = []
        self.log: list[Any] = []
        self.stops: list[asyncio.TimerHandle] = []
        self.shutdowns: list[asyncio.Future[None]] = []
        self.token = CancellationToken()
        self.cut_at: float | None = None
        self.ended_at = 0.0

    def play(self) -> None:
        self.loop.set_exception_handler(lambda _, context: self.reported.append(context))
        try:
            self.loop.run_until_complete(self._main())
        finally:
            with contextlib.suppress(Exception):
                self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    async def _main(self) -> None:
        plan = plan_of(self.source, 0)
        self.grace = plan["grace"]
        self.root = node.run((self.world, plan), timeout=plan["timeout"], grace=plan["grace"], cancellation=self.token)
        self.world.runs[self.root.id] = self.root
        self._arrange_stops()
        user = asyncio.ensure_future(self._use())
        answerer = asyncio.ensure_future(self._answer())
        watcher = asyncio.ensure_future(self._watch())
        await self.root.finished()
        self.ended_at = self.loop.time()
        await asyncio.wait([user, answerer, watcher])
        for stop in self.stops:
            stop.cancel()
        if self.shutdowns:
            await asyncio.wait(self.shutdowns)
        self.log = [event async for event in self.root.events()]
        self.left_at_the_end = dict(LIVE)
        # An abandoned body goes on until it ends by itself; nothing of ours may be left when it has.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)
        # A closing whose time-out was cancelled may leave a cancelled timer: those do not count.
        self.timers = [timer for timer in self.loop._scheduled if not timer._cancelled]

    def _arrange_stops(self) -> None:
        for _ in range(self.source.choice([0, 1, 1, 2, 3])):
            place = self.source.random() if self.source.random() < 0.5 else 0.0
            mode = self.source.choice(MODES)
            stop = self._stopper(place, mode)
            if self.source.random() < 0.5:
                self.loop.at_step(self.loop.steps + self.source.randint(1, 80), stop)
            else:
                self.stops.append(self.loop.call_later(self.source.choice([0.0, 0.5, 1.0, 2.0]), stop))

    def _stopper(self, place: float, mode: CancelMode) -> Callable[[], None]:
        how = self.source.choice(["handle", "handle", "handle", "token", "task", "shutdown"])

        def stop() -> None:
            victim = self.world.pick(place)
            if self.root.is_done:
                return
            match how:
                case "token":
                    self.token.cancel("by token", mode=mode)
                case "task" if victim and (task := victim._execution.task):
                    task.cancel()  # by somebody who knows nothing of us: the end of `asyncio.run`
                case "shutdown":
                    self.shutdowns.append(asyncio.ensure_future(runtime().shutdown(grace=place)))
                case _ if victim:
                    victim.cancel("from outside", mode=mode)
                case _:
                    pass

        return stop

    async def _use(self) -> None:
        with contextlib.suppress(Exception):
            match self.source.choice(["start", "wait", "wait_for", "scope", "read", "cancelled"]):
                case "start":
                    self.root.start()
                case "wait":
                    await self.root
                case "wait_for":
                    await asyncio.wait_for(self.root.wait(), self.source.choice([0.0, 0.5, 2.0]))
                case "scope":
                    async with self.root:
                        await asyncio.sleep(self.source.choice([0.0, 1.0, 4.0]))
                case "read":
                    async for _ in self.root:
                        pass
                case _:
                    task = asyncio.ensure_future(self.root.wait())
                    await asyncio.sleep(self.source.choice([0.0, 1.0]))
                    task.cancel()
                    await asyncio.wait([task])

    async def _answer(self) -> None:
        async for event in self.root.events():
            # What has no time-out of its own would wait for ever.
            if isinstance(event, events.InputRequested) and (not event.expires_at or self.source.random() < 0.7):
                with contextlib.suppress(Exception):
                    self.world.runs[event.run_id].answer(event.request_id, "yes")

    async def _watch(self) -> None:
        async for event in self.root.events():
            if isinstance(event, events.Cancelling) and event.run_id == self.root.id and event.mode.cuts:
                self.cut_at = self.loop.time() if self.cut_at is None else self.cut_at

    # -- what must hold

    def check(self, check_log: Callable[[list[Any]], None]) -> None:
        assert not self.reported, f"reported to the loop: {self.reported}"
        assert not self.left_at_the_end, "runs are alive after the root's end"
        assert not LIVE
        assert not any(shutdown.exception() for shutdown in self.shutdowns)
        assert not self.token._listeners
        assert not self.timers, f"timers are left: {self.timers}"
        check_log(self.log)
        if self.cut_at is not None:
            assert self.ended_at - self.cut_at <= self.grace + 1e-6, "it ended after its grace"
        terminal = {event.run_id: event for event in self.log if event.is_terminal}
        for run_id, handle in self.world.runs.items():
            self._check_run(handle, terminal.get(run_id))
        for thing in self.world.things:
            self._check_thing(thing)

    def _check_run(self, handle: Run[Any], terminal: Any) -> None:
        result = handle.outcome
        assert result is not None, f"{handle} has no outcome"
        assert handle.status is result.status
        assert (result.receipt is not None) == (result.cancellation is not None) == result.is_cancelled
        assert result.is_failed == (result.error is not None) or result.is_cancelled
        assert result.output is None or result.is_completed
        if terminal is None:
            assert handle.id not in self.world.bodies, f"{handle} has run, but its end is not in the log"
            return
        kinds = {
            RunStatus.COMPLETED: events.Completed,
            RunStatus.FAILED: events.Failed,
            RunStatus.CANCELLED: events.Cancelled,
        }
        assert type(terminal) is kinds[result.status]
        assert terminal.text == result.text
        if result.receipt is not None:
            assert terminal.receipt == result.receipt
            assert terminal.reason == result.cancellation.reason  # pyright: ignore
            abandoned = [line for line in result.receipt.resources if line.ended == "abandoned"]
            assert result.receipt.confirmed == (not abandoned)

    def _check_thing(self, thing: Thing) -> None:
        assert thing.closings <= (2 if thing.how == "raises" else 1), f"{thing} was closed twice"
        assert thing.is_closed or thing.how in ("raises", "fails") or thing.closings, f"{thing} was never closed"
        assert thing.is_closed or thing.how not in ("at once", "late"), f"{thing} is still open"
        result = self.world.runs[thing.run_id].outcome
        lines = {line.label: line for line in result.receipt.resources} if result and result.receipt else {}
        if result and result.receipt and thing.by_stop and not thing.opened_after_cut:
            assert thing.label in lines, f"{thing} is not in the receipt:\n{result.receipt}"
        line = lines.get(thing.label)
        if line is not None and line.ended == "closed":
            assert thing.is_closed


def play(seeds: range | list[int], check_log: Callable[[list[Any]], None]) -> None:
    for seed in seeds:
        story = Story(seed)
        try:
            story.play()
            story.check(check_log)
        except BaseException as error:
            LIVE.clear()
            shown = "\n".join(f"  {event}"[:160] for event in story.log)
            error.add_note(f"replay: HALTER_FUZZ_SEED={seed} pytest tests/core/test_fuzz.py -k replay\n{shown}")
            raise


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Bodies that are abandoned and closings that fail are logged, as they should be: thousands of them here."""
    logger = logging.getLogger("halter")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


@pytest.mark.scenario("I82", "B18", "J89")
@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_must_hold_holds_for_every_random_tree(block: int, check_log: Callable[[list[Any]], None]) -> None:
    """One terminal event each, children before parents, status, event and result agree, and nothing is left."""
    size = SEEDS // BLOCKS
    play(range(block * size, (block + 1) * size), check_log)


@pytest.mark.soak
@pytest.mark.timeout(1_200)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_must_hold_holds_for_many_more_trees(check_log: Callable[[list[Any]], None]) -> None:
    """The same, ten times as many."""
    play(range(SEEDS, SEEDS + SOAK), check_log)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_replay(check_log: Callable[[list[Any]], None]) -> None:
    """One seed, from the environment: how a failure above is looked at."""
    seed = os.environ.get("HALTER_FUZZ_SEED")
    if seed is None:
        pytest.skip("set HALTER_FUZZ_SEED to a seed")
    play([int(seed)], check_log)


def test_the_same_seed_gives_the_same_story(check_log: Callable[[list[Any]], None]) -> None:
    """Else no failure could be replayed."""

    def told(seed: int) -> list[tuple[str, str | None]]:
        story = Story(seed)
        story.play()
        story.check(check_log)
        ids = {event.run_id: str(place) for place, event in enumerate(story.log, 1)}
        return [(event.type, ids.get(event.run_id)) for event in story.log]

    for seed in range(20):
        assert told(seed) == told(seed)
