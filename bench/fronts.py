"""What each front of the server costs: the same stream in the frames of other people's clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

from bench.child import on_loop
from bench.peers import PROMPT
from bench.rounds import Options, interleaved
from bench.served import CLIENTS, GAP, START, Server, post, serving
from bench.table import Line, Table, ratios, spread
from halter.proof.wire import Wire


class Request(NamedTuple):
    """A request of one client."""

    path: str
    body: bytes


class Front(NamedTuple):
    """A way to the same stream.

    `request`: of the client of this number. `marker`: in each token's frame, once. `before`: a request that has to be
    made first.
    """

    request: Callable[[int], Request]
    marker: bytes
    before: Callable[[int], Request] | None = None


def _native(number: int) -> Request:
    return Request("/v1/runs", START)


def _adk(number: int) -> Request:
    message = {"role": "user", "parts": [{"text": PROMPT}]}
    names = {"appName": "agent", "userId": "bench", "sessionId": f"s{number}"}
    return Request("/run_sse", json.dumps({**names, "newMessage": message, "streaming": True}).encode())


def _adk_session(number: int) -> Request:
    return Request(f"/apps/agent/users/bench/sessions/s{number}", b"{}")


NATIVE = "/v1/runs"
ADK = Front(_adk, b'"partial":true', _adk_session)
FRONTS = {NATIVE: Front(_native, b"event: text.delta"), "ADK: /run_sse": ADK}


async def _ask(server: Server, request: Request, marker: bytes) -> int:
    """How many tokens came."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(post(request.path, request.body, close=True))
    seen, rest = 0, b""
    while data := await reader.read(65_536):
        rest += data
        seen += rest.count(marker)
        rest = rest[-len(marker) + 1 :]
    writer.close()
    return seen


async def _prepare(server: Server, front: Front, clients: int) -> None:
    if front.before is not None:
        for number in range(clients):
            await _ask(server, front.before(number), b" ")


async def _read(server: Server, front: Front, clients: int) -> int:
    async def one(number: int) -> int:
        await asyncio.sleep(number * GAP / clients / 1e3)
        return await _ask(server, front.request(number), front.marker)

    return sum(await asyncio.gather(*(one(number) for number in range(clients))))


def cpu_per_token(server: Server, front: Front, clients: int, tokens: int, loop: str) -> float:
    """Microseconds of the server's CPU for each token of as many streams at once."""
    on_loop(_prepare(server, front, clients), loop)
    before = server.cpu()
    seen = on_loop(_read(server, front, clients), loop)
    spent = server.cpu() - before
    if seen != clients * tokens:
        raise AssertionError(f"{seen} tokens arrived, {clients * tokens} were sent")
    return spent / seen * 1e6


def measure_fronts(options: Options) -> Table:
    tokens = 60 if options.quick else 200

    def one(name: str) -> float:
        with Wire.start() as wire, serving("halter", wire.url(f"steady({tokens},{GAP})", tag="fronts")) as server:
            return cpu_per_token(server, FRONTS[name], CLIENTS, tokens, options.loop)

    found = interleaved("fronts", options.rounds, list(FRONTS), one)
    against = {name: ratios(values, found[NATIVE]) for name, values in found.items()}
    return Table(
        title="The fronts of the server",
        about=f"{CLIENTS} clients at once, {1000 // GAP} tokens/s each, {tokens} tokens, from a provider behind the "
        "server. CPU is the server process's.",
        columns=("", "µs of CPU per token (min–max)", f"× {NATIVE}"),
        rows=tuple((name, spread(values), spread(against[name], 2)) for name, values in found.items()),
        lines=tuple(
            Line(f"{name} / {NATIVE}", median(values), 1.5, " ×") for name, values in against.items() if name != NATIVE
        ),
    )
