"""Bodies that are larger than they may be, in whatever way they come."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from fastapi import FastAPI, Request
from starlette.requests import Request as PlainRequest
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from halter import Agent
from halter.models.scripted import Scripted
from halter.server import EventStream, Guard
from halter.server.guard import LARGEST_BODY
from halter.testing.wire_probe import WireProbe

from .conftest import Serve
from .test_clients_that_leave import AgentOn


@pytest.mark.scenario("G73")
@pytest.mark.parametrize("query", ["", "?wait=30"])
def test_a_start_that_is_padded_beyond_the_limit_is_refused_and_starts_nothing(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, query: str
) -> None:
    served = serve(agent_on())
    body = json.dumps({"agent": "agent", "input": "Go.", "id": "r", "stream": not query}).encode()
    padding = b" " * 65_536
    with served.connect() as connection:
        head = f"POST /v1/runs{query} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        connection.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        for piece in (body, *[padding] * (LARGEST_BODY // len(padding) + 1)):
            connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        assert connection.recv(65_536).startswith(b"HTTP/1.1 413 ")
    assert served.client.get("/healthz").status_code == 200  # the loop goes on after the client has left
    assert served.client.get("/v1/runs/r").status_code == 404
    assert not wire.requests()


def test_a_large_body_is_refused_in_routes_of_other_frameworks_too(serve: Serve) -> None:
    async def read(request: PlainRequest) -> Response:
        return Response(str(len(await request.body())))

    app = FastAPI(routes=[Route("/read", read, methods=["POST"])])
    app.add_middleware(Guard, largest_body=10)
    served = serve.app(app)  # type: ignore[attr-defined]
    pieces = iter([b"123456", b"789012"])
    answer = served.client.post("/read", content=pieces)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


class Replays:
    """A middleware that has read the body and shows it to the app again and again, as many do."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def again() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        await self._app(scope, again if scope["type"] == "http" else receive, send)


def test_a_middleware_that_replays_the_body_does_not_keep_the_event_loop(serve: Serve) -> None:
    app = FastAPI()

    @app.post("/ask")
    async def ask(request: Request) -> EventStream:  # pyright: ignore[reportUnusedFunction]
        return EventStream(Agent(Scripted("A river.", pace=0.01)).run("Go."), request)

    @app.get("/others")
    async def others() -> str:  # pyright: ignore[reportUnusedFunction]
        await asyncio.sleep(0)
        return "served"

    app.add_middleware(Replays)
    served = serve.app(app)  # type: ignore[attr-defined]
    assert "run.completed" in served.client.post("/ask").text
    assert served.client.get("/others").json() == "served"
