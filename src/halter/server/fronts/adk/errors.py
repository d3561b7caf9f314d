"""Problems as ADK's server shows them: `{"detail": …}`."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from halter.server.problems import LONGEST_DETAIL, Problem, ProblemRoute


class AdkRoute(ProblemRoute):
    """A route whose errors have ADK's shape."""

    @staticmethod
    def show(problem: Problem) -> Response:
        """See `ProblemRoute.show`."""
        return shown(problem)


def shown(problem: Problem) -> Response:
    """The answer that tells of the problem."""
    headers = {"Cache-Control": "no-store"}
    if problem.retry_after is not None:
        headers["Retry-After"] = str(max(1, round(problem.retry_after)))
    body = msgspec.json.encode({"detail": _detail(problem), "code": problem.code})
    return Response(body, problem.status, headers, "application/json")


def _detail(problem: Problem) -> Any:
    """As text; of a request that is not valid a list, as FastAPI makes it."""
    errors: list[dict[str, str]] = problem.facts.get("errors", [])
    if errors:
        return [{"type": "value_error", "loc": each["where"].split("."), "msg": each["message"]} for each in errors]
    return problem.detail[:LONGEST_DETAIL].encode("utf-8", "replace").decode()
