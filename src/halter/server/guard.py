"""What is refused before any route sees it: foreign hosts and origins, too many headers, bodies that are too large."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from halter.server.problems import Problem

MOST_HEADERS = 200
LARGEST_BODY = 2 * 1024 * 1024
SAFE = frozenset(("GET", "HEAD", "OPTIONS"))


class Guard:
    """An ASGI middleware.

    Args:
        app: what it guards.
        allowed_hosts: values of `Host`, without the port; `*` allows all. A page of another site that points its name
            at this machine sends its own name (DNS rebinding).
        allowed_origins: pages of other origins that may send requests with effects; that of the host itself always
            may.
        largest_body: bytes.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        allowed_hosts: tuple[str, ...] = ("*",),
        allowed_origins: tuple[str, ...] = (),
        largest_body: int = LARGEST_BODY,
    ) -> None:
        self._app = app
        self._hosts = frozenset(map(_name, allowed_hosts))
        self._origins = frozenset(map(str.lower, allowed_origins))
        self._largest_body = largest_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        problem = self._refusal(scope)
        if problem is None:
            await self._within_bounds(scope, receive, send)
        elif scope["type"] == "http":
            await problem.response()(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008, "reason": problem.detail[:120]})

    def _refusal(self, scope: Scope) -> Problem | None:
        if len(scope["headers"]) > MOST_HEADERS:
            return Problem(431, f"more than {MOST_HEADERS} headers")
        headers = Headers(scope=scope)
        host = _name(headers.get("host", ""))
        if "*" not in self._hosts and host not in self._hosts:
            return Problem(421, f"this server is not known as {host!r}; see --allow-host", code="unknown_host")
        origin = headers.get("origin")
        has_effects = scope["type"] == "websocket" or scope["method"] not in SAFE
        if has_effects and origin and not self._is_ours(origin.lower(), headers.get("host", "").lower()):
            return Problem(403, f"requests from pages of {origin!r} are refused", code="foreign_origin")
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self._largest_body:
            return _too_large(self._largest_body)
        return None

    def _is_ours(self, origin: str, host: str) -> bool:
        return origin in self._origins or _host_of(origin) == host

    async def _within_bounds(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Calls the app; where a body of unknown length grows too large, the answer says so, whatever the app says."""
        left = self._largest_body
        has_begun = False

        async def bounded() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            # Cut off at the limit it might still be valid JSON, so the app is told that it will never be whole.
            return message if left >= 0 else {"type": "http.disconnect"}

        async def unless_too_large(message: Message) -> None:
            nonlocal has_begun
            if left >= 0 or has_begun:
                has_begun = True
                await send(message)

        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            await self._app(scope, bounded, unless_too_large)
        except ClientDisconnect:
            if left >= 0:
                raise
        if left < 0 and not has_begun:
            await _too_large(self._largest_body).response()(scope, receive, send)


def _host_of(origin: str) -> str | None:
    """The host and port of an `Origin`; `None` for one that cannot be read."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _name(host: str) -> str:
    """The name in a `Host` header, without its port and in small letters."""
    host = host.lower()
    return host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and not host.endswith("]") else host


def _too_large(limit: int) -> Problem:
    return Problem(413, f"the body is larger than {limit} bytes", code="too_large")
