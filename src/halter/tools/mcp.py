"""MCP servers: their tools as tools of an agent, their resources and prompts as tools or as context.

The protocol is the official SDK's. What is ours: a call is ended as any other; the server is told so, in the way of its
protocol version, and nobody waits for what it makes of that.
Source: https://modelcontextprotocol.io/specification/latest/basic/utilities/cancellation
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from mcp import Client

from halter import checked
from halter.core.settings import seconds
from halter.errors import ConfigurationError
from halter.messages import Message, Text
from halter.tools import approval as approvals
from halter.tools.approval import Approval
from halter.tools.bounds import clipped
from halter.tools.function import FunctionTool, tool
from halter.tools.mcp_connection import Connection, handler_of
from halter.tools.mcp_contents import Shown, resource_part, shown, value_of
from halter.tools.mcp_http import Token, Transport, checked_headers, checked_url, http_streams, place_of
from halter.tools.mcp_names import Filter, checked_prefix, named, valid_name
from halter.tools.mcp_stdio import stdio_server
from halter.tools.mcp_tool import McpTool
from halter.tools.sandbox import SandboxOption

MOST_PAGES = 100
MOST_LISTED = 500  # resources or prompts that a model is shown
LONGEST_LINE = 500  # characters of one of them
SHORTEST_SILENCE = 300.0  # seconds that a stream of HTTP may say nothing, at least


class McpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a server is connected and used: the options of `mcp_server`. Raises `ConfigurationError`."""

    env: Mapping[str, str] | None = None
    cwd: str | None = None
    sandbox: SandboxOption = None
    headers: Mapping[str, str] | None = None
    token: Token | None = None
    transport: Transport = "http"
    timeout: float | None = 60.0
    connect_timeout: float | None = 30.0
    approval: Approval | None = None
    max_result: int = 100_000
    prefix: str = ""
    only: Sequence[str] | None = None
    without: Sequence[str] = ()
    resources: bool = False
    prompts: bool = False
    chosen: Filter | None = None  # instead of `only` and `without`: by patterns that are about several servers

    def __post_init__(self) -> None:
        seconds("timeout", self.timeout, or_none=True, above_zero=True)
        seconds("connect_timeout", self.connect_timeout, or_none=True, above_zero=True)
        checked.whole("max_result", self.max_result, at_least=1)
        checked.one_of("transport", self.transport, ("http", "sse"))
        checked_prefix(self.prefix)
        checked_headers(self.headers)
        Filter(self.only, self.without)
        if self.approval is not None:
            approvals.Rule(self.approval, ())
        if self.token is not None and not callable(self.token):
            raise ConfigurationError("token is a function that gives an access token, such as token=lambda: the_token")


class McpServer:
    """A server that is connected; made by `mcp_server`. Any number of agents may use it at once, on one event loop.

    `tools`: as the server has listed them last, and the tools for its resources and prompts if they were asked for. An
    agent keeps the tools that it was made with; make another one for tools that are new. `originals`: the names of all
    tools at the server. `instructions`: what the server says about itself.
    """

    def __init__(self, name: str, make: Callable[[Connection], Client], options: McpOptions, *, once: bool) -> None:
        self.name = name
        self._options = options
        self._filter = options.chosen or Filter(options.only, options.without)
        self._connection = Connection(name, make, options.connect_timeout, self._list, can_reconnect=not once)
        self._listed: dict[str, McpTool] = {}
        self._extra = tuple(self._extra_tools())
        self._was_listed = False
        self.instructions = ""
        self.originals: tuple[str, ...] = ()

    @property
    def tools(self) -> tuple[McpTool | FunctionTool[..., Any], ...]:
        return (*self._listed.values(), *self._extra)

    def has(self, original: str) -> bool:
        """Whether the server has listed a tool of this name."""
        return original in self._listed

    async def resources(self) -> list[Any]:
        """The server's resources as the SDK has them, with `uri`, `name` and `description`."""
        return await self._connection.ask(
            lambda client: _all(lambda cursor: client.list_resources(cursor=cursor), "resources", self.name)
        )

    async def read(self, uri: str) -> list[Shown]:
        """A resource as parts of a message: `Message.user("Summarize:", *await server.read(uri))`."""
        found = await self._connection.ask(lambda client: client.read_resource(uri))
        return [resource_part(each) for each in found.contents]

    async def prompts(self) -> list[Any]:
        """The server's prompts as the SDK has them, with `name`, `description` and `arguments`."""
        return await self._connection.ask(
            lambda client: _all(lambda cursor: client.list_prompts(cursor=cursor), "prompts", self.name)
        )

    async def prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> tuple[Message, ...]:
        """A prompt as messages, to begin a run with. Server-written text: treat it like any other input."""
        found = await self._connection.ask(lambda client: client.get_prompt(name, dict(arguments or {})))
        return tuple(
            Message(each.role, tuple(Text(part) if isinstance(part, str) else part for part in shown([each.content])))
            for each in found.messages
        )

    async def _list(self, client: Client) -> None:
        """Lists the tools: those that are as they were stay the same objects."""
        options = self._options
        pages = await _all(lambda cursor: client.list_tools(cursor=cursor, cache_mode="refresh"), "tools", self.name)
        by_name = {each.name: each for each in pages}
        originals = [each.name for each in pages]
        names = named(originals, options.prefix)
        self.originals = tuple(originals)
        if self._was_listed or options.chosen:  # a pattern may fit none of these tools
            wanted = [name for name in originals if self._filter.takes(name)]
        else:
            wanted = self._filter.chosen(originals, f"the MCP server {self.name!r}")
        listed: dict[str, McpTool] = {}
        for original in wanted:
            before = self._listed.get(original)
            if before is not None and before.listed == by_name[original]:
                listed[original] = before
                continue
            listed[original] = McpTool(
                self._connection,
                self,
                by_name[original],
                names[original],
                timeout=options.timeout,
                approval=options.approval,
                max_result=options.max_result,
            )
        self._listed, self._was_listed = listed, True
        self.instructions = clipped(client.instructions or "", options.max_result)

    def _extra_tools(self) -> Iterable[FunctionTool[..., Any]]:
        options = self._options

        def made(fn: Callable[..., Any], name: str) -> FunctionTool[..., Any]:
            return tool(
                fn, name=valid_name(options.prefix + name), timeout=options.timeout, max_result=options.max_result
            )

        async def list_resources() -> str:
            """Lists the resources of this server, with their addresses."""
            return _lines(
                f"{each.uri}: {each.title or each.name}. {each.description or ''}" for each in await self.resources()
            )

        async def read_resource(uri: str) -> Any:
            """Reads a resource of this server.

            Args:
                uri: Its address, as it is listed.
            """
            return value_of(await self.read(uri))

        async def list_prompts() -> str:
            """Lists the prompts of this server, with the arguments that they take."""
            return _lines(
                f"{each.name}({', '.join(one.name for one in each.arguments or ())}): {each.description or ''}"
                for each in await self.prompts()
            )

        async def get_prompt(name: str, arguments: dict[str, str] | None = None) -> Any:
            """Gets a prompt of this server: instructions for a task.

            Args:
                name: As it is listed.
                arguments: Its arguments.
            """
            said = await self.prompt(name, arguments)
            return value_of([part.text if isinstance(part, Text) else part for m in said for part in m.parts])  # pyright: ignore[reportArgumentType]

        if options.resources:
            yield made(list_resources, "list_resources")
            yield made(read_resource, "read_resource")
        if options.prompts:
            yield made(list_prompts, "list_prompts")
            yield made(get_prompt, "get_prompt")

    def __repr__(self) -> str:
        return f"<MCP server {self.name}>"


@asynccontextmanager
async def mcp_server(
    server: str | Sequence[str] | Client, *, name: str | None = None, **options: Any
) -> AsyncGenerator[McpServer]:
    """A server, connected while the block lasts: `async with mcp_server(["python", "server.py"]) as server`.

    Args:
        server: A command, which is started and spoken to over its standard streams; a URL; or a `Client` that you have
            made with the SDK, which is not connected again once it is lost.
        name: As errors name the server; without it, its command or its URL.
        options: As for `mcp_tools`, and `resources=True`, `prompts=True`: tools by which a model lists and reads them.

    Yields:
        The server, with its `tools`.

    Raises:
        ConfigurationError: An option is wrong, or the command cannot be started.
        SandboxUnavailable: There is no sandbox on this machine.
        McpTimeout: The server did not answer within `connect_timeout`.
        McpConnectionFailed: The server could not be connected.

    Cancellation-safe: the server is ended at once.
    """
    try:
        given = McpOptions(**options)
    except TypeError as error:
        raise ConfigurationError(f"mcp_server has no such option: {error}") from None
    make = _maker(server, given)
    connected = McpServer(name or _name_of(server), make, given, once=isinstance(server, Client))
    is_good = False
    try:
        await connected._connection.open()
        yield connected
        is_good = True
    finally:
        await connected._connection.close(at_once=not is_good)


@asynccontextmanager
async def mcp_tools(
    server: str | Sequence[str] | Client,
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    sandbox: SandboxOption = None,
    headers: Mapping[str, str] | None = None,
    token: Token | None = None,
    transport: Transport = "http",
    timeout: float | None = 60.0,
    connect_timeout: float | None = 30.0,
    approval: Approval | None = None,
    max_result: int = 100_000,
    prefix: str = "",
    only: Sequence[str] | None = None,
    without: Sequence[str] = (),
) -> AsyncGenerator[tuple[McpTool | FunctionTool[..., Any], ...]]:
    """The tools of a server, while the block lasts: `async with mcp_tools(["python", "server.py"]) as tools`.

    Args:
        server: A command, a URL or a `Client`, as for `mcp_server`.
        env: More variables for a command.
        cwd: The directory of a command.
        sandbox: `"bwrap"`, or a `Sandbox(…)`, in which a command is run.
        headers: Sent with each request to a URL.
        token: Gives the access token for a URL; asked again after a 401. Plain or async.
        transport: Of a URL: `http` (streamable HTTP), or `sse`, which older servers speak.
        timeout: Seconds for a call; `None`: no limit.
        connect_timeout: Seconds in which the server is connected and has listed its tools; `None`: no limit.
        approval: As for any tool. Left out, the agent's policy decides by the server's hints. Name the argument
            of patterns, as in `{"path": ("notes/*",)}`: a tool whose schema does not name it asks each time.
        max_result: Characters of a result that the model gets.
        prefix: Put before the name of each tool.
        only: Patterns of the tools that are taken, by the server's names; `None`: all.
        without: Patterns of the tools that are left out.

    Yields:
        The tools, which work on this event loop only.

    Raises:
        ConfigurationError, McpTimeout, McpConnectionFailed: As for `mcp_server`.

    Cancellation-safe: the server is ended at once.
    """
    async with mcp_server(
        server,
        env=env,
        cwd=cwd,
        sandbox=sandbox,
        headers=headers,
        token=token,
        transport=transport,
        timeout=timeout,
        connect_timeout=connect_timeout,
        approval=approval,
        max_result=max_result,
        prefix=prefix,
        only=only,
        without=without,
    ) as connected:
        yield connected.tools


def _maker(server: str | Sequence[str] | Client, options: McpOptions) -> Callable[[Connection], Client]:
    """Makes a client for each connection. Raises `ConfigurationError`."""
    if options.sandbox is not None and isinstance(server, str | Client):
        raise ConfigurationError("sandbox= is for an MCP server that is a command, which is run here")
    if isinstance(server, Client):
        return lambda _: server
    if isinstance(server, str):
        url, headers = checked_url(server), checked_headers(options.headers)
        if options.env is not None or options.cwd is not None:
            raise ConfigurationError("env and cwd are for a server that is a command, not for a URL")
        patience = None if options.timeout is None else max(SHORTEST_SILENCE, options.timeout + 1)
        return lambda connection: Client(
            http_streams(url, headers, options.token, options.transport, patience),
            message_handler=handler_of(connection),
        )
    command = list(server)
    if not command or not all(isinstance(word, str) for word in command):
        raise ConfigurationError(f"an MCP server is a command, a URL or a Client, not {server!r}")
    if options.headers is not None or options.token is not None:
        raise ConfigurationError("headers and token are for a server at a URL, not for a command: give env")
    return lambda connection: Client(
        stdio_server(command, options.env, options.cwd, options.sandbox, on_end=connection.lost),
        message_handler=handler_of(connection),
    )


def _name_of(server: str | Sequence[str] | Client) -> str:
    """As an error names it: of a URL, nothing that could be a secret."""
    if isinstance(server, Client):
        return type(server).__name__
    return place_of(server) if isinstance(server, str) else " ".join(server)


async def _all(page_at: Callable[[str | None], Any], what: str, name: str) -> list[Any]:
    """What a server lists, page by page. Raises `ConfigurationError` where the pages do not end."""
    found: list[Any] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await page_at(cursor)
        found.extend(getattr(page, what))
        cursor = page.next_cursor
        if cursor is None:
            return found
        await asyncio.sleep(0)
    raise ConfigurationError(f"the MCP server {name!r} lists its {what} on more than {MOST_PAGES} pages")


def _lines(found: Iterable[str]) -> str:
    lines = [clipped(" ".join(line.split()), LONGEST_LINE) for line in found]
    more = [f"({len(lines) - MOST_LISTED:,} more)"] if len(lines) > MOST_LISTED else []
    return "\n".join((*lines[:MOST_LISTED], *more)) or "There are none."
