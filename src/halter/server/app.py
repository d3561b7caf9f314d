"""`create_app` and `mount`: runnables behind HTTP routes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

import halter
from halter.core.runnable import Runnable
from halter.core.settings import default_sessions, seconds
from halter.errors import ConfigurationError
from halter.server.audit import AuditLog
from halter.server.draining import Draining
from halter.server.fronts import FRONTS
from halter.server.guard import Guard
from halter.server.limits import UNLIMITED, Limits
from halter.server.memory.store import MemoryRunStore
from halter.server.port import RunStore
from halter.server.principal import Auth, everyone
from halter.server.problems import install_handlers
from halter.server.routes.browser import client_router, page_router
from halter.server.routes.control import control_router
from halter.server.routes.live import live_router
from halter.server.routes.operations import operations_router
from halter.server.routes.runs import runs_router
from halter.server.routes.sessions import sessions_router
from halter.server.routes.users import users_router
from halter.server.server import Server, checked_runnables
from halter.server.sole_process import SoleProcess
from halter.sessions.sessions import Sessions

ROUTERS = (runs_router, control_router, live_router, sessions_router, users_router, operations_router, *FRONTS)
RETAIN = 900.0
RETAIN_BYTES = 256 * 1024 * 1024
GRACE = 10.0
MAX_RUNS = 1_000


def create_app(
    runnables: Runnable[Any] | Iterable[Runnable[Any]] | Mapping[str, Runnable[Any]],
    *,
    sessions: Sessions | str | None = None,
    auth: Auth | None = None,
    store: RunStore | None = None,
    retain: float = RETAIN,
    retain_bytes: int = RETAIN_BYTES,
    grace: float = GRACE,
    max_runs: int = MAX_RUNS,
    limits: Limits | None = None,
    audit: str | None = None,
    allowed_hosts: Iterable[str] = ("localhost", "127.0.0.1", "[::1]"),
    title: str = "Halter",
    page: bool = True,
) -> FastAPI:
    """Makes an app that starts, streams and stops these runnables: `uvicorn module:app`.

    Args:
        runnables: agents, crews, teams, flows or functions; one, several, or by names of your own.
        sessions: where conversations are kept: a `Sessions`, a path or a database's URL. By default what
            `halter.configure(sessions=…)` says.
        auth: an async function from a request to a `Principal`, or to `None` for a request without a valid key. By
            default everybody is the one tenant and may do everything: for a server that only its own machine reaches.
        store: where runs are kept. By default this process's memory.
        retain: seconds for which the events of an ended run can be read.
        retain_bytes: how many bytes of such events are kept in all, about.
        grace: seconds that live runs have to end by themselves when the server is told to stop.
        max_runs: how many runs may be live at once.
        limits: what each tenant may have at once and spend; by default nothing limits the only tenant of a server
            without keys.
        audit: a file to which every start, stop, answer and deletion is appended.
        allowed_hosts: which `Host` headers are served; `*` for any.
        title: the name of the API.
        page: whether the dashboard is served at `/`.

    Returns:
        A FastAPI app. Its `/openapi.json` describes the routes.

    Raises:
        ConfigurationError: if an argument cannot be.
    """
    app = FastAPI(title=title, version=halter.__version__, description=DESCRIPTION)
    install_handlers(app)
    mount(
        app,
        runnables,
        sessions=sessions,
        auth=auth,
        store=store,
        retain=retain,
        retain_bytes=retain_bytes,
        grace=grace,
        max_runs=max_runs,
        limits=limits,
        audit=audit,
        page=page,
    )
    app.add_middleware(Guard, allowed_hosts=tuple(allowed_hosts))
    return app


DESCRIPTION = "Start, stream, answer and stop runs. Every error is `application/problem+json`."


def mount(
    app: FastAPI,
    runnables: Runnable[Any] | Iterable[Runnable[Any]] | Mapping[str, Runnable[Any]],
    *,
    sessions: Sessions | str | None = None,
    auth: Auth | None = None,
    store: RunStore | None = None,
    retain: float = RETAIN,
    retain_bytes: int = RETAIN_BYTES,
    grace: float = GRACE,
    max_runs: int = MAX_RUNS,
    limits: Limits | None = None,
    audit: str | None = None,
    prefix: str = "",
    page: bool = False,
) -> Server:
    """Adds the routes to an app of your own, and ends their runs with it.

    Args:
        app: your app. Its lifespan goes on working as before.
        prefix: a path that the routes get in front, such as `/agents`.
        page: whether the dashboard is served at the prefix, with a slash behind it.

    The other arguments are those of `create_app`. Raises `ConfigurationError`.
    """
    server = Server(
        checked_runnables(runnables),
        store=store or MemoryRunStore(retain=seconds("retain", retain) or 0.0, retain_bytes=retain_bytes),
        sessions=_sessions(sessions),
        auth=auth or everyone,
        max_runs=max_runs,
        limits=limits or (Limits() if auth else UNLIMITED),
        audit=AuditLog(audit),
    )
    pages = [page_router()] if page else []
    for router in (*(make(server) for make in ROUTERS), client_router(), *pages):
        app.include_router(router, prefix=prefix)
    _live_with(app, server, Draining(server, seconds("grace", grace) or 0.0))
    app.state.halter = server
    return server


def _sessions(given: object) -> Sessions:
    if given is None:
        return default_sessions()
    if isinstance(given, str):
        return Sessions(given)
    if not isinstance(given, Sessions):
        raise ConfigurationError(f"sessions must be a Sessions, a path or a URL, not {type(given).__name__}")
    return given


def _live_with(app: FastAPI, server: Server, draining: Draining) -> None:
    """The server begins and ends with the app, around the lifespan that the app has already."""
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[Any]:
        sole = SoleProcess() if isinstance(server.store, MemoryRunStore) else None
        async with inner(app) as state:
            draining.watch_signals()
            server.is_ready = True
            try:
                yield state
            finally:
                draining.unwatch_signals()
                server.is_draining = True
                await draining.stop_all()
                await server.store.aclose()
                server.audit.close()
                if sole is not None:
                    sole.release()

    app.router.lifespan_context = lifespan
