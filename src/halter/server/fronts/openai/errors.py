"""Problems in OpenAI's shape: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from halter.events import Failure
from halter.server.problems import LONGEST_DETAIL, Problem, ProblemRoute

_STATUSES = {422: 400}  # OpenAI has no 422
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_CODES = {
    "unknown_agent": "model_not_found",
    "unauthorized": "invalid_api_key",
    "budget_spent": "insufficient_quota",
    "too_many": "rate_limit_exceeded",
    "invalid": None,
}
# Failures of a run that the request is at fault for, by the exception's class.
_FAULTS_OF_THE_REQUEST = {
    "ContextTooLong": "context_length_exceeded",
    "ConfigurationError": "invalid_request",
    "RequestRejected": "invalid_request",
}


class OpenAIRoute(ProblemRoute):
    """A route whose errors have OpenAI's shape."""

    @staticmethod
    def show(problem: Problem) -> Response:
        """The answer: its status tells OpenAI's clients whether to try again, as does `x-should-retry`."""
        status = 404 if problem.code == "unknown_agent" else _STATUSES.get(problem.status, problem.status)
        response = Response(
            msgspec.json.encode({"error": _error_of(problem, status)}),
            status,
            {"Cache-Control": "no-store"},
            "application/json",
        )
        if problem.retry_after is not None:
            response.headers["Retry-After"] = str(max(1, round(problem.retry_after)))
        if status >= 500 or status == 409:
            response.headers["x-should-retry"] = "true" if problem.retry_after is not None else "false"
        return response


def _error_of(problem: Problem, status: int) -> dict[str, Any]:
    kind = "server_error" if status >= 500 else _TYPES.get(status, "invalid_request_error")
    return {
        "message": problem.detail[:LONGEST_DETAIL].encode("utf-8", "replace").decode(),
        "type": "insufficient_quota" if problem.code == "budget_spent" else kind,
        "param": problem.facts.get("param"),
        "code": _CODES.get(problem.code, problem.code),
    }


def refusal(detail: str, param: str | None, code: str = "invalid") -> Problem:
    """A 400 that names the parameter."""
    return Problem(400, detail, code=code, param=param)


def problem_of_failure(failure: Failure) -> Problem:
    """How a run that failed is answered, when nothing of its answer was sent yet."""
    if (code := _FAULTS_OF_THE_REQUEST.get(failure.type)) is not None:
        return Problem(400, failure.message, code=code)
    retry_after = 1.0 if failure.retryable else None
    if failure.type == "RateLimited":
        return Problem(429, failure.message, code="rate_limit_exceeded", retry_after=retry_after)
    return Problem(502, failure.message or failure.type, code=failure.type, retry_after=retry_after)


def error_of_failure(failure: Failure) -> dict[str, Any]:
    """How a run that failed is told in the middle of a stream."""
    problem = problem_of_failure(failure)
    return _error_of(problem, problem.status)
