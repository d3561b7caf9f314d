"""Bad input is a 4xx problem and starts nothing."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import socket
import threading
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest
from fastapi.routing import APIRoute

from halter import Agent
from halter.models.scripted import Scripted
from halter.server import create_app
from halter.server.app import ROUTERS

from .conftest import Serve, Served, serving


@pytest.fixture
def served(serve: Serve) -> Served:
    return serve(Agent(Scripted("Hi."), name="agent"))


@pytest.fixture(scope="module")
def shared() -> Generator[Served]:
    """One server for the requests that start nothing."""
    with serving() as serve:
        yield serve(Agent(Scripted("Hi."), name="agent"))


@pytest.mark.scenario("G73")
@pytest.mark.parametrize(
    "value", ['"\\ud800"', '{"\\uDFFF": 1}', "[" * 101 + "]" * 101, '{"a":' * 101 + "1" + "}" * 101]
)
def test_text_that_is_not_unicode_and_too_many_levels_are_refused_before_they_are_stored(
    served: Served, value: str
) -> None:
    for path, body in (
        ("/v1/runs", '{"agent": "agent", "id": "r", "input": %s}'),
        ("/v1/sessions", '{"id": "s", "metadata": {"a": %s}}'),
        ("/apps/agent/users/u/sessions/s", '{"a": %s}'),
    ):
        answer = served.client.post(path, content=body % value, headers={"Content-Type": "application/json"})
        assert answer.status_code == 422, (path, answer.text)
    assert served.client.get("/v1/runs").json()["runs"] == []
    assert served.client.get("/v1/sessions").json()["sessions"] == []
    whole = '{"id": "s", "metadata": {"a": "\\ud83d\\ude00", "b": %s}}' % ("[" * 90 + "]" * 90)
    made = served.client.post("/v1/sessions", content=whole, headers={"Content-Type": "application/json"})
    assert (made.status_code, made.json()["metadata"]["a"]) == (201, "\U0001f600")


@pytest.mark.scenario("G73")
@pytest.mark.parametrize(
    "body",
    [
        {"agent": "nobody", "input": "Go."},
        {"agent": 7, "input": "Go."},
        {"input": "Go."},
        {"agent": "agent", "input": ""},
        {"agent": "agent", "input": {"a": 1}},
        {"agent": "agent", "input": "Go.", "timeout": -1},
        {"agent": "agent", "input": "Go.", "timeout": "soon"},
        {"agent": "agent", "input": "Go.", "linger": -1},
        {"agent": "agent", "input": "Go.", "id": "a:b"},
        {"agent": "agent", "input": "Go.", "id": "a/b"},
        {"agent": "agent", "input": "Go.", "id": ".."},
        {"agent": "agent", "input": "Go.", "id": "x" * 200},
        {"agent": "agent", "input": "Go.", "session": "other/chat"},
        {"agent": "agent", "input": "Go.", "on_busy": "shrug"},
        {"agent": "agent", "input": "Go.", "budget": {"tokens": -1}},
        {"agent": "agent", "input": "Go.", "budget": {"dollars": 1}},
        {"agent": "agent", "input": "Go.", "tags": ["halter.tenant=other"]},
        {"agent": "agent", "input": "Go.", "tags": "one"},
        {"agent": "agent", "input": "Go.", "actor": "root"},
        ["agent"],
        "agent",
        None,
    ],
    ids=repr,
)
def test_a_bad_start_is_a_problem_and_starts_nothing(shared: Served, body: Any) -> None:
    answer = shared.client.post("/v1/runs", json=body)
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == 422
    assert problem["detail"]
    assert shared.client.get("/v1/runs").json()["runs"] == []


@pytest.mark.scenario("G73")
@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [(b"{", 0, 400), (b'{"agent": "\xff"}', 0, 400), (b"x" * 10_000_000, 0, 413), (b"{}", 10_000, 431)],
    ids=["half", "no unicode", "10 MB", "10,000 headers"],
)
def test_a_bad_request_is_a_problem(shared: Served, content: bytes, headers: int, status: int) -> None:
    """Sent as bytes: the time that httpx takes grows with the square of the number of headers."""
    fields = ["Host: 127.0.0.1", "Content-Type: application/json", f"Content-Length: {len(content)}"]
    fields += [f"x-{number}: 1" for number in range(headers)]
    with shared.connect() as connection:
        sending = threading.Thread(target=_send, args=(connection, "\r\n".join(fields).encode(), content))
        sending.start()
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        sending.join(10)
        assert (answer.status, answer.getheader("content-type")) == (status, "application/problem+json")
    assert shared.client.get("/healthz").json()["live_runs"] == 0


def _send(connection: socket.socket, head: bytes, content: bytes) -> None:
    with contextlib.suppress(OSError):  # the server answers before it has read all of it
        connection.sendall(b"POST /v1/runs HTTP/1.1\r\n" + head + b"\r\n\r\n" + content)


@pytest.mark.scenario("G73")
def test_a_body_of_unknown_length_ends_where_it_is_too_large(served: Served) -> None:
    answer = served.client.post("/v1/runs", content=iter([b"x" * 1_000_000] * 10))
    assert answer.status_code == 413


@pytest.mark.scenario("G73")
def test_ten_thousand_malformed_requests_leave_the_server_as_it_was(served: Served) -> None:
    dice = random.Random(7)
    good = b'POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 31\r\n\r\n{"agent": "agent", "input": "x"}'
    for _ in range(100):
        with served.connect() as connection:
            for _ in range(100):
                data = bytearray(good)
                for _ in range(dice.randint(1, 6)):
                    data[dice.randrange(len(data))] = dice.randrange(256)
                try:
                    connection.sendall(data[: dice.randint(1, len(data))])
                except OSError:
                    break
    assert served.client.get("/healthz").status_code == 200


@pytest.mark.scenario("J86")
def test_no_two_routes_answer_one_method_and_path_and_each_is_documented() -> None:
    app = create_app(Agent(Scripted("Hi."), name="agent"))
    routes = [route for make in ROUTERS for route in make(app.state.halter).routes]
    ours = [route for route in routes if isinstance(route, APIRoute)]
    pairs = [(method, route.path) for route in ours for method in route.methods]
    assert [pair for pair, times in Counter(pairs).items() if times > 1] == []
    # Other people's protocols have documents of their own.
    to_document = {(method, route.path) for route in ours if route.include_in_schema for method in route.methods}
    documented = {(method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods}
    assert to_document == documented


@pytest.mark.scenario("J86")
def test_every_documented_route_is_reachable(served: Served) -> None:
    document = served.client.get("/openapi.json").json()
    for path, methods in document["paths"].items():
        for method in methods:
            url = path.replace("{id}", "nobody")
            body = json.dumps({"to": 0, "request_id": "x", "text": "x"})
            with served.client.stream(method, url, content=body) as answer:  # some streams have no end
                text = b"" if answer.is_success else answer.read()
                assert b'"code":"not_found"' not in text, (method, path)
                assert answer.status_code != 405, (method, path)
                assert answer.status_code < 500, (method, path, text)


@pytest.mark.scenario("G73")
def test_a_method_that_a_path_lacks_is_refused_with_those_it_has(served: Served) -> None:
    answer = served.client.put("/v1/agents")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
