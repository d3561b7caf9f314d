"""What an agent costs beyond its model: nesting, a tool call, a thousand agents at once."""

from __future__ import annotations

import asyncio
import gc
import resource
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from bench.child import in_child, on_loop
from bench.rounds import Options, interleaved
from bench.table import Line, Table, percentile, ratios, spread
from halter import Agent, tool
from halter.compose import Parallel, Sequential
from halter.core.runnable import Runnable
from halter.crews import Crew, Member, Task
from halter.events import TextDelta
from halter.flows import Flow, start
from halter.models import OpenAIChat, Scripted
from halter.models.scripted import calls
from halter.proof.wire import Wire
from halter.teams import RoundRobin
from halter.terminations import MaxMessages

TOKENS = 20_000
AGENTS = 1_000
RUNS = 50
CALLS = 10  # in each of them
KINDS = ("agent", "agent in an agent", "sequence of one", "three deep", "team", "crew", "flow with a crew")
WAYS = ("a bare task", "async tool", "blocking tool", "a bare thread")


# --- in a process of its own --------------------------------------------------------------------------------


def nesting(kind: str, url: str, loop: str) -> float:
    """Microseconds of CPU for each token of a flood, read from the root; the second answer of the process."""
    return on_loop(_nesting(_nested(kind, url)), loop)


def _nested(kind: str, url: str) -> Runnable[Any]:
    inner = Agent(OpenAIChat("bench", base_url=url, api_key=""), name="inner")
    outer = Agent(Scripted(calls("inner", input="Go."), "Done."), tools=[inner], name="outer")
    member = Member(inner.model, role="Writer", goal="Write.", name="inner")
    crew = Crew([Task(description="{go}", agent=member)])
    made: dict[str, Runnable[Any]] = {
        "team": RoundRobin([inner], until=MaxMessages(1)),
        "crew": crew,
        "flow with a crew": _one_step(crew),
        "agent": inner,
        "agent in an agent": outer,
        "sequence of one": Sequential(inner),
        "three deep": Sequential(Parallel(outer)),
    }
    return made[kind]


def _one_step(crew: Crew) -> Runnable[Any]:
    class Working(Flow[dict[str, Any]]):
        @start()
        async def work(self) -> Any:
            return (await crew.run("Go.")).output

    return Working()


async def _nesting(runnable: Runnable[Any]) -> float:
    spent = 0.0
    for _ in range(2):
        gc.collect()
        before, seen = _cpu(), 0
        async for event in runnable.run("Go."):
            seen += isinstance(event, TextDelta)
        spent = _cpu() - before
        if seen < TOKENS:
            raise AssertionError(f"{seen} tokens arrived, {TOKENS} were sent")
    return spent / TOKENS * 1e6


def calling(way: str, loop: str) -> float:
    """Microseconds of CPU for each call, one after the other, each in a turn of its own."""
    return on_loop(_calling(way), loop)


async def _calling(way: str) -> float:
    work: Callable[[], Any] = {"a bare task": _bare_task, "a bare thread": _bare_thread}.get(way) or _with_tool(way)
    await work()
    gc.collect()
    before = _cpu()
    await work()
    return (_cpu() - before) / (RUNS * CALLS) * 1e6


async def _nothing() -> str:
    await asyncio.sleep(0)
    return "ok"


async def _bare_task() -> None:
    for _ in range(RUNS * CALLS):
        await asyncio.create_task(_nothing())


async def _bare_thread() -> None:
    for _ in range(RUNS * CALLS):
        await asyncio.to_thread(str)


def _with_tool(way: str) -> Callable[[], Any]:
    used = tool(_nothing, name="use") if way == "async tool" else tool(lambda: "ok", name="use")
    with_it = Agent(Scripted(*[calls("use")] * CALLS, "Done."), tools=[used], max_turns=CALLS + 1)

    async def work() -> None:
        for _ in range(RUNS):
            await with_it.run("Go.")

    return work


def one_turn(loop: str) -> float:
    """Microseconds of CPU for a run of one turn without a tool."""
    return on_loop(_one_turn(), loop)


async def _one_turn() -> float:
    agent = Agent(Scripted("ok"))
    spent = 0.0
    for _ in range(2):
        gc.collect()
        before = _cpu()
        for _ in range(RUNS * CALLS):
            await agent.run("Go.")
        spent = _cpu() - before
    return spent / (RUNS * CALLS) * 1e6


def crowd(loop: str) -> dict[str, float]:
    """A thousand agents at once, three turns and two tool calls each; and then as many, stopped all at once."""
    return on_loop(_crowd(), loop)


async def _crowd() -> dict[str, float]:
    @tool
    async def look(at: str) -> str:
        await asyncio.sleep(0.02)
        return at

    @tool
    async def wait() -> None:
        await asyncio.sleep(60)

    model = Scripted(("Let me see.", calls("look", at="a")), calls("look", at="b"), "Done.")
    agent = Agent(model, tools=[look, wait])
    await agent.run("Go.")
    began, before = time.monotonic(), _cpu()
    results = await asyncio.gather(*(agent.run("Go.").wait() for _ in range(AGENTS)))
    took, spent = time.monotonic() - began, _cpu() - before
    if any(result.text != "Done." for result in results):
        raise AssertionError("an agent did not come to its end")
    waiting = Agent(Scripted(calls("wait")), tools=[wait])
    runs = [waiting.run("Go.").start() for _ in range(AGENTS)]
    await asyncio.sleep(0.5)
    for run in runs:
        run.cancel()
    receipts = [(await run.finished()).receipt for run in runs]
    stopped = [receipt.stopped_after_ms for receipt in receipts if receipt is not None and receipt.confirmed]
    if len(stopped) != AGENTS:
        raise AssertionError(f"{len(stopped)} of {AGENTS} stops are confirmed")
    return {
        "wall_ms": took * 1e3,
        "cpu_us": spent / AGENTS * 1e6,
        "stop_p50": median(stopped),
        "stop_p99": percentile(stopped, 99),
    }


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


# --- the rounds ---------------------------------------------------------------------------------------------


def measure_nesting(options: Options) -> Table:
    with Wire.start() as wire:
        url = wire.url(f"steady({TOKENS},0)", tag="nesting")
        found = interleaved(
            "nesting", options.rounds, KINDS, lambda kind: in_child(nesting, kind=kind, url=url, loop=options.loop)
        )
    against = {kind: ratios(values, found["agent"]) for kind, values in found.items()}
    return Table(
        title="CPU per token through nesting",
        about=f"A flood of {TOKENS:,} tokens, read at the root: the bare agent, and what it may be inside of.",
        columns=("", "µs per token", "× the bare agent"),
        rows=[(kind, spread(values), spread(against[kind], 2)) for kind, values in found.items()],
        lines=(Line("the dearest / the bare agent", max(median(each) for each in against.values()), 1.3, " ×"),),
    )


def measure_calls(options: Options) -> Table:
    found = interleaved("calls", options.rounds, WAYS, lambda way: in_child(calling, way=way, loop=options.loop))
    alone = [in_child(one_turn, loop=options.loop) for _ in range(options.rounds)]
    return Table(
        title="A tool call",
        about=f"Runs of {CALLS} turns of a scripted model, each with one call that does nothing; beside it what a bare "
        "task and a bare thread cost, and a whole run of one turn without a tool.",
        columns=("", "µs of CPU"),
        rows=[
            *((f"a turn with one {way}" if "tool" in way else way, spread(found[way])) for way in WAYS),
            ("a run of one turn, no tool", spread(alone)),
        ],
    )


def measure_agents(options: Options) -> Table:
    found = [in_child(crowd, loop=options.loop) for _ in range(options.rounds)]
    return Table(
        title=f"{AGENTS:,} agents at once",
        about="Three turns and two calls of 20 ms each on one loop; then as many in a call of a minute, stopped at "
        "once: from each `cancel()` to the end of everything, by the receipts.",
        columns=("", ""),
        rows=[
            ("all of them, ms", spread([each["wall_ms"] for each in found], 0)),
            ("CPU for each, µs", spread([each["cpu_us"] for each in found], 0)),
            ("stop of each, p50, ms", spread([each["stop_p50"] for each in found])),
            ("stop of each, p99, ms", spread([each["stop_p99"] for each in found])),
        ],
    )
