"""What the OpenAPI document says of errors, and answers that several routes give."""

from __future__ import annotations

from copy import deepcopy
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from halter.server import examples
from halter.server.bodies import ID
from halter.server.port import RunInfo
from halter.server.problems import MEDIA_TYPE
from halter.server.views import RunView, run_view

# Query parameters that several routes have.
OfSession = Annotated[str | None, Query(pattern=ID, description="only of this session")]
OfUser = Annotated[str | None, Query(pattern=ID, description="only of this user")]
OfTag = Annotated[str | None, Query(max_length=64, description="only with this tag")]
Limit = Annotated[int, Query(ge=1, le=200, description="how many at most")]


class ProblemView(BaseModel):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: str


_SCHEMA = ProblemView.model_json_schema()  # made once: it takes far longer than a copy
_DETAILS = {
    400: "The body is not JSON.",
    401: "There is no valid key.",
    403: "The key lacks a scope.",
    404: "There is no such run or session of yours.",
    409: "It conflicts with what is there.",
    412: "The epoch is another one.",
    413: "The body is too large.",
    422: "The request is not valid.",
    429: "Too much at once; `Retry-After` says when to try again.",
    503: "The server takes no new runs now, or a database is away.",
}
ALWAYS = (400, 401, 403, 413, 422, 429, 503)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses=` of a route that may answer with these problems, and with those that any route may."""
    return {
        status: {
            "description": _DETAILS[status],
            "content": {MEDIA_TYPE: {"schema": deepcopy(_SCHEMA), "example": _example(status)}},
        }
        for status in sorted({*ALWAYS, *statuses})
    }


def _example(status: int) -> dict[str, Any]:
    title = HTTPStatus(status).phrase
    return examples.problem(status, title, _DETAILS[status], title.lower().replace(" ", "_"))


def shown_as(example: Any) -> dict[str, Any]:
    """What `responses=` says of a JSON answer without a model."""
    return {"content": {"application/json": {"example": example}}}


def run_response(request: Request, info: RunInfo, status: int, *, effective: bool | None = None) -> Response:
    """A run as an answer, with its address."""
    view: RunView = run_view(info, effective=effective)
    headers = {"Halter-Run-Id": view.id, "Cache-Control": "no-store"}
    if status in (201, 202):
        mounted_at = request.url.path.rpartition("/v1/runs")[0]
        headers["Location"] = f"{mounted_at}/v1/runs/{view.id}"
    return Response(view.model_dump_json(), status, headers, "application/json")
