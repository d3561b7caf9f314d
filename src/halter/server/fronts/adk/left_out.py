"""Routes of ADK's API server that are left out: they answer 501, and say what to use instead."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from halter.server.fronts.adk.errors import shown
from halter.server.problems import Problem
from halter.server.server import Server

APP, SESSION = "/apps/{app}", "/apps/{app}/users/{user}/sessions/{session}"
LEFT_OUT = {
    SESSION
    + "/artifacts": "artifacts are not supported: return files from a tool, or keep them in a store of your own",
    SESSION + "/events": "graphs of events are not supported",
    APP + "/users/{user}/memory": "memory is not filled by request: give the agent facts, see its `facts` argument",
    APP + "/eval_sets": "evaluations are not supported",
    APP + "/eval-sets": "evaluations are not supported",
    APP + "/eval_results": "evaluations are not supported",
    APP + "/eval-results": "evaluations are not supported",
    APP + "/eval_metrics": "evaluations are not supported",
    APP + "/metrics-info": "evaluations are not supported",
    APP + "/trigger": "triggers are not supported: start runs with POST /v1/runs",
    "/dev": "the routes of ADK's development server are not supported",
    "/debug": "traces are not kept: export them with `halter serve --otel`",
    "/builder": "the agent builder is not supported",
    "/agent-identity": "the agent identity connector is not supported",
    "/api/reasoning_engine": "the routes of Agent Engine are not supported",
    "/api/stream_reasoning_engine": "the routes of Agent Engine are not supported",
}
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


def add_left_out(router: APIRouter, server: Server) -> None:
    """Adds them, with all routes below them. They need a key as others do."""

    def add(path: str, reason: str) -> None:
        async def left_out(request: Request) -> Response:
            try:
                await server.principal(request, "read")
            except Problem as problem:
                return shown(problem)
            return shown(Problem(501, reason, code="unsupported"))

        # Starlette's own routes: they have nothing to be read from the request, and an app makes them in no time.
        for each in (path, path + "/{rest:path}"):
            router.add_route(each, left_out, methods=METHODS, include_in_schema=False)

    for path, reason in LEFT_OUT.items():
        add(path, reason)
