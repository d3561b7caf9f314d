"""A server on a real socket, in a thread of its own, and clients of it."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import uvicorn

from halter import Agent
from halter.core.runnable import Runnable
from halter.models.openai import OpenAIChat
from halter.server import create_app
from halter.server.http_protocol import PatientProtocol, listen_on
from halter.server.websocket_protocol import GuardedSockets
from halter.sessions import Sessions
from halter.testing.wire_probe import WireProbe


class Frame:
    """One frame of an event stream."""

    def __init__(self, lines: list[str]) -> None:
        fields = dict(line.split(": ", 1) for line in lines if not line.startswith(":"))
        self.id = fields.get("id")
        self.event = fields.get("event")
        self.data: Any = json.loads(fields["data"]) if "data" in fields else None

    @property
    def seq(self) -> int:
        assert self.id is not None
        return int(self.id.rpartition(".")[2])

    def __repr__(self) -> str:
        return f"<Frame {self.id} {self.event}>"


def frames_of(response: httpx.Response) -> Iterator[Frame]:
    """The frames as they come; comments are passed over."""
    lines: list[str] = []
    for line in response.iter_lines():
        if line:
            lines.append(line)
        elif lines:
            if any(not line.startswith(":") for line in lines):
                yield Frame(lines)
            lines = []


class Served:
    """A running server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = httpx.Client(base_url=url, timeout=20, verify=False)  # reads no certificates

    def start(self, agent: str = "agent", **fields: Any) -> httpx.Response:
        return self.client.post("/v1/runs", json={"agent": agent, "input": "Go.", **fields})

    def run(self, id: str) -> dict[str, Any]:
        response = self.client.get(f"/v1/runs/{id}")
        assert response.status_code == 200, response.text
        return response.json()

    @contextmanager
    def events(self, id: str, **headers: str) -> Generator[Iterator[Frame]]:
        with self.client.stream("GET", f"/v1/runs/{id}/events", headers=headers) as response:
            assert response.status_code == 200, response.read()
            yield frames_of(response)

    @contextmanager
    def stream(self, **fields: Any) -> Generator[Iterator[Frame]]:
        body = {"agent": "agent", "input": "Go.", "stream": True, **fields}
        with self.client.stream("POST", "/v1/runs", json=body) as response:
            assert response.status_code == 200, response.read()
            yield frames_of(response)

    def cancel(self, id: str, wait: float = 5, **fields: Any) -> httpx.Response:
        return self.client.post(f"/v1/runs/{id}/cancel?wait={wait}", json=fields)

    def until(self, id: str, *statuses: str, within: float = 5.0) -> dict[str, Any]:
        """The run once it has one of these statuses."""
        until = time.monotonic() + within
        while (found := self.run(id))["status"] not in statuses:
            assert time.monotonic() < until, found
            time.sleep(0.01)
        return found

    def connect(self) -> socket.socket:
        """A bare connection."""
        host, _, port = self.url.removeprefix("http://").partition(":")
        return socket.create_connection((host, int(port)), timeout=10)


Serve = Callable[..., Served]


@pytest.fixture
def serve() -> Generator[Serve]:
    """`serve(runnables, **options of create_app)`: a server that ends with the test."""
    with serving() as start:
        yield start


@contextmanager
def serving() -> Generator[Serve]:
    """As `serve`, for as long as the block lasts: for a server that several tests share."""
    running: list[tuple[uvicorn.Server, threading.Thread, Served]] = []

    def start(runnables: Runnable[Any] | list[Runnable[Any]], **options: Any) -> Served:
        options.setdefault("sessions", Sessions())
        options.setdefault("grace", 0.0)
        app = create_app(runnables, **options)
        return serve_app(app)

    def serve_app(app: Any) -> Served:
        listening = listen_on("127.0.0.1", 0)
        config = uvicorn.Config(app, http=PatientProtocol, ws=GuardedSockets, log_config=None, access_log=False)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        served = Served(f"http://127.0.0.1:{listening.getsockname()[1]}")
        running.append((server, thread, served))
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.005)
        return served

    start.app = serve_app  # type: ignore[attr-defined]
    try:
        yield start
    finally:
        for server, thread, served in running:
            _end(server, thread, served)


def _end(server: uvicorn.Server, thread: threading.Thread, served: Served) -> None:
    try:
        served.client.post("/v1/cancel?wait=5", json={"all": True})
    except httpx.HTTPError:
        pass  # it may have ended already
    served.client.close()
    server.should_exit = True
    thread.join(10)
    if thread.is_alive():
        server.force_exit = True
        thread.join(10)
    assert not thread.is_alive(), "the server did not end"


@pytest.fixture
def agent_on(wire: WireProbe) -> Callable[..., Agent]:
    """`agent_on(mode, **options)`: an agent whose provider behaves like this, and keeps a record."""

    def make(mode: str = "steady(200,5)", name: str = "agent", **options: Any) -> Agent:
        return Agent(OpenAIChat("m", base_url=wire.url(mode), api_key=""), name=name, **options)

    return make
