"""An MCP server at a URL: streamable HTTP, or the older SSE, with headers and tokens.

The transports are the SDK's. A redirect to another origin is not followed: headers and tokens stay with the server.
Source: https://modelcontextprotocol.io/specification/2025-06-18/basic/authorization
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import urlsplit

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from halter.core.calling import is_async
from halter.core.threads import call_in_thread
from halter.errors import ConfigurationError

Token: TypeAlias = Callable[[], str | Awaitable[str]]
Transport: TypeAlias = Literal["http", "sse"]
CONNECT_TIMEOUT = 30.0  # seconds for a connection, and for each request to be sent
UNAUTHORIZED = 401
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LINE_END = re.compile(r"[\r\n\0]")


def checked_url(given: str) -> str:
    """The URL, if it is one of HTTP. Raises `ConfigurationError`."""
    try:
        parts = urlsplit(given)
        _ = parts.port
    except ValueError as error:
        raise ConfigurationError(f"an MCP server's URL is not valid: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(
            f"an MCP server is a command as a list, an http(s) URL or a Client, not {place_of(given)!r}"
        )
    return given


def checked_headers(given: Any) -> dict[str, str]:
    """The headers, if they can be sent. Raises `ConfigurationError`, which never shows a value."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"headers must be a mapping of texts, not {type(given).__name__}")
    headers = dict(cast("Mapping[Any, Any]", given))
    for name, value in headers.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigurationError(f"{name!r} is no name of a header")
        if not isinstance(value, str) or _LINE_END.search(value) or not value.isascii():
            raise ConfigurationError(f"the value of the header {name} must be text in ASCII, in one line")
    return headers


def place_of(url: str) -> str:
    """A URL as an error names it: without user, password, query and fragment, which may be secrets."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"
    except ValueError:
        return "the URL"


@asynccontextmanager
async def http_streams(
    url: str, headers: Mapping[str, str], token: Token | None, transport: Transport, patience: float | None
) -> AsyncGenerator[Any]:
    """The SDK's two streams. `patience`: seconds that a stream may say nothing; `None`: no limit."""
    auth = None if token is None else _Bearer(token)
    timeout = httpx2.Timeout(CONNECT_TIMEOUT, read=patience)
    if transport == "sse":
        async with sse_client(
            url,
            headers=dict(headers),
            timeout=CONNECT_TIMEOUT,
            sse_read_timeout=cast("float", patience),  # httpx takes None: no limit
            auth=auth,
        ) as streams:
            yield streams
        return
    async with (
        create_mcp_http_client(headers=dict(headers), timeout=timeout, auth=auth) as client,
        streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams


class _Bearer(httpx2.Auth):
    """A token that a callback gives; after a 401 it is asked once more, and the request is sent again."""

    def __init__(self, ask: Token) -> None:
        self._ask = ask
        self._token: str | None = None
        self._asking = asyncio.Lock()

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        used = await self._other_than(None)
        request.headers["Authorization"] = f"Bearer {used}"
        response = yield request
        if response.status_code == UNAUTHORIZED:
            request.headers["Authorization"] = f"Bearer {await self._other_than(used)}"
            yield request

    async def _other_than(self, refused: str | None) -> str:
        """The token at hand, unless it is the refused one: requests that were refused at once ask once."""
        async with self._asking:
            if self._token is None or self._token == refused:
                given: Any = self._ask() if is_async(self._ask) else await call_in_thread(self._ask)
                token: Any = await cast("Awaitable[Any]", given) if isinstance(given, Awaitable) else given
                if not isinstance(token, str) or not token or _LINE_END.search(token) or not token.isascii():
                    raise ConfigurationError("token() must give the text of an access token, in one line")
                self._token = token
            return self._token
