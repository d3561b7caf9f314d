"""What is held in memory: by a stream that waits, and by a long run that is over but still held by its handle."""

from __future__ import annotations

import asyncio
import gc
import os
import tracemalloc
from pathlib import Path
from statistics import median

from bench.child import in_child, on_loop
from bench.peers import CLIENTS, Client, Halter, Stream
from bench.rounds import Options, interleaved
from bench.table import Line, Table, spread
from halter.proof.wire import Wire

IDLE = ("handwritten", "openai", "halter")
STREAMS = 500
WARM_UP = 20
LONG = 100_000
PATIENCE = 30.0
AT_ONCE = 50


# --- in a process of its own --------------------------------------------------------------------------------


def idle(candidate: str, url: str, loop: str) -> float:
    """KiB of resident memory for each of `STREAMS` answers that have stalled after a token."""
    return on_loop(_idle(candidate, url), loop)


async def _idle(candidate: str, url: str) -> float:
    client = CLIENTS[candidate]()
    await _end(await _stalled(client, url, WARM_UP))
    before = _resident()
    streams = await _stalled(client, url, STREAMS)
    grown = _resident() - before
    await _end(streams)
    await client.close()
    return grown / STREAMS


async def _stalled(client: Client, url: str, count: int) -> list[Stream]:
    texts: list[str] = []
    streams: list[Stream] = []
    async with asyncio.timeout(PATIENCE):
        while len(texts) < count:  # a few at a time: a listener's queue is short
            if len(streams) < min(count, len(texts) + AT_ONCE):
                streams.append(client.start(url, texts))
            else:
                await asyncio.sleep(0.001)
    return streams


async def _end(streams: list[Stream]) -> None:
    for stream in streams:
        stream.cancel()
    async with asyncio.timeout(PATIENCE):
        for stream in streams:
            await stream.ended()


def held(warm_up: str, url: str, traced: bool, loop: str) -> float:
    """MiB that a run of `LONG` tokens holds, read to its end: resident, or traced as Python objects."""
    return on_loop(_held(warm_up, url, traced), loop)


async def _held(warm_up: str, url: str, traced: bool) -> float:
    client = Halter()
    await client.read(warm_up, [])
    if traced:
        tracemalloc.start()
    before = _traced() if traced else _resident()
    run = client.run(url)
    async for _ in run:
        pass
    grown = (_traced() if traced else _resident()) - before
    if run.outcome is None or len(run.outcome.text) < LONG:
        raise AssertionError(f"{run} ended early")
    return grown / 1024


def _resident() -> float:
    """KiB."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1024


def _traced() -> float:
    """KiB."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0] / 1024


# --- the rounds ---------------------------------------------------------------------------------------------


def measure_idle(options: Options) -> Table:
    with Wire.start() as wire:
        url = wire.url("stall(1)", tag="idle")
        found = interleaved(
            "memory", options.rounds, IDLE, lambda name: in_child(idle, candidate=name, url=url, loop=options.loop)
        )
    return Table(
        title="Memory of an idle stream",
        about=f"Growth of the process's resident memory with {STREAMS} stalled streams, for each of them.",
        columns=("", "KiB per stream (min–max)"),
        rows=[(name, spread(values)) for name, values in found.items()],
        lines=(Line("halter", median(found["halter"]), 40, " KiB"),),
    )


def measure_held(options: Options) -> Table:
    rows: list[tuple[str, str]] = []
    with Wire.start() as wire:
        urls = {"url": wire.url(f"steady({LONG},0)", tag="long"), "warm_up": wire.url("steady(1000,0)", tag="warm-up")}
        for name, traced in (("resident memory", False), ("Python objects (tracemalloc)", True)):
            found = interleaved(
                "held",
                min(options.rounds, 3),
                [name],
                lambda _, traced=traced: in_child(held, traced=traced, loop=options.loop, **urls),
            )
            rows.append((name, spread(found[name], 2)))
    return Table(
        title="Memory of a long run",
        about=f"A run of {LONG:,} tokens, read to its end and held by its handle: its log, history and text.",
        columns=("", "MiB (min–max)"),
        rows=rows,
    )
