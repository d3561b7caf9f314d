"""Real proxies in front of a real server: the first token comes at once, and a client that left closes the provider.

nginx as Debian configures it with nothing but `proxy_pass`, nginx and HAProxy with the settings of docs/proxies.md.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from halter import Agent
from halter.testing.wire_probe import WireProbe

from ..bounds import T, assert_within
from .conftest import Serve, Served, frames_of

AgentOn = Callable[..., Agent]
PAGE = Path(__file__).parents[2] / "docs" / "proxies.md"
NOTICED = 1.0  # seconds
SILENT_MODES = ["steady(1000,10)", "stall", "no-headers"]

# What Debian's nginx.conf says, with every path in a directory of the test's own.
NGINX = """daemon off; {user} worker_processes 1; pid {directory}/pid; error_log {directory}/log;
events {{ worker_connections 768; }}
http {{
    sendfile on; tcp_nopush on; types_hash_max_size 2048; default_type application/octet-stream; gzip on;
    access_log off;
    client_body_temp_path {directory}/body; proxy_temp_path {directory}/proxy; fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi; scgi_temp_path {directory}/scgi;
    {extra}
    server {{ listen 127.0.0.1:{port}; {settings} }}
}}
"""
DEFAULTS = "location / { proxy_pass http://127.0.0.1:8000; }"


def documented(language: str, which: int = 0) -> str:
    """A block of settings from the docs."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[which]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def find_program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin")


class Proxy:
    """A running proxy."""

    def __init__(self, command: list[str], directory: Path, port: int) -> None:
        with (directory / "output").open("wb") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        self.served = Served(f"http://127.0.0.1:{port}")
        until = time.monotonic() + 10
        while True:
            try:
                self.served.connect().close()
                return
            except OSError:
                assert self._process.poll() is None, (directory / "output").read_text()
                assert time.monotonic() < until, (directory / "output").read_text()
                time.sleep(0.01)

    def close(self) -> None:
        self.served.client.close()
        self._process.terminate()
        self._process.wait(10)


def nginx(directory: Path, program: str, port: int, settings: str, extra: str = "") -> list[str]:
    user = "user root;" if os.geteuid() == 0 else ""
    text = NGINX.format(user=user, directory=directory, port=port, settings=settings, extra=extra)
    (directory / "nginx.conf").write_text(text)
    return [program, "-p", str(directory), "-e", str(directory / "log"), "-c", str(directory / "nginx.conf")]


def commands(kind: str, directory: Path, program: str, upstream: str, port: int) -> list[str]:
    host = upstream.removeprefix("http://")
    if kind == "nginx-defaults":
        return nginx(directory, program, port, DEFAULTS.replace("127.0.0.1:8000", host))
    if kind == "nginx":
        extra, settings = documented("nginx").split("\n\n", 1)
        return nginx(directory, program, port, settings.replace("127.0.0.1:8000", host), extra)
    text = documented("haproxy").replace("127.0.0.1:8000", host).replace(":80\n", f"127.0.0.1:{port}\n")
    (directory / "haproxy.cfg").write_text(text)
    return [program, "-db", "-f", str(directory / "haproxy.cfg")]


@pytest.fixture(params=["nginx-defaults", "nginx", "haproxy"])
def in_front(
    request: pytest.FixtureRequest, tmp_path: Path, require: Callable[[str, bool], None]
) -> Generator[Callable[[Served], Served]]:
    """`in_front(served)`: the same server, through a proxy."""
    name = request.param.partition("-")[0]
    program = find_program(name)
    require(name, program is not None)
    assert program is not None
    running: list[Proxy] = []

    def start(served: Served) -> Served:
        port = free_port()
        running.append(Proxy(commands(request.param, tmp_path, program, served.url, port), tmp_path, port))
        return running[-1].served

    yield start
    for proxy in running:
        proxy.close()


InFront = Callable[[Served], Served]


@pytest.mark.scenario("J83")
def test_the_first_token_is_at_the_client_at_once(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, in_front: InFront
) -> None:
    served = in_front(serve(agent_on("stall")))
    with served.stream(id="r") as frames:
        shown = next(frame for frame in frames if frame.event == "text.delta")
        late = time.monotonic() - _sent_at(wire)
        assert shown.data["text"] == "t0 "
        assert_within(T, late, "the first token")
        served.cancel("r")


def _sent_at(wire: WireProbe) -> float:
    """When the provider sent its first token."""
    record = wire.wait("token")[0]
    assert record.first_token_at is not None
    return record.first_token_at


@pytest.mark.scenario("J83")
@pytest.mark.parametrize("mode", SILENT_MODES)
def test_a_client_that_left_closes_the_provider(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, in_front: InFront, mode: str
) -> None:
    direct = serve(agent_on(mode))
    proxied = in_front(direct)
    data = json.dumps({"agent": "agent", "input": "Go.", "id": "r", "stream": True}).encode()
    head = b"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with proxied.connect() as connection:
        connection.sendall(head % len(data) + data)
        wire.wait("started" if mode == "no-headers" else "token")
        connection.recv(100)
    wire.assert_closed(NOTICED, since=time.monotonic())
    assert direct.until("r", "cancelled")["cancellation"]["reason"] == "client_disconnect"


@pytest.mark.scenario("J83")
def test_a_client_that_left_while_it_waited_closes_the_provider(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, in_front: InFront
) -> None:
    direct = serve(agent_on("stall"))
    proxied = in_front(direct)
    data = json.dumps({"agent": "agent", "input": "Go.", "id": "r"}).encode()
    head = b"POST /v1/runs?wait=30 HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with proxied.connect() as connection:
        connection.sendall(head.replace(b"Host: a", b"Host: 127.0.0.1") % len(data) + data)
        wire.wait("token")
    wire.assert_closed(NOTICED, since=time.monotonic())


@pytest.mark.scenario("J83")
def test_a_whole_stream_and_a_stop_pass_unchanged(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, in_front: InFront
) -> None:
    served = in_front(serve(agent_on("steady(100,2)")))
    with served.stream(id="r") as frames:
        found = list(frames)
    text = "".join(frame.data["text"] for frame in found if frame.event == "text.delta")
    assert text.split() == [f"t{number}" for number in range(100)]
    assert found[-1].event == "run.completed"
    with served.client.stream("GET", "/v1/runs/r/events", headers={"Last-Event-ID": found[5].id or ""}) as response:
        rest = list(frames_of(response))
    assert rest[-1].event == "run.completed"
    assert served.cancel("r").json()["effective"] is False
    over = {"Last-Event-ID": found[-1].id or ""}
    assert served.client.get("/v1/runs/r/events", headers=over).status_code == 204


def test_a_web_socket_passes_with_the_documented_settings(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, in_front: InFront, request: Any
) -> None:
    if "nginx-defaults" in request.node.name:
        pytest.skip("nginx needs settings for WebSockets")
    served = in_front(serve(agent_on("stall")))
    served.start(id="r")
    wire.wait("token")
    with connect(served.url.replace("http", "ws") + "/v1/runs/r/live") as live:
        assert json.loads(live.recv())["type"] == "snapshot"
        live.send('{"type": "cancel"}')
        rest = [json.loads(frame) for frame in live]
    assert rest[-1]["type"] == "run.cancelled"
    wire.assert_closed()


def test_the_proxy_and_the_server_are_both_reached(serve: Serve, agent_on: AgentOn, in_front: InFront) -> None:
    served = in_front(serve(agent_on()))
    assert httpx.get(f"{served.url}/readyz").status_code == 200
