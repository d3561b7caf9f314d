"""The served runnables as models."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from halter.server.problems import Problem
from halter.server.server import Server


def list_models(server: Server) -> Response:
    """All of them."""
    fields = {"object": "list", "data": [_model(name) for name in sorted(server.runnables)]}
    return Response(msgspec.json.encode(fields), media_type="application/json")


def get_model(server: Server, name: str) -> Response:
    """One of them. Raises `Problem` 404."""
    if name not in server.runnables:
        raise Problem(404, f"there is no model {name!r}", code="model_not_found")
    return Response(msgspec.json.encode(_model(name)), media_type="application/json")


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "halter"}
