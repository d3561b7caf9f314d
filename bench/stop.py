"""How long a stop takes: from the instant before `cancel()` to the provider seeing the connection close.

Both instants are `time.monotonic()`, one clock for all processes of a machine. The provider is the recording one, in
a process of its own: its record says when the connection ended, not what the client believes.
"""

from __future__ import annotations

import asyncio
import gc
import math
import os
import random
import resource
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack, suppress
from queue import SimpleQueue
from typing import Any

from bench.child import in_child, on_loop
from bench.peers import CLIENTS, Client, Stream
from bench.rounds import Options, interleaved
from bench.table import Line, Table, percentile
from halter.proof.wire import Wire, WireTimeout

# state → the provider's mode, and how many tokens have arrived when the stop may come
STATES = {
    "streaming": ("steady(100000,10)", 3),
    "stalled": ("stall(1)", 1),
    "before headers": ("no-headers", 0),
    "flood": ("steady(5000000,0)", 500),
}
SOURCES = ("task", "thread", "signal")
TRIALS = 200  # of each kind: fewer do not tell a 99th percentile
CROWD = 1_000
CROWD_WIRES = 2
CROWD_MODE = "steady(100000,200)"
READY = 10.0  # seconds for a stream to come into its state
CLOSED = 3.0  # seconds; a connection that is open after that counts as never closed
NEVER = 1e9
ORDER = 0.002  # seconds until the loop that gave an order is where it usually is: waiting

Cells = dict[str, list[float]]  # "state, source" → milliseconds of each trial


# --- who stops it -------------------------------------------------------------------------------------------


class Stopper:
    """Calls `cancel()` from a task, from another thread, or in a signal handler, and notes the instant before it."""

    def __init__(self) -> None:
        self.cancelled_at = math.nan
        self.killed_at = math.nan
        self._stream: Stream | None = None
        self._orders: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._obey, daemon=True)

    def __enter__(self) -> Stopper:
        signal.signal(signal.SIGINT, lambda *_: self._cancel())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._orders.put(None)
        self._thread.join()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def stop(self, stream: Stream, source: str) -> None:
        self.cancelled_at = self.killed_at = math.nan
        self._stream = stream
        match source:
            case "task":
                self._cancel()
            case "thread":
                self._orders.put(self._cancel)
            case _:
                self._orders.put(self._kill)

    def _cancel(self) -> None:
        assert self._stream is not None
        self.cancelled_at = time.monotonic()
        self._stream.cancel()

    def _kill(self) -> None:
        self.killed_at = time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)

    def _obey(self) -> None:
        while (order := self._orders.get()) is not None:
            time.sleep(ORDER)
            order()


# --- in a process of its own --------------------------------------------------------------------------------


def trials(candidate: str, states: list[str], sources: list[str], count: int, crowd: int, loop: str) -> Cells:
    """`count` stops of each kind in random order, while `crowd` other streams are read in the same process."""
    allow_files()
    with ExitStack() as stack:
        wire = stack.enter_context(Wire.start())
        others = [stack.enter_context(Wire.start()) for _ in range(CROWD_WIRES if crowd else 0)]
        if not crowd:
            _give_cores(wire.pid)
        stopper = stack.enter_context(Stopper())
        cells = [(state, source) for state in states for source in sources] * count
        random.shuffle(cells)
        return on_loop(_trials(CLIENTS[candidate], wire, others, stopper, cells, crowd), loop)


async def _trials(
    make: Callable[[], Client],
    wire: Wire,
    others: list[Wire],
    stopper: Stopper,
    cells: list[tuple[str, str]],
    crowd: int,
) -> Cells:
    found: Cells = {}
    client = make()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(client.close)
        if crowd:
            await stack.enter_async_context(Crowd(client, others, crowd))
        for number, (state, source) in enumerate(dict.fromkeys(cells)):  # what is loaded and made only once
            await _trial(client, wire, stopper, state, source, f"first-{number}", {})
        gc.collect()
        gc.freeze()  # for each candidate alike: full collections over what it has loaded fall into no stop
        for number, (state, source) in enumerate(cells):
            await _trial(client, wire, stopper, state, source, f"{number}", found)
    return found


async def _trial(client: Client, wire: Wire, stopper: Stopper, state: str, source: str, tag: str, found: Cells) -> None:
    mode, tokens = STATES[state]
    texts: list[str] = []
    stream = client.start(wire.url(mode, tag=tag), texts)
    await _arrived(texts, tokens)
    if not tokens:
        await wire.awaited("started", tag=tag, timeout=READY)
    await asyncio.sleep(random.uniform(0.001, 0.012))  # anywhere between two tokens
    stopper.stop(stream, source)
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSED):
            await stream.ended()
    closed_at = await _closed_at(wire, tag)
    wire_saw = (closed_at - stopper.cancelled_at) * 1e3
    found.setdefault(f"{state}, {source}", []).append(wire_saw)
    if source == "signal":
        found.setdefault(f"{state}, signal (from kill)", []).append((closed_at - stopper.killed_at) * 1e3)


async def _arrived(texts: list[str], tokens: int) -> None:
    async with asyncio.timeout(READY):
        while len(texts) < tokens:  # noqa: ASYNC110 - no candidate can be asked to signal it
            await asyncio.sleep(0.001)


async def _closed_at(wire: Wire, tag: str) -> float:
    try:
        [record] = await wire.awaited("closed", tag=tag, timeout=CLOSED)
    except WireTimeout:
        return NEVER
    finally:
        await asyncio.to_thread(wire.clear)  # a flood's record holds thousands of instants
    return record.closed_at or NEVER


class Crowd:
    """Other streams, live and read in the same process for as long as the block lasts; none may suffer."""

    def __init__(self, client: Client, wires: list[Wire], count: int) -> None:
        urls = [wire.url(CROWD_MODE, tag="crowd") for wire in wires]
        self._client = client
        self._urls = [urls[i % len(urls)] for i in range(count)]
        self._texts: list[list[str]] = [[] for _ in self._urls]
        self._streams: list[Stream] = []

    async def __aenter__(self) -> None:
        for number, (url, texts) in enumerate(zip(self._urls, self._texts, strict=True)):
            self._streams.append(self._client.start(url, texts))
            if number % 50 == 49:
                await asyncio.sleep(0.01)  # out of step
        async with asyncio.timeout(READY):
            while not all(self._texts):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def __aexit__(self, *_: object) -> None:
        before = [len(texts) for texts in self._texts]
        await asyncio.sleep(1.0)
        still = sum(len(texts) > had for texts, had in zip(self._texts, before, strict=True))
        for stream in self._streams:
            stream.cancel()
        async with asyncio.timeout(READY):
            for stream in self._streams:
                await stream.ended()
        if still < len(self._texts):
            raise AssertionError(f"{len(self._texts) - still} streams of the crowd fell silent")


def _give_cores(provider: int) -> None:
    """A core for this process and others for the provider: on one core, it would see a close only once this sleeps."""
    mine, *others = sorted(os.sched_getaffinity(0))
    if others:
        os.sched_setaffinity(0, {mine})
        os.sched_setaffinity(provider, others)


def allow_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# --- the rounds ---------------------------------------------------------------------------------------------


def measure_stop_on_asyncio(options: Options) -> Table:
    return _measure_stop(options, "asyncio")


def measure_stop_on_uvloop(options: Options) -> Table:
    return _measure_stop(options, "uvloop")


def _measure_stop(options: Options, loop: str) -> Table:
    share = _shares(options)
    found = interleaved(
        f"stop on {loop}",
        options.rounds,
        ["halter", "handwritten", "openai"],
        lambda name: in_child(
            trials,
            candidate=name,
            states=list(STATES),
            sources=list(SOURCES if name == "halter" else SOURCES[:1]),
            count=share,
            crowd=0,
            loop=loop,
        ),
    )
    pooled = {name: _pooled(cells) for name, cells in found.items()}
    ours = _by_cancel(pooled["halter"])
    return Table(
        title=f"From a stop to the provider's connection closed, on {loop}",
        about=f"{share * options.rounds} stops of each kind, one at a time, in {options.rounds} processes each, the "
        "provider on a core of its own. `signal`: a real SIGINT, cancelled in a plain handler. The others cancel the "
        f"task that reads.{_too_few(options)}",
        columns=_COLUMNS,
        rows=_rows(pooled),
        lines=(
            Line(f"halter on {loop}, the slowest p50", max(percentile(values, 50) for values in ours), 0.25, " ms"),
            *_slowest(ours, 1.5, f"halter on {loop}, the slowest p99", options),
            Line(f"halter by handwritten on {loop}, p50 by a task", _by_hand(pooled), 1.3, " x"),
        ),
    )


def _by_hand(pooled: dict[str, Cells]) -> float:
    """The median of our stops by a task, in all states, by that of the loop written by hand."""
    ours, theirs = (
        percentile([value for state in STATES for value in pooled[name][f"{state}, task"]], 50)
        for name in ("halter", "handwritten")
    )
    return ours / theirs


def measure_crowd(options: Options) -> Table:
    share = _shares(options)
    found = interleaved(
        "crowd",
        options.rounds,
        ["halter", "handwritten"],
        lambda name: in_child(
            trials,
            candidate=name,
            states=["streaming"],
            sources=list(SOURCES if name == "halter" else SOURCES[:1]),
            count=share,
            crowd=CROWD,
            loop=options.loop,
        ),
    )
    pooled = {name: _pooled(cells) for name, cells in found.items()}
    ours = _by_cancel(pooled["halter"])
    return Table(
        title=f"The same among {CROWD:,} other streams",
        about=f"{CROWD:,} streams of 5 tokens/s are read in the same process meanwhile, and go on.{_too_few(options)}",
        columns=_COLUMNS,
        rows=_rows(pooled),
        lines=_slowest(ours, 25, "halter, the slowest p99", options),
    )


_COLUMNS = ("ms", "p50", "p99", "max", "stops", "never")


def _shares(options: Options) -> int:
    """How many stops of each kind a round makes."""
    return 10 if options.quick else -(-TRIALS // options.rounds)


def _slowest(ours: list[list[float]], limit: float, what: str, options: Options) -> tuple[Line, ...]:
    """The line of the slowest 99th percentile, if there are enough stops to have one."""
    return () if options.quick else (Line(what, max(percentile(values, 99) for values in ours), limit, " ms"),)


def _too_few(options: Options) -> str:
    return " Too few of them for a p99, which has no line here." if options.quick else ""


def _pooled(rounds: list[Cells]) -> Cells:
    return {cell: [value for cells in rounds for value in cells[cell]] for cell in rounds[0]}


def _by_cancel(cells: Cells) -> list[list[float]]:
    """Those that count from `cancel()`, as the line does."""
    return [values for cell, values in cells.items() if "from kill" not in cell]


def _rows(pooled: dict[str, Cells]) -> list[list[str]]:
    kinds = [f"{state}, {source}" for state in STATES for source in (*SOURCES, "signal (from kill)")]
    return [
        [f"{name}: {kind}", *_figures(cells[kind])] for kind in kinds for name, cells in pooled.items() if kind in cells
    ]


def _figures(values: list[float]) -> list[str]:
    never = sum(value > CLOSED * 2e3 for value in values)
    figures: list[Any] = [percentile(values, 50), percentile(values, 99), max(values)]
    shown = ["never" if figure > CLOSED * 2e3 else f"{figure:.2f}" for figure in figures]
    return [*shown, f"{len(values)}", f"{never}"]
