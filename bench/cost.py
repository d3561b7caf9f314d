"""What a token costs: the CPU time of the client process, all its threads, while it streams."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import time
from collections.abc import Callable, Coroutine
from statistics import median
from typing import Any

from bench.child import in_child, in_children, on_loop
from bench.peers import CLIENTS, Client, Halter
from bench.rounds import Options, interleaved
from bench.table import Line, Table, ratios, spread
from halter.proof.wire import Wire

FLOOD = ("floor", "handwritten", "openai", "halter", "halter text_stream", "halter blocking")
PACED = ("floor", "openai", "halter")
STREAMS = 20
START_UP = 3.0  # seconds until both processes have started and read their first answers
PAIRS = 5  # rounds of the paced pairs, at least: their line is close
GAP = 10  # milliseconds between two tokens of a paced stream


# --- in a process of its own --------------------------------------------------------------------------------


def flood(candidate: str, url: str, tokens: int, loop: str) -> float:
    """Microseconds of CPU a token, one stream read as fast as it comes; the second answer of the process."""
    if candidate == "halter blocking":
        read = Halter().read_blocking
        return [_blocking(lambda texts: read(url, texts), tokens) for _ in range(2)][-1]
    return on_loop(_twice(candidate, lambda client, texts: client.read(url, texts), tokens, tokens), loop)


def paced(candidate: str, warm_up: str, url: str, tokens: int, loop: str, start_at: float) -> float:
    """The same for `STREAMS` at once, one token each `GAP` ms; the streams out of step.

    `start_at`: on the monotonic clock, when the measurement begins, in this process and in the one beside it.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    async def side_by_side(client: Client, texts: list[str]) -> None:
        at = url if measured else warm_up
        if measured:
            await asyncio.sleep(start_at - time.monotonic())
        measured.append(True)
        await asyncio.gather(*(_later(i * GAP / STREAMS, client.read(at, texts)) for i in range(STREAMS)))

    measured: list[bool] = []
    return on_loop(_twice(candidate, side_by_side, STREAMS * 10, STREAMS * tokens), loop)


async def _later(milliseconds: float, reading: Coroutine[Any, Any, None]) -> None:
    await asyncio.sleep(milliseconds / 1e3)
    await reading


async def _twice(
    candidate: str, read: Callable[[Client, list[str]], Coroutine[Any, Any, None]], warm_up: int, tokens: int
) -> float:
    client = CLIENTS[candidate]()
    for expected in (warm_up, tokens):
        texts: list[str] = []
        gc.collect()
        before = _cpu()
        await read(client, texts)
        spent = _cpu() - before
        _check(texts, expected)
    await client.close()
    return spent / tokens * 1e6


def _blocking(read: Callable[[list[str]], None], tokens: int) -> float:
    texts: list[str] = []
    gc.collect()
    before = _cpu()
    read(texts)
    spent = _cpu() - before
    _check(texts, tokens)
    return spent / tokens * 1e6


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _check(texts: list[str], expected: int) -> None:
    if len(texts) != expected:
        raise AssertionError(f"{len(texts)} tokens arrived, {expected} were sent")


# --- the rounds ---------------------------------------------------------------------------------------------


def measure_flood(options: Options) -> Table:
    tokens = 20_000
    with Wire.start() as wire:
        url = wire.url(f"steady({tokens},0)", tag="flood")
        found = interleaved(
            "cost",
            options.rounds,
            FLOOD,
            lambda name: in_child(flood, candidate=name, url=url, tokens=tokens, loop=options.loop),
        )
    by_hand = ratios(found["halter"], found["handwritten"])
    return Table(
        title="CPU per token, a flood",
        about=f"One stream of {tokens:,} tokens as fast as they are read; the second answer of a fresh process.",
        columns=_COLUMNS,
        rows=_rows(found),
        lines=(
            Line("halter / handwritten", median(by_hand), 0.6, " ×"),
            Line("openai / halter", median(ratios(found["openai"], found["halter"])), 20, " ×", at_least=True),
        ),
    )


def measure_paced(options: Options) -> Table:
    """Each candidate beside the hand-written loop, at the same time on the same core: what disturbs one disturbs both.

    One after the other, the figures of a few seconds differ by a third on a machine that others use too.
    """
    tokens = 150 if options.quick else 300
    rounds = options.rounds if options.quick else max(options.rounds, PAIRS)
    with Wire.start() as wire:
        url = wire.url(f"steady({tokens},{GAP})", tag="paced")
        warm_up = wire.url("steady(10,1)", tag="warm-up")

        def beside(name: str) -> list[float]:
            start_at = time.monotonic() + START_UP
            common = {"warm_up": warm_up, "url": url, "tokens": tokens, "loop": options.loop, "start_at": start_at}
            return in_children(paced, [{"candidate": each, **common} for each in ("handwritten", name)])

        pairs = interleaved("paced", rounds, PACED, beside)
    by_hand = {name: [theirs / hand for hand, theirs in found] for name, found in pairs.items()}
    hand = [hand for found in pairs.values() for hand, _ in found]
    rows = [("handwritten", spread(hand), spread([1.0], 2))]
    rows += [(name, spread([theirs for _, theirs in pairs[name]]), spread(by_hand[name], 2)) for name in PACED]
    return Table(
        title="CPU per token, paced",
        about=f"{STREAMS} streams at once, {1000 // GAP} tokens/s each for {tokens * GAP / 1e3:g} s, out of step: "
        "nearly every token is a read of its own. Each candidate beside the hand-written loop, at the "
        "same time on one core.",
        columns=("", "µs per token (min–max)", "× handwritten beside it (min–max)"),
        rows=tuple(rows),
        lines=(Line("halter / handwritten", median(by_hand["halter"]), 1.1, " ×"),),
    )


_COLUMNS = ("", "µs per token (min–max)", "× handwritten, by round (min–max)")


def _rows(found: dict[str, list[float]]) -> list[tuple[str, str, str]]:
    hand = found["handwritten"]
    return [(name, spread(values), spread(ratios(values, hand), 2)) for name, values in found.items()]
