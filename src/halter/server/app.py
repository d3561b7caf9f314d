"""`create_app` and `mount`: runnables behind HTTP routes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypedDict, Unpack

from fastapi import FastAPI

import halter
from halter import checked
from halter.core.runnable import Runnable
from halter.core.settings import default_sessions, seconds
from halter.errors import ConfigurationError
from halter.server.audit import AuditLog
from halter.server.draining import Draining
from halter.server.fronts import FRONTS
from halter.server.guard import Guard
from halter.server.limits import UNLIMITED, Limits
from halter.server.memory.store import KEEP_RUNS, RETAIN, RETAIN_BYTES, MemoryRunStore
from halter.server.port import RunStore
from halter.server.principal import Auth, everyone
from halter.server.problems import install_handlers
from halter.server.routes.approvals import approvals_router
from halter.server.routes.browser import client_router, page_router
from halter.server.routes.control import control_router
from halter.server.routes.live import live_router
from halter.server.routes.operations import operations_router
from halter.server.routes.runs import runs_router
from halter.server.routes.sessions import sessions_router
from halter.server.routes.users import users_router
from halter.server.routes.watching import watching_router
from halter.server.server import Server, checked_runnables
from halter.server.sole_process import SoleProcess
from halter.sessions.sessions import Sessions

ROUTERS = (
    runs_router,
    watching_router,
    control_router,
    live_router,
    sessions_router,
    users_router,
    approvals_router,
    operations_router,
    *FRONTS,
)
GRACE = 10.0  # seconds
MAX_RUNS = 1_000
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
DESCRIPTION = "Start, stream, answer and stop runs. Every error is `application/problem+json`."

Runnables: TypeAlias = Runnable[Any] | Iterable[Runnable[Any]] | Mapping[str, Runnable[Any]]


class ServerOptions(TypedDict, total=False):
    """What `create_app` and `mount` take beside the runnables.

    sessions: where conversations are kept: a `Sessions`, a path or a database's URL. By default what
        `halter.configure(sessions=…)` says.
    auth: an async function from a request to a `Principal`, or to `None` for a request without a valid key. By default
        everybody is the one tenant and may do everything: for a server that only its own machine reaches.
    store: where runs are kept. By default this process's memory.
    retain: seconds for which the events of an ended run can be read (900).
    retain_bytes: how many bytes of such events, and of what was asked, are kept in all, about (256 MiB).
    keep_runs: how many ended runs are kept in memory at most, with or without their events (10,000). Runs beyond that
        are answered from the database of the sessions, if there is one.
    grace: seconds that live runs have to end by themselves when the server is told to stop (10).
    max_runs: how many runs may be live at once (1,000).
    limits: what each tenant may have at once and spend; by default nothing limits the only tenant of a server without
        keys.
    audit: a file to which every start, stop, answer and change of a session is appended.
    """

    sessions: Sessions | str | None
    auth: Auth | None
    store: RunStore | None
    retain: float
    retain_bytes: int
    keep_runs: int
    grace: float
    max_runs: int
    limits: Limits | None
    audit: str | None


def create_app(
    runnables: Runnables,
    *,
    allowed_hosts: Iterable[str] = LOOPBACK,
    title: str = "Halter",
    page: bool = True,
    **options: Unpack[ServerOptions],
) -> FastAPI:
    """Makes an app that starts, streams and stops these runnables: `uvicorn module:app`.

    Args:
        runnables: agents, crews, teams, flows or functions; one, several, or by names of your own.
        allowed_hosts: which `Host` headers are served; `*` for any.
        title: the name of the API.
        page: whether the dashboard is served at `/`.
        options: see `ServerOptions`.

    Returns:
        A FastAPI app. Its `/openapi.json` describes the routes.

    Raises:
        ConfigurationError: if an argument cannot be.
    """
    app = FastAPI(title=title, version=halter.__version__, description=DESCRIPTION)
    install_handlers(app)
    mount(app, runnables, page=page, **options)
    app.add_middleware(Guard, allowed_hosts=tuple(allowed_hosts))
    return app


def mount(
    app: FastAPI, runnables: Runnables, *, prefix: str = "", page: bool = False, **options: Unpack[ServerOptions]
) -> Server:
    """Adds the routes to an app of your own, and ends their runs with it.

    Args:
        app: your app. Its lifespan goes on working as before.
        runnables: agents, crews, teams, flows or functions; one, several, or by names of your own.
        prefix: a path that the routes get in front, such as `/agents`.
        page: whether the dashboard is served at the prefix, with a slash behind it.
        options: see `ServerOptions`.

    Returns:
        The server behind the routes.

    Raises:
        ConfigurationError: if an argument cannot be.
    """
    server, draining = _made(runnables, **options)
    pages = [page_router()] if page else []
    for router in (*(make(server) for make in ROUTERS), client_router(), *pages):
        app.include_router(router, prefix=prefix)
    _live_with(app, server, draining)
    app.state.halter = server
    return server


def _made(
    runnables: Runnables,
    *,
    sessions: Sessions | str | None = None,
    auth: Auth | None = None,
    store: RunStore | None = None,
    retain: float = RETAIN,
    retain_bytes: int = RETAIN_BYTES,
    keep_runs: int = KEEP_RUNS,
    grace: float = GRACE,
    max_runs: int = MAX_RUNS,
    limits: Limits | None = None,
    audit: str | None = None,
) -> tuple[Server, Draining]:
    server = Server(
        checked_runnables(runnables),
        store=store
        or MemoryRunStore(
            retain=seconds("retain", retain) or 0.0,
            retain_bytes=checked.whole("retain_bytes", retain_bytes, at_least=0),
            keep_runs=checked.whole("keep_runs", keep_runs, at_least=0),
        ),
        sessions=_sessions(sessions),
        auth=auth or everyone,
        max_runs=checked.whole("max_runs", max_runs, at_least=0),
        limits=limits or (Limits() if auth else UNLIMITED),
        audit=AuditLog(audit),
    )
    return server, Draining(server, seconds("grace", grace) or 0.0)


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
            server.is_draining = False  # an app may live again, as in tests
            server.audit.open()
            draining.watch_signals()
            await server.readiness.begin()
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
