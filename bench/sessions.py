"""What a session adds to a turn and to a tool call, and a hundred of them writing at once."""

from __future__ import annotations

import asyncio
import gc
import resource
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

import asyncpg

from bench import by_hand
from bench.child import in_child, on_loop
from bench.places import BY_HAND, NOWHERE, Places
from bench.rounds import Options, interleaved
from bench.table import Line, Table, percentile, spread
from halter import Agent, tool
from halter.core.ports import SessionRef
from halter.models import Scripted
from halter.models.scripted import calls
from halter.sessions import Sessions

TURNS = 300  # one after the other
A_SESSION = 10  # turns of each session
CALLS = 10  # in a run with tools
AT_ONCE = 100  # sessions
SAID = ("Go.", "ok")


# --- in a process of its own --------------------------------------------------------------------------------


def one_by_one(way: str, where: str | None, loop: str) -> dict[str, float]:
    """Milliseconds and microseconds of CPU for a turn; what a tool call takes beyond one. Twice, the second counts."""
    return on_loop(_one_by_one(way, where), loop)


async def _one_by_one(way: str, where: str | None) -> dict[str, float]:
    if way in BY_HAND:
        await _turns_by_hand(way, str(where), "warm-up")
        wall, cpu = await _turns_by_hand(way, str(where), "measured")
        return {"wall_ms": wall, "cpu_us": cpu}
    chats = None if way == NOWHERE else Sessions(where)
    agent = Agent(Scripted("ok"))
    used = tool(_nothing, name="use")
    with_tool = Agent(Scripted(*[calls("use")] * CALLS, "ok"), tools=[used], max_turns=CALLS + 1)
    for goes in ("warm-up", "measured"):
        wall, cpu = await _timed(lambda number, goes=goes: _run(agent, chats, goes, number // A_SESSION), TURNS)
        calls_wall, calls_cpu = await _timed(
            lambda number, goes=goes: _run(with_tool, chats, f"{goes} with tools", number), TURNS // CALLS
        )
        first_wall, first_cpu = await _timed(
            lambda number, goes=goes: _run(agent, chats, f"{goes} once", number), TURNS // CALLS
        )
    return {
        "wall_ms": wall,
        "cpu_us": cpu,
        "call_wall_ms": (calls_wall - first_wall) / CALLS,
        "call_cpu_us": (calls_cpu - first_cpu) / CALLS,
    }


async def _nothing() -> str:
    await asyncio.sleep(0)
    return "ok"


async def _run(agent: Agent[Any], chats: Sessions | None, goes: str, number: int) -> None:
    session: SessionRef | None = None if chats is None else chats.session(f"{goes} {number}")
    result = await agent.run("Go.", session=session)
    if result.text != "ok":
        raise AssertionError(f"a turn has come to {result.text!r}")


async def _turns_by_hand(way: str, where: str, goes: str) -> tuple[float, float]:
    if way == "sqlite3 by hand":
        file = by_hand.open_sqlite(where)

        async def sqlite(number: int) -> None:
            by_hand.do_in_sqlite(file, _steps(goes, number))

        found = await _timed(sqlite, TURNS)
        file.close()
        return found
    connection = await asyncpg.connect(where)
    for statement in by_hand.TABLES:
        await connection.execute(statement)
    found = await _timed(lambda number: by_hand.do_in_postgres(connection, _steps(goes, number)), TURNS)
    await connection.close()
    return found


def _steps(goes: str, number: int) -> list[by_hand.Step]:
    return by_hand.turn(f"{goes} {number // A_SESSION}", number % A_SESSION, SAID)


async def _timed(work: Callable[[int], Awaitable[None]], times: int) -> tuple[float, float]:
    """Milliseconds of wall time, and microseconds of CPU, for each."""
    gc.collect()
    began, before = time.perf_counter(), _cpu()
    for number in range(times):
        await work(number)
    return (time.perf_counter() - began) / times * 1e3, (_cpu() - before) / times * 1e6


def at_once(way: str, where: str | None, loop: str) -> dict[str, float]:
    """Turns a second, and milliseconds of a turn, with so many conversations at once, ten turns each."""
    return on_loop(_at_once(way, where), loop)


async def _at_once(way: str, where: str | None) -> dict[str, float]:
    work, end = await _turn_of(way, where)
    await asyncio.gather(*(work(f"warm-up {number}", 0) for number in range(AT_ONCE)))
    took: list[float] = []

    async def conversation(name: str) -> None:
        for number in range(A_SESSION):
            began = time.perf_counter()
            await work(name, number)
            took.append((time.perf_counter() - began) * 1e3)

    gc.collect()
    began = time.perf_counter()
    await asyncio.gather(*(conversation(f"session {number}") for number in range(AT_ONCE)))
    whole = time.perf_counter() - began
    await end()
    return {"turns_s": len(took) / whole, "p50": median(took), "p99": percentile(took, 99)}


Work = Callable[[str, int], Awaitable[None]]


async def _turn_of(way: str, where: str | None) -> tuple[Work, Callable[[], Awaitable[object]]]:
    """One turn of a conversation, by its name and the turn's number; and what lets go of it all."""
    if way == "sqlite3 by hand":
        return _in_one_file(str(where))
    if way == "asyncpg by hand":
        return await _in_a_pool(str(where))
    chats = None if way == NOWHERE else Sessions(where)
    agent = Agent(Scripted("ok"))

    async def turn(name: str, number: int) -> None:
        await agent.run("Go.", session=None if chats is None else chats.session(name))

    async def end() -> None:
        if chats is not None:
            await chats.aclose()

    return turn, end


def _in_one_file(where: str) -> tuple[Work, Callable[[], Awaitable[object]]]:
    file = by_hand.open_sqlite(where)

    async def turn(name: str, number: int) -> None:
        await asyncio.sleep(0)  # the others' turn
        by_hand.do_in_sqlite(file, by_hand.turn(name, number, SAID))

    async def end() -> None:
        file.close()

    return turn, end


async def _in_a_pool(where: str) -> tuple[Work, Callable[[], Awaitable[object]]]:
    pool = await asyncpg.create_pool(where, min_size=10, max_size=10)
    for statement in by_hand.TABLES:
        await pool.execute(statement)

    async def turn(name: str, number: int) -> None:
        for step in by_hand.turn(name, number, SAID):
            async with pool.acquire() as connection:
                await by_hand.do_in_postgres(connection, [step])

    return turn, pool.close


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


# --- the rounds ---------------------------------------------------------------------------------------------


def measure_turns(options: Options) -> Table:
    with Places() as places:
        ways = (NOWHERE, *places.ways)
        found = interleaved(
            "sessions",
            options.rounds,
            ways,
            lambda way: in_child(one_by_one, way=way, where=places.new(way), loop=options.loop),
        )
    added = {
        way: [each["wall_ms"] - bare["wall_ms"] for each, bare in zip(found[way], found[NOWHERE], strict=True)]
        for way in places.ways
        if way in LIMITS
    }
    return Table(
        title="A turn on a session",
        about=f"Runs of one turn of a scripted model, one after the other, {A_SESSION} to a session; and without. "
        f"A tool call: what runs of {CALLS} calls, each in a turn of its own, take beyond a run without one. By hand: "
        "the same rows in as many transactions, through the bare driver, without a run. CPU: of this process.",
        columns=("", "ms per turn", "CPU, µs", "ms per tool call", "CPU, µs"),
        rows=[(way, *_cells(found[way])) for way in ways],
        lines=[Line(f"{way}: added to a turn", median(values), LIMITS[way], " ms") for way, values in added.items()],
    )


LIMITS = {"memory": 1.0, "SQLite": 5.0}  # milliseconds that a session may add to a turn; PostgreSQL: as the disk is
KEYS = (("wall_ms", 2), ("cpu_us", 0), ("call_wall_ms", 2), ("call_cpu_us", 0))


def _cells(rounds: list[dict[str, float]]) -> list[str]:
    return [spread([each[key] for each in rounds], digits) if key in rounds[0] else "" for key, digits in KEYS]


def measure_writing(options: Options) -> Table:
    with Places() as places:
        ways = (NOWHERE, *places.ways)
        found = interleaved(
            "sessions at once",
            options.rounds,
            ways,
            lambda way: in_child(at_once, way=way, where=places.new(way), loop=options.loop),
        )
    return Table(
        title=f"{AT_ONCE} sessions at once",
        about=f"{AT_ONCE} conversations of {A_SESSION} turns each on one loop, all at once, as fast as they go.",
        columns=("", "turns per second", "a turn, p50, ms", "p99, ms"),
        rows=[
            (
                way,
                spread([each["turns_s"] for each in rounds], 0),
                spread([each["p50"] for each in rounds]),
                spread([each["p99"] for each in rounds]),
            )
            for way, rounds in found.items()
        ],
    )
