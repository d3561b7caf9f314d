"""What browsers load: the dashboard at `/`, and `client.js`. Files without data, so they need no key."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

FOLDER = Path(__file__).parents[1]
CLIENT = FOLDER / "browser"
PAGE = FOLDER / "page"
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".ts": "text/plain; charset=utf-8",
}
# Nothing but the page's own files may run, show or be asked. Text never becomes HTML: `trusted-types` without a policy
# forbids it.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def client_router() -> APIRouter:
    """`/client.js` and its types."""
    router = APIRouter(include_in_schema=False)
    for name in ("client.js", "client.d.ts"):
        _serve(router, f"/{name}", CLIENT / name)
    return router


def page_router() -> APIRouter:
    """The dashboard: `/`, and its files under `/page/`."""
    router = APIRouter(include_in_schema=False)
    for path in sorted(PAGE.iterdir()):
        if path.suffix in MEDIA_TYPES:
            _serve(router, "/" if path.name == "index.html" else f"/page/{path.name}", path)
    return router


def _serve(router: APIRouter, route: str, path: Path) -> None:
    """Adds a route that answers with this file, as it is now."""
    body = path.read_bytes()
    headers = {**HEADERS, "ETag": f'"{hashlib.sha256(body).hexdigest()[:24]}"'}

    async def file(request: Request) -> Response:
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=MEDIA_TYPES[path.suffix])

    router.add_api_route(route, file, methods=["GET", "HEAD"])
