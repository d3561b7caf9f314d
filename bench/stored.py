"""What lies in a store: how long a long conversation takes to load, how words are found, how large it is."""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg
import msgspec

from bench import by_hand
from bench.child import in_child, on_loop
from bench.places import BY_HAND, POSTGRES, SQLITE, Places
from bench.rounds import Options, interleaved
from bench.table import Line, Table, spread
from halter import Agent
from halter.core.history import for_model
from halter.messages import Message, Text, ToolCall, ToolResult, Usage
from halter.models import Scripted
from halter.sessions import Sessions

MESSAGES = 10_000
TIMES = 5
TEXT = """river spring hillside rain valley stone bridge mill boat harbour delta ford current bank reed heron otter
lock weir tide estuary meadow willow ferry barge ledger letter answer question number table window morning evening"""
WORDS = TEXT.split()
NEEDLES = ("lighthouse keeper", "river boat")  # in one message of a thousand; in very many
MOST_FOUND = 20


def conversation() -> tuple[Message, ...]:
    """Questions, answers, and now and then a call and its result; some 40 words each, the same each time."""
    said: list[Message] = []
    for turn in range(MESSAGES // 4):
        call = ToolCall(f"call_{turn}", "look", msgspec.json.encode({"at": _words(turn, 5)}).decode())
        said += [
            Message.user(_words(4 * turn, 40)),
            Message("assistant", (Text(_words(4 * turn + 1, 10)), call), usage=Usage(input=900, output=40)),
            Message("tool", (ToolResult(call.id, _words(4 * turn + 2, 40)),)),
            Message("assistant", (Text(_words(4 * turn + 3, 40)),), usage=Usage(input=950, output=60)),
        ]
    return tuple(said)


def _words(seed: int, count: int) -> str:
    found = " ".join(WORDS[(seed * 7 + place * (seed % 11 + 3)) % len(WORDS)] for place in range(count))
    return f"{found} {NEEDLES[0]}" if seed % 1000 == 0 else found


# --- in a process of its own --------------------------------------------------------------------------------


def loading(way: str, where: str | None, loop: str) -> dict[str, float]:
    """Milliseconds to load it all, to make it fit for a model, and for a whole turn on it."""
    return on_loop(_by_hand_loading(way, str(where)) if way in BY_HAND else _loading(where), loop)


async def _loading(where: str | None) -> dict[str, float]:
    chats = Sessions(where)
    await chats.create("long", messages=conversation())
    load = await _best(lambda: chats.history("long"))
    said = await chats.history("long")
    if len(said) != MESSAGES:
        raise AssertionError(f"{len(said)} messages were loaded, {MESSAGES} were said")

    async def told() -> None:
        for_model(said)

    model = await _best(told)
    agent = Agent(Scripted("ok"), compaction=None)

    async def turn() -> None:
        await agent.run("Go.", session=chats.session("long"))

    whole = await _best(turn)
    await chats.aclose()
    return {"load_ms": load, "model_ms": model, "turn_ms": whole}


async def _by_hand_loading(way: str, where: str) -> dict[str, float]:
    rows = _rows()
    if way == "sqlite3 by hand":
        file = by_hand.open_sqlite(where)
        by_hand.do_in_sqlite(file, [[(by_hand.SAY, row)] for row in rows[:1]])
        file.executemany(by_hand.SAY.format("?", "?", "?"), rows[1:])

        async def read() -> None:
            by_hand.read_sqlite(file, "long")

        found = await _best(read)
        file.close()
        return {"load_ms": found}
    connection = await asyncpg.connect(where)
    for statement in by_hand.TABLES:
        await connection.execute(statement)
    await connection.executemany(by_hand.numbered(by_hand.SAY, 3), rows)
    found = await _best(lambda: by_hand.read_postgres(connection, "long"))
    await connection.close()
    return {"load_ms": found}


def _rows() -> list[tuple[str, int, str]]:
    return [("long", place, msgspec.json.encode(said).decode()) for place, said in enumerate(conversation())]


async def _best(work: Callable[[], Awaitable[Any]], times: int = TIMES) -> float:
    """Milliseconds: the median, after one that does not count."""
    await work()
    took: list[float] = []
    for _ in range(times):
        gc.collect()
        began = time.perf_counter()
        await work()
        took.append((time.perf_counter() - began) * 1e3)
    return median(took)


def searching(way: str, where: str | None, loop: str) -> dict[str, float]:
    """Milliseconds to find rare and frequent words, and bytes that a message takes on the disk."""
    return on_loop(_by_hand_searching(way, str(where)) if way in BY_HAND else _searching(way, where), loop)


async def _searching(way: str, where: str | None) -> dict[str, float]:
    chats = Sessions(where)
    before = await _size(way, where)
    said = conversation()
    for number in range(100):
        await chats.create(f"session {number}", messages=said[number * 100 : (number + 1) * 100])
    found: dict[str, float] = {}
    for words in NEEDLES:
        hits = await chats.search(words, limit=MOST_FOUND)
        if not hits:
            raise AssertionError(f"{words!r} was not found")
        found[words] = await _best(lambda words=words: chats.search(words, limit=MOST_FOUND))
    await chats.aclose()
    found["bytes"] = (await _size(way, where) - before) / MESSAGES
    return found


async def _by_hand_searching(way: str, where: str) -> dict[str, float]:
    rows = [(f"session {place // 100}", place % 100, data) for _, place, data in _rows()]
    if way == "sqlite3 by hand":
        file = by_hand.open_sqlite(where)
        before = await _size(SQLITE, where)
        file.executemany(by_hand.SAY.format("?", "?", "?"), rows)

        async def look(words: str) -> None:
            file.execute(by_hand.LOOK.format("?", "?", MOST_FOUND), by_hand.patterns(words)).fetchall()

        found = {words: await _best(lambda words=words: look(words)) for words in NEEDLES}
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        file.close()
        return {**found, "bytes": (await _size(SQLITE, where) - before) / MESSAGES}
    connection = await asyncpg.connect(where)
    for statement in by_hand.TABLES:
        await connection.execute(statement)
    before = await _size(POSTGRES, where)
    await connection.executemany(by_hand.numbered(by_hand.SAY, 3), rows)
    query = by_hand.LOOK.format("$1", "$2", MOST_FOUND)
    found = {
        words: await _best(lambda words=words: connection.fetch(query, *by_hand.patterns(words))) for words in NEEDLES
    }
    await connection.close()
    return {**found, "bytes": (await _size(POSTGRES, where) - before) / MESSAGES}


async def _size(way: str, where: str | None) -> float:
    """Bytes on the disk, after the log was worked in."""
    if way == SQLITE:
        path = Path(str(where))
        return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))
    if way == POSTGRES:
        connection = await asyncpg.connect(where)
        size = await connection.fetchval("SELECT pg_database_size(current_database())")
        await connection.close()
        return float(size)
    return 0.0


# --- the rounds ---------------------------------------------------------------------------------------------


def measure_loading(options: Options) -> Table:
    with Places() as places:
        found = interleaved(
            "loading",
            min(options.rounds, 3),
            places.ways,
            lambda way: in_child(loading, way=way, where=places.new(way), loop=options.loop),
        )
    ours = {way: rounds for way, rounds in found.items() if way not in BY_HAND}
    return Table(
        title=f"A conversation of {MESSAGES:,} messages",
        about="Some 40 words each, every second answer with a call. Loaded as `history()` gives it; made fit for a "
        f"model, which a run does once; a whole turn on it, of a scripted model: medians of {TIMES}. By hand: the same "
        "rows through the bare driver, `json.loads` for each.",
        columns=("", "load, ms", "for the model, ms", "a turn, ms"),
        rows=[(way, *_columns(rounds, ("load_ms", "model_ms", "turn_ms"))) for way, rounds in found.items()],
        lines=[
            Line(f"{way}: load", median(each["load_ms"] for each in rounds), 50, " ms") for way, rounds in ours.items()
        ],
    )


def measure_searching(options: Options) -> Table:
    with Places() as places:
        found = interleaved(
            "searching",
            min(options.rounds, 3),
            places.ways,
            lambda way: in_child(searching, way=way, where=places.new(way), loop=options.loop),
        )
    data = sum(len(data) for _, _, data in _rows()) / MESSAGES
    rare, frequent = NEEDLES
    return Table(
        title=f"Words in {MESSAGES:,} messages",
        about=f"In 100 sessions: two words that occur together in ten messages, and two that do in very many; the "
        f"{MOST_FOUND} newest. By hand: `LIKE` over the rows. A message is {data:.0f} bytes of JSON on average; beside "
        "it lie its words.",
        columns=("", "rare words, ms", "frequent words, ms", "bytes per message on disk"),
        rows=[(way, *_columns(rounds, (rare, frequent, "bytes"))) for way, rounds in found.items()],
    )


def _columns(rounds: Sequence[dict[str, float]], keys: Sequence[str]) -> list[str]:
    return [_cell([each[key] for each in rounds]) if rounds[0].get(key) else "" for key in keys]


def _cell(values: Sequence[float]) -> str:
    return spread(values, 0 if min(values) >= 100 else 1)
