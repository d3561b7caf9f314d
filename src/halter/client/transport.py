"""Requests to a server, and what its errors mean. Everything here runs on the background loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Generator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

import aiohttp
import msgspec

from halter.core.lockfree import forbid_blocking
from halter.core.threads import background_loop
from halter.errors import ConnectionFailed, ServerRefused

T = TypeVar("T")
CONNECT = 10.0  # seconds
SILENCE = 45.0  # seconds without a byte of a stream: the server pings every 15
ANSWER = 90.0  # seconds for an answer that is not a stream; a wait of a minute included


class Pending(Generic[T]):
    """Something that is under way: `await` it, or call `result()` in blocking code. It goes on if nobody does."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._future = asyncio.run_coroutine_threadsafe(work, background_loop())

    def __await__(self) -> Generator[Any, None, T]:
        return asyncio.wrap_future(self._future).__await__()

    def result(self, timeout: float | None = None) -> T:
        """Waits in this thread, `timeout` seconds at most, and returns or raises what it came to."""
        forbid_blocking("await it")
        return self._future.result(timeout)


class Transport:
    """HTTP requests to one server.

    Args:
        url: the server's address.
        key: an API key, or `None`.
    """

    def __init__(self, url: str, key: str | None) -> None:
        self.url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._session: aiohttp.ClientSession | None = None

    async def request(
        self, method: str, path: str, *, body: Mapping[str, Any] | None = None, query: Mapping[str, Any] | None = None
    ) -> Any:
        """The answer's JSON. Raises `ServerRefused` for a problem, `ConnectionFailed` without an answer."""
        async with self.open(method, path, body=body, query=query, total=ANSWER) as response:
            data = await response.read()
            return msgspec.json.decode(data) if data else None

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        total: float | None = None,
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """An answer whose body is still to be read. Raises as `request`; errors while it is read are the same."""
        timeout = aiohttp.ClientTimeout(total=total, sock_connect=CONNECT, sock_read=None if total else SILENCE)
        sent = {**self._headers, **(headers or {})}
        data = None
        if body is not None:
            data = msgspec.json.encode(body)
            sent["Content-Type"] = "application/json"
        params = {name: str(value) for name, value in (query or {}).items() if value is not None}
        try:
            async with self._ready().request(
                method, self.url + path, data=data, params=params, headers=sent, timeout=timeout
            ) as response:
                if response.status >= 400:
                    raise await _refusal(response)
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ConnectionFailed(f"no answer from {self.url}: {error or type(error).__name__}") from error

    def _ready(self) -> aiohttp.ClientSession:
        if self._session is None:
            # Each stream has a connection of its own: no limit, or the next stop would wait for one to end.
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        return self._session

    async def aclose(self) -> None:
        """Closes its connections; it may be used again."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def __repr__(self) -> str:
        return f"<Transport to {self.url}>"


async def _refusal(response: aiohttp.ClientResponse) -> ServerRefused:
    text = await response.text(errors="replace")
    problem: dict[str, Any] = {}
    if response.content_type.endswith("json"):
        try:
            problem = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.DecodeError:
            pass  # not a Halter server, or a proxy in between: its text is shown
    detail = str(problem.get("detail") or text[:200] or response.reason)
    after = response.headers.get("Retry-After", "")
    return ServerRefused(
        f"the server said {response.status}: {detail}",
        status=response.status,
        code=str(problem.get("code") or "") or None,
        retry_after=float(after) if after.isdigit() else None,
    )
