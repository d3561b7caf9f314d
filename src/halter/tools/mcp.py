"""The tools of an MCP server, as tools of an agent.

The protocol is the official SDK's. What is ours: a call is ended as any other; the server is told so, in the way of its
protocol version, and nobody waits for what it makes of that.
Source: https://modelcontextprotocol.io/specification/latest/basic/utilities/cancellation
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec
from mcp import Client

from halter import checked
from halter.core.ports import Question, ToolRules
from halter.core.settings import seconds
from halter.core.tool_context import ToolContext
from halter.errors import ConfigurationError, McpTimeout, ToolError, UsageError
from halter.request import ToolSpec
from halter.tools import approval as approvals
from halter.tools.approval import Approval
from halter.tools.bounds import head_and_tail
from halter.tools.mcp_arguments import McpArguments
from halter.tools.mcp_stdio import stdio_server
from halter.tools.sandbox import SandboxOption

MOST_PAGES = 100


@asynccontextmanager
async def mcp_tools(
    server: str | Sequence[str] | Client,
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    sandbox: SandboxOption = None,
    timeout: float | None = 60.0,
    connect_timeout: float | None = 30.0,
    approval: Approval = "never",
    max_result: int = 100_000,
) -> AsyncGenerator[tuple[McpTool, ...]]:
    """The tools of a server, while the block lasts: `async with mcp_tools(["python", "server.py"]) as tools`.

    `server`: a command, which is started and spoken to over its standard streams; a URL (streamable HTTP); or a
    `Client` that you have made with the SDK. `env`: more variables for a command. `sandbox`: `"bwrap"`, or a
    `Sandbox(…)`, in which a command is run. `timeout`: seconds for a call.
    `connect_timeout`: seconds in which the server is connected and has listed its tools; `None`: no limit.
    `approval`: as for any tool; name the argument of patterns, as in `{"path": ("notes/*",)}`: a tool whose schema does
    not name it asks each time. `max_result`: characters. The tools work on this event loop only. Raises
    `ConfigurationError`, `McpTimeout`, and what the SDK raises where there is no such server. Cancellation-safe.
    """
    rules = ToolRules(timeout=seconds("timeout", timeout, or_none=True, above_zero=True))
    approvals.Rule(approval, ())
    most = checked.whole("max_result", max_result, at_least=1)
    limit = seconds("connect_timeout", connect_timeout, or_none=True, above_zero=True)
    failure: Exception | None = None
    client = _client(server, env, cwd, sandbox)
    async with AsyncExitStack() as connection:
        try:
            listed = await _connected(connection, client, limit, _name_of(server))
            yield tuple(McpTool(client, _spec(each), rules, approval, most) for each in listed)
        except Exception as error:  # the SDK's task group would wrap what the block raises into an `ExceptionGroup`
            failure = error
    if failure is not None:
        raise failure


async def _connected(connection: AsyncExitStack, client: Client, limit: float | None, name: str) -> list[Any]:
    """The tools of a server, which is connected until the end of `connection`. Raises `McpTimeout`."""
    clock = asyncio.timeout(limit)
    try:
        async with clock:
            await connection.enter_async_context(client)
            return [tool async for tool in _listed(client)]
    except TimeoutError as error:
        if limit is None or not clock.expired():
            raise
        raise McpTimeout(name, limit) from error


def _name_of(server: str | Sequence[str] | Client) -> str:
    """As an error names it: of a URL, nothing that could be a secret."""
    if isinstance(server, Client):
        return type(server).__name__
    if isinstance(server, str):
        url = urlsplit(server)
        return f"{url.scheme}://{url.hostname}{f':{url.port}' if url.port else ''}{url.path}"
    return " ".join(server)


async def _listed(client: Client) -> AsyncGenerator[Any]:
    """All tools, page by page. Raises `ConfigurationError` where the pages do not end."""
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            yield tool
        cursor = page.next_cursor
        if cursor is None:
            return
    raise ConfigurationError(f"the MCP server lists its tools on more than {MOST_PAGES} pages")


def _client(
    server: str | Sequence[str] | Client, env: Mapping[str, str] | None, cwd: str | None, sandbox: SandboxOption
) -> Client:
    if sandbox is not None and isinstance(server, str | Client):
        raise ConfigurationError("sandbox= is for an MCP server that is a command, which is run here")
    if isinstance(server, Client):
        return server
    if isinstance(server, str):
        return Client(server)
    command = list(server)
    if not command or not all(isinstance(word, str) for word in command):
        raise ConfigurationError(f"an MCP server is a command, a URL or a Client, not {server!r}")
    return Client(stdio_server(command, env, cwd, sandbox))


def _spec(listed: Any) -> ToolSpec:
    return ToolSpec(name=listed.name, description=listed.description or "", parameters=dict(listed.input_schema))


class McpTool:
    """One tool of a server that is connected; made by `mcp_tools`."""

    def __init__(self, client: Client, spec: ToolSpec, rules: ToolRules, approval: Approval, max_result: int) -> None:
        self.spec = spec
        self.rules = rules
        self._client = client
        self._arguments = McpArguments(spec.parameters)
        self._rule = approvals.Rule(approval, self._arguments.names)
        self._max_result = max_result
        self._loop = asyncio.get_running_loop()

    @property
    def name(self) -> str:
        return self.spec.name

    def read(self, arguments: str) -> dict[str, Any]:
        """The model's JSON object, in the order of the tool's schema; the server checks its values."""
        return self._arguments.read(arguments, self._rule.patterns)

    async def question(self, arguments: dict[str, Any], ctx: ToolContext) -> Question | None:
        return await self._rule.question(self.name, arguments, None, ctx)

    async def call(self, arguments: dict[str, Any], ctx: ToolContext) -> str:
        """Has the server run it. Cancelled: the server is told, and not waited for."""
        if asyncio.get_running_loop() is not self._loop:
            raise UsageError("this MCP server is connected on another event loop: run the agent where its block is")

        async def show(progress: float, total: float | None, message: str | None) -> None:
            ctx.progress(message or (f"{progress:g}" if total is None else f"{progress:g} of {total:g}"))

        result = await self._client.call_tool(self.name, arguments, progress_callback=show)
        text = _text_of(result)
        if result.is_error:
            raise ToolError(text or "The call failed.")
        return text

    def text(self, value: str) -> str:
        return head_and_tail(value, self._max_result)

    async def compensate(self, arguments: dict[str, Any], ctx: ToolContext) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<MCP tool {self.name}>"


def _text_of(result: Any) -> str:
    """Its text; where there is none, its structured content as JSON; what is neither is named."""
    said = [block.text if block.type == "text" else f"({block.type})" for block in result.content]
    if not said and result.structured_content is not None:
        return msgspec.json.encode(result.structured_content).decode()
    return "\n".join(said)
