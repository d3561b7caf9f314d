"""K95: what a server sends before it was asked is nobody's answer, and never becomes another request's."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from halter import Agent, RunResult
from halter.errors import ConnectionFailed
from halter.models import OpenAIChat, http
from halter.net.sockets import _Connector

pytestmark = [pytest.mark.scenario("K95"), pytest.mark.loops]


def answer(text: str, status: str = "200 OK") -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    body = json.dumps({"choices": [choice]}).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Server:
    """Raw sockets in threads: each request is answered by its own last words; `misbehave(connection, n)` follows the
    n-th answer of a connection, and precedes the first for 0."""

    def __init__(self, misbehave: Callable[[socket.socket, int], None]) -> None:
        self._misbehave = misbehave
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        self.connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        number = 0
        try:
            self._misbehave(connection, number)
            while (asked := _request(connection)) is not None:
                connection.sendall(answer(f"to {asked}"))
                number += 1
                self._misbehave(connection, number)
        except OSError:
            pass

    def close(self) -> None:
        for one in (self._listener, *self.connections):
            one.close()


def _request(connection: socket.socket) -> str | None:
    """The last message of the next request."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    (length,) = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")]
    while len(body) < length:
        body += connection.recv(65536)
    return json.loads(body)["messages"][-1]["content"]


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[socket.socket, int], None]], Server]]:
    servers: list[Server] = []

    def start(misbehave: Callable[[socket.socket, int], None]) -> Server:
        servers.append(Server(misbehave))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_backoff", lambda attempt: 0.01)


def agent_at(server: Server, *, max_retries: int = 0) -> Agent:
    return Agent(OpenAIChat("m", base_url=server.url, api_key="k", stream=False, max_retries=max_retries))


async def ask(agent: Agent, words: str) -> RunResult[str]:
    return await agent.run(words).finished()


async def test_an_answer_that_nobody_asked_for_ends_its_idle_connection(serve: Callable[..., Server]) -> None:
    sent = threading.Event()

    def one_more(connection: socket.socket, number: int) -> None:
        if number == 1 and len(server.connections) == 1:
            time.sleep(0.05)  # so that the connection is idle
            connection.sendall(answer("stale"))
            sent.set()

    server = serve(one_more)
    agent = agent_at(server)
    assert (await ask(agent, "a")).text == "to a"
    while not sent.is_set():  # noqa: ASYNC110 - another thread's
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    assert [(await ask(agent, words)).text for words in "bcd"] == ["to b", "to c", "to d"]
    assert len(server.connections) == 2


async def test_an_answer_that_the_loop_had_no_time_to_read_ends_its_connection(serve: Callable[..., Server]) -> None:
    """The loop was busy as it came: it waits in the kernel as the next request takes the connection."""
    sent = threading.Event()

    def one_more(connection: socket.socket, number: int) -> None:
        if number == 1 and len(server.connections) == 1:
            time.sleep(0.05)
            connection.sendall(answer("stale"))
            sent.set()

    server = serve(one_more)
    agent = agent_at(server)
    assert (await ask(agent, "a")).text == "to a"
    assert sent.wait(5)  # blocks the loop
    time.sleep(0.02)
    assert [(await ask(agent, words)).text for words in "bc"] == ["to b", "to c"]
    assert len(server.connections) == 2


async def test_two_answers_in_one_write_are_one_answer(serve: Callable[..., Server]) -> None:
    def at_once(connection: socket.socket, number: int) -> None:
        if number == 0:
            asked = _request(connection)
            connection.sendall(answer(f"to {asked}") + answer("stale"))

    server = serve(at_once)
    agent = agent_at(server)
    assert [(await ask(agent, words)).text for words in "abc"] == ["to a", "to b", "to c"]
    assert len(server.connections) == 3


async def test_the_beginning_of_another_answer_behind_one_ends_its_connection(serve: Callable[..., Server]) -> None:
    def torn(connection: socket.socket, number: int) -> None:
        if number == 0 and len(server.connections) == 1:
            asked = _request(connection)
            stale = answer("stale")
            connection.sendall(answer(f"to {asked}") + stale[:30])
            time.sleep(0.1)
            connection.sendall(stale[30:])

    server = serve(torn)
    agent = agent_at(server)
    assert (await ask(agent, "a")).text == "to a"
    await asyncio.sleep(0.2)
    assert [(await ask(agent, words)).text for words in "bc"] == ["to b", "to c"]


@pytest.fixture(params=["_create_connection", "connect"])
def slow_to_ask(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has spoken by the time at which a new connection serves its request."""
    real = getattr(_Connector, request.param)

    async def slow(*args: Any, **options: Any) -> Any:
        connected = await real(*args, **options)
        await asyncio.sleep(0.1)
        return connected

    monkeypatch.setattr(_Connector, request.param, slow)


@pytest.mark.usefixtures("slow_to_ask")
async def test_an_answer_before_the_request_is_an_error(serve: Callable[..., Server]) -> None:
    """On a connection that is new: whatever else that server says, it is no answer."""
    server = serve(lambda connection, number: connection.sendall(answer("early")) if number == 0 else None)
    result = await ask(agent_at(server), "a")
    assert isinstance(result.error, ConnectionFailed)
    assert "before it was asked" in str(result.error)


@pytest.mark.usefixtures("slow_to_ask")
async def test_the_attempt_after_a_server_that_spoke_first_has_another_connection(
    serve: Callable[..., Server],
) -> None:
    def early(connection: socket.socket, number: int) -> None:
        if number == 0 and len(server.connections) == 1:
            connection.sendall(answer("early"))

    server = serve(early)
    assert (await ask(agent_at(server, max_retries=2), "a")).text == "to a"


@pytest.mark.parametrize("loop_is_busy", [False, True], ids=["read", "still in the kernel"])
async def test_a_kept_connection_that_speaks_as_it_is_taken_answers_nobody(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, *, loop_is_busy: bool
) -> None:
    """Between the pool and the request: silent as it was taken, and not as it was written to."""
    taken, sent = threading.Event(), threading.Event()

    def as_it_is_taken(connection: socket.socket, number: int) -> None:
        if number == 1 and taken.wait(5):
            connection.sendall(answer("stale"))
            sent.set()

    agent = agent_at(serve(as_it_is_taken))
    assert (await ask(agent, "a")).text == "to a"
    real = _Connector.connect

    async def slow(*args: Any, **options: Any) -> Any:
        connection = await real(*args, **options)
        taken.set()
        assert sent.wait(5)  # blocks the loop
        if not loop_is_busy:
            await asyncio.sleep(0.05)
        return connection

    monkeypatch.setattr(_Connector, "connect", slow)
    result = await ask(agent, "b")
    assert isinstance(result.error, ConnectionFailed)
    assert "before it was asked" in str(result.error)


async def test_a_time_out_that_a_server_tells_on_an_idle_connection_is_not_the_next_answer(
    serve: Callable[..., Server],
) -> None:
    """As some proxies do, before they close it."""

    def bored(connection: socket.socket, number: int) -> None:
        if number == 1 and len(server.connections) == 1:
            time.sleep(0.03)
            connection.sendall(answer("bored", "408 Request Timeout"))
            connection.shutdown(socket.SHUT_RDWR)

    server = serve(bored)
    agent = agent_at(server)
    assert (await ask(agent, "a")).text == "to a"
    await asyncio.sleep(0.1)
    assert (await ask(agent, "b")).text == "to b"


async def test_connections_that_behave_are_kept(serve: Callable[..., Server]) -> None:
    server = serve(lambda connection, number: None)
    agent = agent_at(server)
    for words in "abcdef":
        assert (await ask(agent, words)).text == f"to {words}"
    assert len(server.connections) == 1
