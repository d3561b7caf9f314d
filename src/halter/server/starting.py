"""Start a run for a request, and wait for it: what all routes that start runs have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, TypeVar

from starlette.types import Receive

from halter import events
from halter.server.bodies import StartBody
from halter.server.ended import info_of
from halter.server.extras import NOTHING, Extras
from halter.server.port import Begun, RunInfo, RunKey
from halter.server.presence import connection_to
from halter.server.principal import Principal
from halter.server.problems import Problem
from halter.server.server import Server, fingerprint, id_conflict
from halter.server.stream import client_left
from halter.server.views import run_view

T = TypeVar("T")


async def start(
    server: Server, body: StartBody, who: Principal, *, is_waiting: bool, extras: Extras = NOTHING
) -> Begun:
    """Starts a run, or finds the one that this id has started before.

    Args:
        server: where it runs.
        body: the run that is asked for.
        who: who asks.
        is_waiting: the client waits for the end: by default, its leaving stops the run.
        extras: what fronts ask beyond the body.

    Raises:
        Problem: nothing was started. 429 if the tenant has too many runs or open streams, 409 if the session is busy
            and the body does not say to wait, 503 if the database is away.
    """
    if body.stream:
        server.usage.check_streams(who.tenant)  # before the run begins, which else nobody would read or stop
    begun = await server.begin(body, who, is_waiting=is_waiting, extras=extras)
    if begun.result == "new" and _begins_at_once(server, body):
        await _has_begun(server, begun.info.plan.key)
    return begun


async def find_earlier(server: Server, body: StartBody, who: Principal, extras: Extras = NOTHING) -> RunInfo | None:
    """The run of an earlier process that had this id, which never starts another one.

    `None` if the body has no id, or this server's store knows the run. Raises `Problem` 409 if that run was started
    with another body, and if the id is that of another tenant's run or of a live one of another process: a database
    has one record for an id.
    """
    if body.id is None or await server.store.get(key := RunKey(who.tenant, body.id)) is not None:
        return None
    record = await server.sessions.run(key.id)
    if record is None:
        return None
    if not server.is_earlier(record, who.tenant):
        raise Problem(409, f"the id {key.id!r} is taken by a run elsewhere: use another one", code="id_taken")
    info = info_of(record, who.tenant)
    if info.plan.fingerprint not in ("", fingerprint(body, extras)):
        raise id_conflict(key.id)
    return info


def one_start(server: Server, body: StartBody) -> AbstractAsyncContextManager[object]:
    """Within this block no other request that starts a run of this id looks for it, prepares or starts it.

    Two requests with one id at one instant else both find no run, and the second one takes back what the first has
    begun. Ids are shared by tenants, and so is the block.
    """
    return nullcontext() if body.id is None else server.starting.setdefault(body.id, asyncio.Lock())


async def find_started(server: Server, body: StartBody, who: Principal, extras: Extras = NOTHING) -> RunInfo | None:
    """The run that this id has started before, in this process or in an earlier one; raises as `find_earlier` does.

    For fronts that prepare a start, by taking a session back for example: a request that comes again prepares nothing.
    """
    known = None if body.id is None else await server.store.get(RunKey(who.tenant, body.id))
    if known is None:
        return await find_earlier(server, body, who, extras)
    if known.plan.fingerprint != fingerprint(body, extras):
        raise id_conflict(known.plan.key.id)
    return known


def _begins_at_once(server: Server, body: StartBody) -> bool:
    """Whether only a refusal can keep the run from beginning: it waits for nobody, and is stored before it begins."""
    return body.on_busy == "reject" if body.session is not None else server.sessions.is_durable


async def _has_begun(server: Server, key: RunKey) -> None:
    """Waits until the run has begun, or was refused. Raises `Problem`; then nothing is kept."""
    feed = await server.store.feed(key)
    if feed is None:
        return
    await feed.open(0)
    try:
        while found := await feed.next_batch():
            if any(event.run_id == key.id and isinstance(event, events.Started) for event in found):
                return
    finally:
        feed.close()
    info = await server.store.get(key)
    error = run_view(info).error if info is not None else None
    if error is not None and error.type in _REFUSED:
        await server.store.forget(key)
        raise _REFUSED[error.type](error.message)


def _busy(detail: str) -> Problem:
    return Problem(409, detail, code="session_busy", retry_after=1)


def _not_theirs(detail: str) -> Problem:
    return Problem(404, detail, code="session_not_found")


def _away(detail: str) -> Problem:
    return Problem(503, detail, code="sessions_unavailable", retry_after=5)


def _damaged(detail: str) -> Problem:
    return Problem(500, detail, code="session_damaged")


# Errors of runs that were refused before anything was asked of a model.
_REFUSED = {
    "SessionBusy": _busy,
    "SessionNotFound": _not_theirs,
    "SessionsUnavailable": _away,
    "SessionDamaged": _damaged,
}


async def until_over(server: Server, info: RunInfo, receive: Receive, wait: float) -> RunInfo:
    """The run when it is over, the time is up, or the client has gone: then its presence decides what becomes of it.

    Args:
        server: where it runs.
        info: the run.
        receive: of the request, whose end is the client's leaving.
        wait: seconds.
    """
    key = info.plan.key
    await while_connected(server, key, receive, server.store.wait(key, wait))
    return await server.store.get(key) or info


async def while_connected(
    server: Server,
    key: RunKey,
    receive: Receive,
    work: Coroutine[Any, Any, T],
    *,
    expected_within: Callable[[], float | None] = lambda: None,
) -> T | None:
    """The result of `work`, for which the client waits; `None` if it has gone: then its presence decides what becomes
    of the run.

    Args:
        server: where the run is.
        key: the run that the client waits for.
        receive: of the request, whose end is the client's leaving.
        work: what the client waits for; it is cancelled when the client leaves.
        expected_within: called after the work: seconds in which a client has to come back all the same.
    """
    working = asyncio.ensure_future(work)
    listener = asyncio.ensure_future(client_left(receive))
    try:
        with connection_to(server.store.presence(key)) as connection:
            await asyncio.wait((working, listener), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                connection.keep(expected_within())
    finally:
        working.cancel()
        listener.cancel()
        await asyncio.wait((working, listener))
    return None if working.cancelled() else working.result()
