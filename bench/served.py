"""What the server costs: CPU per token and added latency for 200 clients, stops over HTTP, memory of a stream."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from bench.child import ROOT, on_loop
from bench.peers import BODY, PROMPT
from bench.rounds import Options, interleaved
from bench.servers import APPS
from bench.stop import allow_files
from bench.table import Line, Table, percentile, ratios, spread
from halter.proof.wire import Wire

CLIENTS = 200
GAP = 50  # milliseconds between two tokens of a stream
STOPS = 200
IDLE = 1_000
NGINX = shutil.which("nginx") or ("/usr/sbin/nginx" if Path("/usr/sbin/nginx").exists() else None)
START = json.dumps({"agent": "agent", "input": PROMPT, "stream": True}).encode()
# Halter's server asked in the words of other clients: path, body, and what each token's frame begins with.
FRONTS: dict[str, tuple[str, bytes, bytes]] = {
    "halter, OpenAI chat": (
        "/v1/chat/completions",
        json.dumps({"model": "agent", "messages": [{"role": "user", "content": PROMPT}], "stream": True}).encode(),
        b'"delta":{"content":"t',
    ),
    "halter, OpenAI Responses": (
        "/v1/responses",
        json.dumps({"model": "agent", "input": PROMPT, "stream": True, "store": False}).encode(),
        b"event: response.output_text.delta",
    ),
    "halter, AI SDK": ("/v1/runs?format=ai-sdk", START, b'{"type":"text-delta"'),
    "halter, AG-UI": ("/v1/runs?format=ag-ui", START, b'{"type":"TEXT_MESSAGE_CONTENT"'),
}
TICKS = os.sysconf("SC_CLK_TCK")
NEVER = 1e9


# --- the server under test ----------------------------------------------------------------------------------


class Server:
    """A server in a process of its own. `marker`: what each token's frame begins with."""

    def __init__(self, pid: int, port: int, path: str, body: bytes, marker: bytes) -> None:
        self.pid = pid
        self.port = port
        self.path = path
        self.body = body
        self.marker = marker

    def cpu(self) -> float:
        """Seconds of CPU, of the process and its children."""
        return sum(_cpu_of(pid) for pid in (self.pid, *_children(self.pid)))

    def resident(self) -> float:
        """KiB."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith("VmRSS")))


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in found]


@contextmanager
def serving(name: str, provider: str) -> Generator[Server]:
    if name == "nginx":
        with _nginx(provider) as server:
            yield server
        return
    marker = b"event: text.delta" if name == "halter" else b"data: t"
    path, body, marker = FRONTS.get(name, ("/v1/runs", START, marker))
    command = [sys.executable, "-m", "bench.servers", "halter" if name in FRONTS else name, provider]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        until_it_answers(port)
        yield Server(process.pid, port, path, body, marker)
    finally:
        process.kill()
        process.communicate()


@contextmanager
def _nginx(provider: str) -> Generator[Server]:
    """nginx in front of the provider: the least that anything in between can cost."""
    assert NGINX is not None
    target = urlsplit(provider)
    with tempfile.TemporaryDirectory() as place:
        free = _free_port()
        Path(place, "nginx.conf").write_text(
            f"daemon off; worker_processes 1; pid {place}/pid; error_log {place}/error.log;\n"
            "events { worker_connections 4096; }\n"
            f"http {{ access_log off; client_body_temp_path {place}/b; proxy_temp_path {place}/p;\n"
            f"fastcgi_temp_path {place}/f; uwsgi_temp_path {place}/u; scgi_temp_path {place}/s;\n"
            f"server {{ listen 127.0.0.1:{free}; location / {{ proxy_pass http://{target.netloc};\n"
            "proxy_http_version 1.1; proxy_buffering off; } } }\n"
        )
        process = subprocess.Popen([NGINX, "-p", place, "-c", f"{place}/nginx.conf"], stderr=subprocess.DEVNULL)
        try:
            until_it_answers(free)
            yield Server(process.pid, free, target.path + "/chat/completions", BODY, b'"content":"t')
        finally:
            process.terminate()
            process.wait(10)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def until_it_answers(port: int) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
                if connection.recv(100):
                    return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError("the server did not start")


# --- its clients --------------------------------------------------------------------------------------------


def post(path: str, body: bytes, *, close: bool) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    head += f"Connection: {'close' if close else 'keep-alive'}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def _read(server: Server, number: int) -> list[float]:
    """The instants at which a client has each token of one answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 20)
    writer.write(post(server.path, server.body, close=True))
    arrived: list[float] = []
    rest = b""
    while data := await reader.read(65_536):
        now = time.monotonic()
        rest += data
        arrived += [now] * rest.count(server.marker)
        rest = rest[-len(server.marker) + 1 :]
    writer.close()
    return arrived


async def _all(server: Server) -> list[list[float]]:
    async def later(number: int) -> list[float]:
        await asyncio.sleep(number * GAP / CLIENTS / 1e3)
        return await _read(server, number)

    return await asyncio.gather(*(later(number) for number in range(CLIENTS)))


def _relayed(name: str, tokens: int, loop: str) -> tuple[float, float, float]:
    """Microseconds of CPU a token, and milliseconds that the server adds: p50, p99."""
    with Wire.start() as wire:
        with serving(name, wire.url(f"steady({tokens},{GAP})", tag="served")) as server:
            before = server.cpu()
            arrived = on_loop(_all(server), loop)
            spent = server.cpu() - before
        records = wire.requests("served")
    count = sum(map(len, arrived))
    if count != CLIENTS * tokens:
        raise AssertionError(f"{name}: {count} tokens arrived, {CLIENTS * tokens} were sent")
    # Streams begin one after the other: the n-th answer to begin is the n-th request.
    arrived.sort(key=lambda times: times[0])
    sent = sorted((record.token_times for record in records), key=lambda times: times[0])
    pairs = ((at, was) for got, gave in zip(arrived, sent, strict=True) for at, was in zip(got, gave, strict=True))
    added = [(at - was) * 1e3 for at, was in pairs]
    return spent / count * 1e6, percentile(added, 50), percentile(added, 99)


# --- measured -----------------------------------------------------------------------------------------------


def measure_served(options: Options) -> Table:
    tokens = 60 if options.quick else 200
    names = [*APPS, *FRONTS, *(["nginx"] if NGINX else [])]
    found = interleaved("served", options.rounds, names, lambda name: _relayed(name, tokens, options.loop))
    cpu = {name: [each[0] for each in values] for name, values in found.items()}
    rows = [
        (
            name,
            spread(cpu[name]),
            spread(ratios(cpu[name], cpu["halter"]), 2),
            spread([each[1] for each in found[name]], 2),
            spread([each[2] for each in found[name]], 2),
        )
        for name in names
    ]
    return Table(
        title="Through the server, 200 clients",
        about=f"{CLIENTS} clients at once, {1000 // GAP} tokens/s each, {tokens} tokens, from a provider behind the "
        "server. CPU is the server process's. nginx relays the provider's own frames: the limit.",
        columns=("", "µs of CPU per token (min–max)", "× halter", "added, ms p50", "added, ms p99"),
        rows=tuple(rows),
        lines=(
            Line(
                "starlette + openai / halter",
                median(ratios(cpu["starlette + openai"], cpu["halter"])),
                5,
                " ×",
                at_least=True,
            ),
        ),
    )


async def _stop_one(server: Server, wire: Wire, number: int) -> float:
    """Milliseconds from the first byte of the cancel request to the provider seeing the connection close."""
    id = f"stop-{number}"
    body = json.dumps({"agent": "agent", "input": PROMPT, "stream": True, "id": id}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    control, orders = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(post("/v1/runs", body, close=True))
    await reader.readuntil(server.marker)
    await asyncio.sleep(0.02)
    request = post(f"/v1/runs/{id}/cancel", b"{}", close=True)
    before = time.monotonic()
    orders.write(request)
    await control.read()
    await reader.read()
    writer.close()
    orders.close()
    records = await asyncio.to_thread(wire.wait, "closed", tag="stops", count=number + 1, timeout=5)
    closed_at = max(record.closed_at or NEVER for record in records)
    return (closed_at - before) * 1e3


def measure_stops_over_http(options: Options) -> Table:
    count = 50 if options.quick else STOPS

    async def all(server: Server, wire: Wire) -> list[float]:
        return [await _stop_one(server, wire, number) for number in range(count)]

    with Wire.start() as wire, serving("halter", wire.url("steady(100000,10)", tag="stops")) as server:
        found = on_loop(all(server, wire), options.loop)
    p50, p99 = percentile(found, 50), percentile(found, 99)
    return Table(
        title="A stop over HTTP",
        about=f"{count} stops, one after the other: from the first byte of `POST …/cancel` to the provider seeing its "
        "connection close.",
        columns=("", "ms p50", "ms p99", "ms max"),
        rows=(("halter", f"{p50:.2f}", f"{p99:.2f}", f"{max(found):.2f}"),),
        lines=(Line("p50", p50, 2, " ms"), Line("p99", p99, 20, " ms")),
    )


async def _idle(server: Server) -> float:
    """KiB that each of `IDLE` stalled streams takes in the server."""

    async def open_one() -> asyncio.StreamWriter:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(post(server.path, server.body, close=True))
        await reader.readuntil(server.marker)
        return writer

    async def open_many(count: int) -> list[asyncio.StreamWriter]:
        found: list[asyncio.StreamWriter] = []
        while len(found) < count:
            found += await asyncio.gather(*(open_one() for _ in range(min(50, count - len(found)))))
        return found

    first = await open_many(50)
    before = server.resident()
    more = await open_many(IDLE)
    grown = server.resident() - before
    for writer in (*first, *more):
        writer.close()
    return grown / IDLE


def measure_idle_streams(options: Options) -> Table:
    allow_files()

    def one(name: str) -> float:
        with Wire.start() as wire, serving(name, wire.url("stall", tag="idle")) as server:
            return on_loop(_idle(server), options.loop)

    found = interleaved("idle streams", 1 if options.quick else min(3, options.rounds), list(APPS), one)
    return Table(
        title="Memory of a live stream in the server",
        about=f"{IDLE:,} streams that have stalled after a token, in one process: resident memory for each, with its "
        "request to the provider.",
        columns=("", "KiB (min–max)"),
        rows=tuple((name, spread(values)) for name, values in found.items()),
    )
