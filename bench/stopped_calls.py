"""What a stop of one tool call takes, for each kind of tool: time, and CPU of all that have a part in it."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.child import in_child, on_loop
from bench.rounds import Options, interleaved
from bench.table import Line, Table, percentile
from halter import Agent, tool
from halter.children import proc, supervised
from halter.core.tool_context import ToolContext
from halter.models.scripted import Scripted, calls
from halter.tools.fetching import http_get
from halter.tools.filesystem import files
from halter.tools.jobs import Jobs
from halter.tools.mcp import mcp_tools
from halter.tools.process import shell
from halter.tools.surroundings import Surroundings

Stops = dict[str, list[float]]  # "ms": how long each took; "cpu": milliseconds of CPU for each
TREE = "for i in 1 2 3 4 5 6 7 8 9; do sleep 300 & done; echo ready; wait"  # ten processes
TRIALS = 200
READY = 30.0  # seconds
_TICK = os.sysconf("SC_CLK_TCK")
_SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    server = {"name": "n", "version": "1"}
    tools = [{"name": "hang", "inputSchema": {"type": "object"}}]
    about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": server}
    answers = {"initialize": about, "tools/list": {"tools": tools}}
    if asked.get("method") in answers:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answers[asked["method"]]}), flush=True)
"""


@tool
async def hang(ctx: ToolContext) -> str:
    """Waits."""
    ctx.progress("ready")
    await asyncio.sleep(300)
    return ""


@tool
def poll(ctx: ToolContext) -> str:
    """Blocks, and looks now and then."""
    ctx.progress("ready")
    while True:
        ctx.token.raise_if_cancelled()
        time.sleep(0.005)


@tool(isolation="process")
def block() -> str:
    """Blocks, in a process of its own."""
    time.sleep(300)
    return ""


# --- in a process of its own --------------------------------------------------------------------------------


def trials(kind: str, count: int, loop: str) -> Stops:
    return on_loop(_trials(kind, count), loop)


async def _trials(kind: str, count: int) -> Stops:
    found: Stops = {"ms": [], "cpu": []}
    async with KINDS[kind]() as stopped:
        for number in range(count + 2):
            took, cpu = await stopped()
            if number > 1:  # what is loaded and made only once
                found["ms"].append(took * 1e3)
                found["cpu"].append(cpu * 1e3)
    return found


Stopped = Callable[[], Awaitable[tuple[float, float]]]


def _of_tool(used: Any, *, until: str = "tool.started", pause: float = 0.02, **arguments: Any) -> Stopped:
    async def stopped() -> tuple[float, float]:
        run = Agent(Scripted(calls(used.name, **arguments)), tools=[used]).run("Go.").start()
        async with asyncio.timeout(READY):
            async for event in run.events():
                if event.type == until:
                    break
        await asyncio.sleep(pause + random.uniform(0.001, 0.012))
        cpu, began = _cpu(), time.monotonic()
        run.cancel()
        result = await run.finished()
        took = time.monotonic() - began
        assert result.receipt is not None
        assert result.receipt.confirmed, result.receipt
        await asyncio.sleep(0.03)  # the supervisor's own end
        return took, _cpu() - cpu

    return stopped


def _cpu() -> float:
    """Seconds of CPU of this process, of its helper, and of the helper's supervisors that have ended."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime + _cpu_of_helper()


def _cpu_of_helper() -> float:
    """In ticks of the kernel, thus exact over many stops alone; with all that has ended below it."""
    helper = supervised._helper
    if helper is None:
        return 0.0
    pids = [helper._server[0], *proc.below(helper._server).processes]
    return sum(map(_ticks, pids)) / _TICK


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(map(int, fields[11:15]))


@asynccontextmanager
async def _with(stopped: Stopped) -> AsyncIterator[Stopped]:
    yield stopped


@asynccontextmanager
async def _job() -> AsyncIterator[Stopped]:
    where = Surroundings.of(None, None, None)
    async with Jobs() as jobs:

        async def stopped() -> tuple[float, float]:
            job = await jobs.start(["sh", "-c", TREE], "tree", where, max_output=100, term_grace=1.0)
            while "ready" not in job.read():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.02)
            cpu, began = _cpu(), time.monotonic()
            await job.end()
            took = time.monotonic() - began
            await asyncio.sleep(0.03)
            return took, _cpu() - cpu

        yield stopped


@asynccontextmanager
async def _mcp() -> AsyncIterator[Stopped]:
    async with mcp_tools([sys.executable, "-c", _SERVER]) as tools:
        yield _of_tool(tools[0])


@asynccontextmanager
async def _fetch() -> AsyncIterator[Stopped]:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        yield _of_tool(http_get(private=True), url=url)


@asynccontextmanager
async def _files() -> AsyncIterator[Stopped]:
    (search,) = (each for each in files(Path(__file__).parents[1]) if each.name == "grep")
    yield _of_tool(search, pattern="(x+x+)+y", pause=0.0)


KINDS: dict[str, Callable[[], Any]] = {
    "shell, 10 processes": lambda: _with(_of_tool(shell(approval="never"), command=TREE, until="tool.progress")),
    "shell, 1 process": lambda: _with(
        _of_tool(shell(approval="never"), command="echo ready; exec sleep 300", until="tool.progress")
    ),
    "job, 10 processes": _job,
    "function in a process": lambda: _with(_of_tool(block, pause=0.15)),
    "function in a thread": lambda: _with(_of_tool(poll, until="tool.progress")),
    "async function": lambda: _with(_of_tool(hang, until="tool.progress")),
    "MCP over stdio": _mcp,
    "http_get": _fetch,
    "files: grep": _files,
}


# --- the rounds ---------------------------------------------------------------------------------------------


def measure_stopped_calls(options: Options) -> Table:
    share = 10 if options.quick else -(-TRIALS // options.rounds)
    found = interleaved(
        "stopped calls",
        options.rounds,
        list(KINDS),
        lambda kind: in_child(trials, kind=kind, count=share, loop=options.loop),
    )
    pooled = {
        kind: {what: [value for stops in rounds for value in stops[what]] for what in ("ms", "cpu")}
        for kind, rounds in found.items()
    }
    tree = pooled["shell, 10 processes"]
    return Table(
        title="A stop of a tool call",
        about=f"{share * options.rounds} stops of each kind, one at a time: from `cancel()` to the end of the run, "
        "whose receipt is confirmed. CPU: of this process, its helper and the supervisors, for each stop, on average. "
        "The tree is a shell with nine children.",
        columns=("", "p50, ms", "p99, ms", "CPU, ms"),
        rows=[
            [kind, f"{percentile(of['ms'], 50):.2f}", f"{percentile(of['ms'], 99):.2f}", f"{_mean(of['cpu']):.2f}"]
            for kind, of in pooled.items()
        ],
        lines=(
            Line("a stop of 10 processes, p50", percentile(tree["ms"], 50), 30, " ms"),
            Line("a stop of 10 processes, CPU", _mean(tree["cpu"]), 15, " ms"),
        ),
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
