"""Connections that are slow, silent, vanished or wrong by the thousand: others are served, and memory stays flat."""

from __future__ import annotations

import gc
import json
import random
import resource
import socket
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import pytest
from websockets.sync.client import connect

from halter import Agent
from halter.models.scripted import Scripted
from halter.server import http_protocol
from halter.testing.wire_probe import WireProbe

from ..bounds import assert_within
from .conftest import Serve, Served

AgentOn = Callable[..., Agent]
SERVED = 2.0  # seconds in which others are answered; clients and server share a process here
UPGRADE = (
    b"GET /v1/runs/r/live HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
ASK = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.fixture
def served(serve: Serve) -> Served:
    return serve(Agent(Scripted("Hi."), name="agent"))


def assert_others_are_served(served: Served, within: float = SERVED) -> None:
    before = time.monotonic()
    with served.connect() as connection:
        connection.sendall(ASK)
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    assert_within(within, time.monotonic() - before, "an answer to somebody else")


def trickle(connection: socket.socket, data: bytes, within: float) -> float:
    """Sends the bytes one by one until the server closes the connection; after how many seconds it did."""
    began = time.monotonic()
    connection.settimeout(0.02)
    for at in range(len(data)):
        try:
            connection.send(data[at : at + 1])
            if connection.recv(1000) == b"":
                return time.monotonic() - began
        except TimeoutError:
            pass
        except OSError:
            return time.monotonic() - began
        assert time.monotonic() - began < within, "the connection is still open"
    raise AssertionError("all bytes were taken")


# --- slow ---------------------------------------------------------------------------------------------------


def test_headers_that_come_byte_by_byte_are_given_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "REQUEST_PATIENCE", 0.4)
    with served.connect() as connection:
        assert trickle(connection, ASK[:-2] + b"X: " + b"y" * 1000, within=5) >= 0.3
    assert_others_are_served(served)


def test_a_body_that_comes_byte_by_byte_is_given_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "BODY_PATIENCE", 0.4)
    head = (
        b"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 9000\r\n\r\n"
    )
    with served.connect() as connection:
        connection.sendall(head)
        assert trickle(connection, b" " * 1000, within=5) >= 0.3
    assert_others_are_served(served)


def test_a_chunked_body_without_an_end_is_given_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "BODY_PATIENCE", 0.4)
    head = b"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    with served.connect() as connection:
        connection.sendall(head)
        assert trickle(connection, b"1\r\n \r\n" * 200, within=5) >= 0.3


def test_empty_lines_between_requests_do_not_keep_a_connection(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "REQUEST_PATIENCE", 0.4)
    with served.connect() as connection:
        connection.sendall(ASK)
        assert connection.recv(1000)
        assert trickle(connection, b"\r\n" * 1000, within=5) >= 0.3


def test_a_connection_that_says_nothing_is_given_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "REQUEST_PATIENCE", 0.3)
    with served.connect() as connection:
        assert connection.recv(10) == b""


def test_patience_is_for_requests_not_for_answers(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream may last, and the connection that it came on serves the next request."""
    monkeypatch.setattr(http_protocol, "REQUEST_PATIENCE", 0.2)
    monkeypatch.setattr(http_protocol, "BODY_PATIENCE", 0.2)
    served = serve(agent_on("steady(100,8)"))
    with served.stream(id="r") as frames:
        assert list(frames)[-1].event == "run.completed"
    assert served.run("r")["status"] == "completed"
    wire.requests()


# --- vanished -----------------------------------------------------------------------------------------------


def test_a_peer_that_vanished_is_found_by_the_system() -> None:
    with http_protocol.listen_on("127.0.0.1", 0) as listening:
        with socket.create_connection(listening.getsockname()):
            accepted, _ = listening.accept()
            with accepted:
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == http_protocol.SILENT_FOR
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == http_protocol.UNANSWERED


TCP_REPAIR = 19  # a socket in this mode is closed without a packet: its peer hears nothing


def test_a_client_that_vanished_without_a_word_stops_its_run(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [(level, name, 1 if name == "TCP_KEEPIDLE" else value) for level, name, value in http_protocol._OPTIONS]
    monkeypatch.setattr(http_protocol, "_OPTIONS", options)
    served = serve(agent_on("stall"))
    data = json.dumps({"agent": "agent", "input": "Go.", "id": "r", "stream": True}).encode()
    head = b"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    connection = served.connect()
    connection.sendall(head % len(data) + data)
    wire.wait("token")
    time.sleep(0.1)  # what was sent is acknowledged
    try:
        connection.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    except PermissionError:
        connection.close()
        pytest.skip("needs CAP_NET_ADMIN")
    connection.close()
    wire.assert_closed(4.0)
    assert served.until("r", "cancelled")["cancellation"]["reason"] == "client_disconnect"


# --- many ---------------------------------------------------------------------------------------------------


@contextmanager
def many_files(count: int) -> Generator[None]:
    """Room for so many descriptors, as far as this machine allows; else the test is skipped."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"needs {count} open files, and {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def crowd(served: Served, count: int, say: Callable[[int], bytes]) -> None:
    """So many connections at once, each with a beginning of its own; others are served all the same."""
    connections: list[socket.socket] = []
    try:
        for number in range(count):
            connections.append(connection := served.connect())
            connection.sendall(say(number))
            if number % 500 == 499:
                assert_others_are_served(served)
        assert_others_are_served(served)
        before = time.monotonic()
        answer = served.client.post("/v1/runs?wait=5", json={"agent": "agent", "input": "Go."})
        assert answer.json()["status"] == "completed"
        assert_within(SERVED, time.monotonic() - before, "a run beside them")
    finally:
        for connection in connections:
            connection.close()


def beginning(number: int) -> bytes:
    """Nothing, half a request, a whole one, or half a body."""
    return (b"", ASK[:20], ASK, b"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{")[
        number % 4
    ]


def test_hundreds_of_idle_and_half_open_connections_delay_nobody(served: Served) -> None:
    with many_files(2_000):
        crowd(served, 800, beginning)


@pytest.mark.soak
def test_ten_thousand_idle_and_half_open_connections_delay_nobody(served: Served) -> None:
    with many_files(20_000):  # both ends are in this process
        crowd(served, 9_500, beginning)


# --- wrong --------------------------------------------------------------------------------------------------


def frame(random_: random.Random) -> str | bytes:
    """Something that a client might send by mistake, or on purpose."""
    kind = random_.randrange(6)
    if kind == 0:
        return random_.randbytes(random_.randrange(200))
    if kind == 1:
        return json.dumps(random_.choice([None, [], 7, "cancel", {"type": 7}, {"type": "cancel", "mode": "?"}]))
    if kind == 2:
        return "[" * random_.randrange(5_000)
    if kind == 3:
        return json.dumps({"type": "message", "text": ""})
    if kind == 4:
        return json.dumps({"type": "input", "request_id": "x" * random_.randrange(2, 2_000), "answer": 1})
    return '{"type": "ca\\ud800ncel", "mode": 1e999}'


def send_frames(served: Served, count: int) -> None:
    random_ = random.Random(7)
    with connect(served.url.replace("http", "ws") + "/v1/runs/r/live") as live:
        assert json.loads(live.recv())["type"] == "snapshot"
        for _ in range(count):
            live.send(frame(random_))
            assert json.loads(live.recv(10))["type"] == "error"


def resident() -> int:
    """KiB of memory that this process, and so the server in it, has."""
    gc.collect()
    with open("/proc/self/statm") as stat:
        return int(stat.read().split()[1]) * resource.getpagesize() // 1024


@pytest.mark.scenario("G72")
@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.soak)])
def test_malformed_frames_by_the_thousand_are_answered_and_nothing_grows(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, count: int
) -> None:
    served = serve(agent_on("stall"))
    served.start(id="r")
    wire.wait("token")
    send_frames(served, 200)
    before = resident()
    send_frames(served, count)
    assert resident() - before < 20 * 1024
    assert served.run("r")["status"] == "running"
    served.cancel("r")
    wire.assert_closed()


@pytest.mark.parametrize(
    "frame",
    [b"\x81\x81\0\0\0\0{", b"\x89\x80\0\0\0\0", b"\x00\x80\0\0\0\0"],
    ids=["messages", "pings", "fragments"],
)
def test_a_flood_of_frames_ends_its_connection_with_a_reason_and_delays_nobody(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, frame: bytes
) -> None:
    served = serve(agent_on("stall"))
    served.start(id="r", on_disconnect="cancel")
    wire.wait("token")
    with served.connect() as connection:
        connection.sendall(UPGRADE)
        assert connection.recv(12) == b"HTTP/1.1 101"
        before = resident()
        connection.sendall(b"\x01\x80\0\0\0\0" if frame[0] == 0 else b"")  # a message that its fragments continue
        for _ in range(5):
            try:
                connection.sendall(frame * 40_000)
            except OSError:
                break  # closed already
            assert_others_are_served(served, within=0.6)
        assert resident() - before < 50 * 1024
        assert b"\x03\xf0more than" in _all_of(connection)  # 1008, and why
    wire.assert_closed(2.0)


def _all_of(connection: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    found = b""
    try:
        while data := connection.recv(65_536):
            found += data
    except OSError:
        pass
    return found


def test_frames_that_break_the_protocol_end_their_connection_alone(
    serve: Serve, agent_on: AgentOn, wire: WireProbe
) -> None:
    served = serve(agent_on("stall"))
    served.start(id="r")
    wire.wait("token")
    random_ = random.Random(3)
    broken: list[bytes] = [
        b"\xff" * 20,
        b"\x81\x01{",
        b"\x81\xff" + b"\xff" * 8,
        b"\x83\x80\0\0\0\0",
        b"\xc1\x80\0\0\0\0",
    ]
    for data in [*broken, *(random_.randbytes(40) for _ in range(60))]:
        with served.connect() as connection:
            connection.sendall(UPGRADE)
            assert connection.recv(12) == b"HTTP/1.1 101"
            connection.sendall(data)
    assert served.run("r")["status"] == "running"
    assert_others_are_served(served)
    served.cancel("r")


def test_malformed_requests_by_the_thousand_are_refused_and_nothing_grows(served: Served) -> None:
    random_ = random.Random(5)
    garbage(served, random_, 300)
    before = resident()
    garbage(served, random_, 1_500)
    assert resident() - before < 20 * 1024
    assert_others_are_served(served)


def garbage(served: Served, random_: random.Random, count: int) -> None:
    for _ in range(count):
        with served.connect() as connection:
            connection.sendall(random_.choice(_GARBAGE)(random_))
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(1_000)
            assert not answer.startswith(b"HTTP/1.1 5"), answer


_GARBAGE: list[Callable[[random.Random], bytes]] = [
    lambda random_: random_.randbytes(random_.randrange(1, 300)),
    lambda random_: b"GET /" + random_.randbytes(20) + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    lambda _: b"GET /v1/runs/%ff%fe HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    lambda _: b"GET /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
    lambda _: b"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
    lambda _: b"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
    lambda _: b"POST /v1/runs HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
    lambda _: b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * 250 + b"\r\n",
    lambda _: b"GET http://[::1/healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://[\r\n\r\n",
    lambda _: b"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://[\r\nContent-Length: 2\r\n\r\n{}",
]
