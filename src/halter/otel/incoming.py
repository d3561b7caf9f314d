"""The trace that a request belongs to: runs that it starts become children of the caller's span."""

from __future__ import annotations

from opentelemetry import context, propagate
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send


class IncomingTrace:
    """An ASGI middleware that reads `traceparent` (or what `OTEL_PROPAGATORS` names).

    Args:
        app: what it calls, within the caller's trace.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        token = context.attach(propagate.extract(Headers(scope=scope)))
        try:
            await self._app(scope, receive, send)
        finally:
            context.detach(token)
