"""Errors as `application/problem+json` (RFC 9457)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from halter.errors import HalterError, SessionBusy, SessionDamaged, SessionNotFound, SessionsUnavailable, UsageError
from halter.server.json_bodies import JsonRequest
from halter.server.names import Names

MEDIA_TYPE = "application/problem+json"
LONGEST_DETAIL = 2_000  # characters
_logger = logging.getLogger("halter.server")


class Problem(Exception):
    """An answer that says what went wrong.

    Args:
        status: the HTTP status.
        detail: what happened, and what to do about it.
        code: a word for programs, such as `run_not_found`.
        retry_after: seconds, sent as `Retry-After`.
        headers: sent as well.
        facts: further members of the JSON object.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        code: str = "",
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
        **facts: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.code = code or HTTPStatus(status).phrase.lower().replace(" ", "_")
        self.retry_after = retry_after
        self.headers = headers or {}
        self.facts = facts

    def response(self) -> Response:
        """The answer."""
        body = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail[:LONGEST_DETAIL].encode("utf-8", "replace").decode(),
            "code": self.code,
            **self.facts,
        }
        headers = {**self.headers, "Cache-Control": "no-store"}
        if self.retry_after is not None:
            headers["Retry-After"] = str(max(1, round(self.retry_after)))
        return Response(msgspec.json.encode(body), self.status, headers, MEDIA_TYPE)


def problem_of(error: Exception) -> Problem:
    """The problem behind an exception; an unexpected one is logged and shown without its text."""
    match error:
        case Problem():
            return error
        case RequestValidationError():
            return _invalid(error)
        case HTTPException():
            return Problem(error.status_code, str(error.detail), headers=error.headers)
        case SessionNotFound():
            return Problem(404, str(error), code="session_not_found")
        case SessionBusy():
            return Problem(409, str(error), code="session_busy", retry_after=1)
        case SessionDamaged():
            return Problem(500, str(error), code="session_damaged")
        case SessionsUnavailable():
            return Problem(503, str(error), code="sessions_unavailable", retry_after=5)
        case UsageError():
            return Problem(422, str(error), code="invalid")
        case HalterError():
            return Problem(500, str(error), code=type(error).__name__)
        case _:
            _logger.error("a request failed", exc_info=error)
            return Problem(500, "the server failed; its log says why")


def _invalid(error: RequestValidationError) -> Problem:
    errors = [
        {"where": ".".join(str(step) for step in each["loc"]), "message": str(each["msg"])}
        for each in error.errors()[:20]
    ]
    is_syntax = any(each["type"] == "json_invalid" for each in error.errors())
    first = f"{errors[0]['where']}: {errors[0]['message']}" if errors else "the request is not valid"
    return Problem(400 if is_syntax else 422, first, code="invalid", errors=errors)


class ProblemRoute(APIRoute):
    """A route whose errors are problems, also in an app that has handlers of its own, and whose JSON is checked."""

    @staticmethod
    def show(problem: Problem) -> Response:
        """The answer that tells of the problem; routes of other protocols show it in theirs."""
        return problem.response()

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_or_explain(request: Request) -> Response:
            try:
                return await handle(JsonRequest(request.scope, request.receive))
            except ClientDisconnect:
                return Response(status_code=499)  # nobody is there to read it
            except Exception as error:  # every error of a route has an answer; see `problem_of`
                return self.show(_as_its_client_knows(problem_of(error), request))

        return handle_or_explain


def _as_its_client_knows(problem: Problem, request: Request) -> Problem:
    """The problem, with the names of sessions as the client has given them."""
    names: Names = getattr(request.state, "halter_names", Names())
    problem.detail = names.in_text(problem.detail)
    return problem


def install_handlers(app: FastAPI) -> None:
    """Has the app answer unknown routes, and whatever else fails outside our routes, with problems too."""

    async def explain(_: Request, error: Exception) -> Response:
        return problem_of(error).response()

    for kind in (HTTPException, RequestValidationError, Problem):
        app.add_exception_handler(kind, explain)
