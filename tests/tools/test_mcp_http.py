"""MCP servers at URLs: headers, tokens, sessions that end, servers that are away."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from halter import Agent
from halter.errors import ConfigurationError, McpConnectionFailed
from halter.messages import ToolResult
from halter.models.scripted import Scripted, calls
from halter.tools import mcp_tools

pytestmark = [pytest.mark.real_loop, pytest.mark.filterwarnings("ignore::ResourceWarning")]
TOOL = {"name": "greet", "inputSchema": {"type": "object", "properties": {}}}


class Server:
    """Streamable HTTP by hand. `tokens`: those that it lets in; `None`: everybody. `session`: the one that it knows."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.tokens: set[str] | None = None
        self.session = 1
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.method != "POST":
            return web.Response(status=405)
        body: dict[str, Any] = await request.json()
        method = body["method"]
        self.seen.append((request.method, method, dict(request.headers)))
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.tokens is not None and given not in self.tokens:
            return web.Response(status=401)
        if method == "initialize":
            result: dict[str, Any] = {
                "protocolVersion": body["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "by hand", "version": "1"},
            }
            return self._answer(body, result)
        if "id" not in body:
            return web.Response(status=202)
        if method == "server/discover":
            return web.json_response({"jsonrpc": "2.0", "id": body["id"], "error": {"code": -32601, "message": "no"}})
        if request.headers.get("Mcp-Session-Id") != str(self.session):
            return web.Response(status=404)
        if method == "tools/list":
            return self._answer(body, {"tools": [TOOL]})
        return self._answer(body, {"content": [{"type": "text", "text": "Hello"}]})

    def _answer(self, body: dict[str, Any], result: dict[str, Any]) -> web.Response:
        answer = {"jsonrpc": "2.0", "id": body["id"], "result": result}
        return web.json_response(answer, headers={"Mcp-Session-Id": str(self.session)})


@asynccontextmanager
async def serving(port: int = 0) -> AsyncGenerator[Server]:
    server = Server()
    app = web.Application()
    app.router.add_route("*", "/mcp", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    try:
        yield server
    finally:
        await runner.cleanup()


async def called(tools: Any) -> ToolResult:
    run = await Agent(Scripted(calls("greet"), "done"), tools=tools).run("go")
    [result] = [part for message in run.messages for part in message.parts if isinstance(part, ToolResult)]
    return result


async def test_headers_go_with_each_request() -> None:
    async with serving() as server, mcp_tools(server.url, headers={"X-Key": "k"}) as tools:
        assert (await called(tools)).content == "Hello"
        assert {headers.get("X-Key") for _, _, headers in server.seen} == {"k"}


async def test_a_token_comes_from_the_callback_and_is_asked_again_after_a_401() -> None:
    given = iter(("one", "two", "three"))
    asked: list[str] = []

    async def token() -> str:
        asked.append(next(given))
        return asked[-1]

    async with serving() as server:
        server.tokens = {"one"}
        async with mcp_tools(server.url, token=token) as tools:
            assert asked == ["one"]
            server.tokens = {"two"}
            assert (await called(tools)).content == "Hello"
            assert asked == ["one", "two"]
            server.tokens = set()
            refused = await called(tools)
            assert refused.is_error
            assert asked == ["one", "two", "three"]


async def test_a_session_that_the_server_has_forgotten_is_opened_anew_within_the_call() -> None:
    async with serving() as server, mcp_tools(server.url) as tools:
        server.session = 2
        assert (await called(tools)).content == "Hello"
    assert [method for _, method, _ in server.seen].count("initialize") == 2


async def test_a_server_that_goes_away_and_comes_back_is_connected_again() -> None:
    async with serving() as first:
        port = int(first.url.split(":")[2].split("/")[0])
        context = mcp_tools(first.url)
        tools = await context.__aenter__()
        assert not (await called(tools)).is_error
    try:
        assert (await called(tools)).is_error
        async with serving(port) as second:
            again = await called(tools)
            assert again.content == "Hello", again
            assert second.seen
    finally:
        await context.__aexit__(None, None, None)


async def test_a_url_where_nobody_listens_is_an_error_that_shows_no_secret() -> None:
    async with serving() as server:
        url = server.url
    with pytest.raises(McpConnectionFailed) as raised:
        async with mcp_tools(f"{url}?key=secret"):
            pass
    assert "127.0.0.1" in str(raised.value)
    assert "secret" not in str(raised.value)
    assert isinstance(raised.value, ConnectionError)


@pytest.mark.parametrize("url", ["ftp://a/b", "not-a-url", "http://", "http://[1"])
async def test_what_is_no_web_address_is_a_clear_error(url: str) -> None:
    with pytest.raises(ConfigurationError, match="MCP server"):
        async with mcp_tools(url):
            pass


async def test_a_header_that_cannot_be_sent_is_refused_without_its_value() -> None:
    with pytest.raises(ConfigurationError) as raised:
        async with mcp_tools("http://localhost/mcp", headers={"X-Key": "secret\r\nHost: b"}):
            pass
    assert "secret" not in str(raised.value)
