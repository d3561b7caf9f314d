"""One connection to an MCP server, which any number of agents share: opened, lost, opened anew, closed.

1. The SDK's client must be entered and left in one task, so a connection has a task of its own. 2. A lost connection is
opened anew by the next call. A call that was sent is never sent again: it may have taken effect. 3. A server that
fails again and again is tried more and more rarely, and then given up; calls meanwhile are told so at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeVar, cast

import mcp_types
from mcp import Client, MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from halter.errors import ConfigurationError, HalterError, McpConnectionFailed, McpTimeout, ToolError, UsageError
from halter.shown import message_of, shown

MOST_FAILURES = 5  # in a row; then the server is given up
FIRST_DELAY = 1.0  # seconds between the second attempt to connect and the third; twice as long before each further one
CLOSE_GRACE = 5.0  # seconds in which a connection may end in good order
RELIST_LIMIT = 30.0  # seconds for listing them anew, where connecting has no limit
RELIST_DELAY = 1.0  # seconds between two listings, however often a server says that its tools have changed
_logger = logging.getLogger("halter")
T = TypeVar("T")


class Connection:
    """The connection to one server. On one event loop.

    Args:
        name: The server, as errors name it.
        make: Makes a client that has not been entered.
        limit: Seconds for connecting and `prepare`; `None`: no limit.
        prepare: Called with each client that is connected, and again when the server's tools have changed.
        can_reconnect: Whether `make` can make another client.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[Connection], Client],
        limit: float | None,
        prepare: Callable[[Client], Awaitable[None]],
        *,
        can_reconnect: bool = True,
    ) -> None:
        self.name = name
        self._make = make
        self._limit = limit
        self._prepare = prepare
        self._can_reconnect = can_reconnect
        self._loop = asyncio.get_running_loop()
        self._client: Client | None = None
        self._opening: asyncio.Future[Client] | None = None
        self._wanted = asyncio.Event()
        self._news = asyncio.Event()
        self._gone = asyncio.Event()  # the client at hand is of no more use
        self._is_stale = self._is_closed = False
        self._failures = 0
        self._retry_at = 0.0
        self._why = ""
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connects. Raises `McpTimeout`, `McpConnectionFailed`, `ConfigurationError`."""
        self._task = asyncio.create_task(self._own(), name=f"mcp:{self.name}")
        await self.client()

    async def close(self, *, at_once: bool = False) -> None:
        """Ends the connection; returns when all of it has ended. Cancelled, it does not wait for good order."""
        self._is_closed = True
        self._wanted.set()
        self._lose()
        task = self._task
        if task is None:
            return
        if at_once:
            task.cancel()
        try:
            await asyncio.wait([task], timeout=CLOSE_GRACE)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

    async def client(self) -> Client:
        """The connected client; connects if there is none. Raises `ToolError` while it is not tried."""
        if asyncio.get_running_loop() is not self._loop:
            raise UsageError("this MCP server is connected on another event loop: run the agent where its block is")
        if self._client is not None:
            return self._client
        self._check_may_try()
        if self._opening is None:
            self._opening = self._loop.create_future()
            self._wanted.set()
        return await asyncio.shield(self._opening)

    async def ask(self, request: Callable[[Client], Awaitable[T]]) -> T:
        """What the server answers. Raises `ToolError` if the connection is lost meanwhile.

        Cancelled: the SDK tells the server which request to cancel, in the way of its protocol version.
        """
        client = await self._again()
        try:
            answer = await request(client)
        except MCPError as error:
            if _is_session_over(error):  # a 404 for the session: the server has not looked at the request
                self.lose(client, "its session has ended")
                return await request(await self._again())
            if error.code != mcp_types.CONNECTION_CLOSED:
                raise
            self.lose(client, "the connection was lost")
            raise ToolError(
                f"The connection to the MCP server {self.name!r} was lost during this call: "
                "part of it may have taken effect."
            ) from error
        self._failures = 0
        return answer

    async def _again(self) -> Client:
        """The client; why there is none is for the model."""
        try:
            return await self.client()
        except ToolError:
            raise
        except HalterError as error:
            raise ToolError(f"The MCP server could not be connected again: {message_of(error)}.") from error

    def lose(self, client: Client, why: str) -> None:
        """This client is of no more use; the next call connects anew."""
        if client is self._client:
            self._fail(why)
            self._lose()

    def lost(self) -> None:
        """The transport has ended."""
        if self._client is not None:
            self.lose(self._client, "it has ended")

    def stale(self) -> None:
        """The server says that its tools have changed."""
        self._is_stale = True
        self._news.set()

    def _lose(self) -> None:
        self._client = None
        self._gone.set()
        self._news.set()

    def _fail(self, why: str) -> None:
        self._why = why
        self._failures += 1
        if self._failures > 1:
            self._retry_at = self._loop.time() + FIRST_DELAY * 2 ** (self._failures - 2)

    def _check_may_try(self) -> None:
        if self._is_closed or (self._task is not None and self._task.done()):
            raise ToolError(f"The MCP server {self.name!r} is not connected any more: its block has ended.")
        if self._failures and not self._can_reconnect:
            raise ToolError(
                f"The MCP server {self.name!r} is not connected ({self._why}), and cannot be connected anew."
            )
        if self._failures >= MOST_FAILURES:
            raise ToolError(
                f"The MCP server {self.name!r} was given up after {self._failures} failures ({self._why}). "
                "Go on without its tools."
            )
        left = self._retry_at - self._loop.time()
        if left > 0:
            raise ToolError(
                f"The MCP server {self.name!r} is not connected ({self._why}). It can be tried again in {left:.0f} s."
            )

    # --- its task -------------------------------------------------------------------------------------------

    async def _own(self) -> None:
        """Carries one client after the other, each from its first step to its last."""
        while not self._is_closed:
            await self._wanted.wait()
            self._wanted.clear()
            opening = self._opening
            if self._is_closed or opening is None:
                continue
            self._gone.clear()
            self._is_stale = False
            failure: BaseException | None = None
            try:
                await self._carry(opening)
            except Exception as error:
                failure = sole(error)
            except BaseException as error:
                failure = error
                raise
            finally:
                self._end_of(opening, failure)

    def _end_of(self, opening: asyncio.Future[Client], failure: BaseException | None) -> None:
        if self._opening is opening:
            self._opening = None
        if opening.done():  # it was connected
            if self._client is not None and opening.result() is self._client:
                self._fail("the connection was lost" if failure is None else self._told(failure))
                self._client = None
            return
        self._fail("" if failure is None else self._told(failure))
        if isinstance(failure, HalterError):
            opening.set_exception(failure)
        elif failure is None or not isinstance(failure, Exception):
            opening.set_exception(ToolError(f"The MCP server {self.name!r} is not connected any more."))
        else:
            error = McpConnectionFailed(self.name, self._told(failure))
            error.__cause__ = failure
            opening.set_exception(error)
        opening.exception()  # looked at: whoever waited may have been stopped

    def _told(self, failure: BaseException) -> str:
        return f"{type(failure).__name__}: {message_of(failure)}" if str(failure) else type(failure).__name__

    async def _carry(self, opening: asyncio.Future[Client]) -> None:
        clock = asyncio.timeout(self._limit)
        async with AsyncExitStack() as stack:
            try:
                async with clock:
                    client = self._make(self)
                    await stack.enter_async_context(client)
                    await self._prepare(client)
            except TimeoutError as error:
                if self._limit is None or not clock.expired():
                    raise
                raise McpTimeout(self.name, self._limit) from error
            if self._gone.is_set() or self._is_closed:
                raise ConnectionError("the connection was lost")
            self._client, self._opening = client, None
            opening.set_result(client)
            listening = asyncio.create_task(self._listen(client))
            try:
                await self._keep_up(client)
            finally:
                listening.cancel()
                await asyncio.wait([listening])

    async def _keep_up(self, client: Client) -> None:
        """Waits until the connection is lost; lists the tools anew when they have changed."""
        while not self._gone.is_set():
            self._news.clear()
            if self._is_stale:
                self._is_stale = False
                try:
                    async with asyncio.timeout(self._limit or RELIST_LIMIT):
                        await self._prepare(client)
                except (MCPError, ConfigurationError, TimeoutError) as error:
                    _logger.warning("the MCP server %s could not list its tools anew: %s", self.name, shown(error))
                with suppress(TimeoutError):
                    async with asyncio.timeout(RELIST_DELAY):
                        await self._gone.wait()
                continue
            await self._news.wait()

    async def _listen(self, client: Client) -> None:
        """Hears of changed tools where the protocol has a request for it; earlier versions send notifications."""
        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            return
        try:
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self.stale()
        except Exception as error:
            _logger.info("the MCP server %s does not say when its tools change: %s", self.name, error)


def sole(error: BaseException) -> BaseException:
    """The error itself where the SDK's task groups have wrapped it."""
    while isinstance(error, BaseExceptionGroup):
        inner = cast("BaseExceptionGroup[BaseException]", error).exceptions
        if len(inner) != 1:
            break
        error = inner[0]
    return cast("BaseException", error)


def _is_session_over(error: MCPError) -> bool:
    return error.code == mcp_types.INVALID_REQUEST and error.message == "Session terminated"


def handler_of(connection: Connection) -> Callable[..., Any]:
    """The SDK's handler of messages: it hears that the tools have changed."""

    async def handle(message: Any) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            connection.stale()

    return handle
