"""`previous_response_id` and `conversation` as sessions.

A response that continues the newest one of a session goes on with that session. One that continues an earlier response
gets a session of its own, which begins as that one did up to there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from halter.errors import SessionNotFound
from halter.messages import Message
from halter.server.fronts.openai.bodies import ResponseBody
from halter.server.fronts.openai.errors import refusal
from halter.server.fronts.openai.response_object import PREFIX, response_id, run_id_in
from halter.server.names import Names
from halter.server.port import RunKey
from halter.server.principal import Principal
from halter.server.problems import Problem
from halter.server.server import Server
from halter.sessions.records import RunRecord

MOST_RUNS = 10_000  # of one session


class Continued(NamedTuple):
    """What a response goes on with: a session, or earlier messages without one.

    `conversation`: as the client named it.
    """

    session: str | None
    history: tuple[Message, ...] = ()
    conversation: str | None = None


async def continued(server: Server, body: ResponseBody, who: Principal, run_id: str) -> Continued:
    """What the request goes on with; the same, if it comes again. `run_id`: of its response. Raises `Problem`."""
    stored = body.store is not False
    if body.previous_response_id and body.conversation:
        raise refusal("give previous_response_id or conversation, not both", "previous_response_id")
    if body.background and not stored:
        raise refusal("a response in the background must be stored: leave store out", "store")
    if body.conversation:
        return await _conversation(server, body.conversation, who, stored=stored)
    if body.previous_response_id:
        return await _previous(server, body.previous_response_id, who, run_id, stored=stored)
    return Continued(response_id(run_id) if stored else None)


def conversation_id(given: str | dict[str, Any]) -> str:
    """The id of a conversation, as text or as `{"id": …}`. Raises `Problem` 400."""
    id = given.get("id") if isinstance(given, dict) else given
    if not isinstance(id, str):
        raise refusal("conversation must be an id", "conversation")
    return id


async def _conversation(server: Server, given: str | dict[str, Any], who: Principal, *, stored: bool) -> Continued:
    id = conversation_id(given)
    names = server.names(who.tenant)
    try:
        await server.sessions.get(names.stored(id))
    except SessionNotFound as error:
        raise Problem(404, f"there is no conversation {id!r}", code="conversation_not_found") from error
    if stored:
        return Continued(id, conversation=id)
    return Continued(None, await server.sessions.history(names.stored(id)), id)


async def _previous(server: Server, previous: str, who: Principal, run_id: str, *, stored: bool) -> Continued:
    names, record = server.names(who.tenant), await _record(server, previous, who)
    assert record.session_id is not None
    end = await _end_of(server, record, run_id)
    if end is None and stored:
        return Continued(names.bare(record.session_id))
    messages = (await server.sessions.history(record.session_id, full=True))[:end]
    if not stored:
        return Continued(None, messages)
    own = response_id(run_id)
    await make_session(server, names, own, messages, user=record.user)
    return Continued(own)


async def _record(server: Server, previous: str, who: Principal) -> RunRecord:
    """The record of the response's run. Raises `Problem` 404, and 400 for one that was not stored."""
    id = run_id_in(previous)
    if await server.get_run(RunKey(who.tenant, id)) is None:
        raise Problem(404, f"there is no response {previous!r}", code="previous_response_not_found")
    record = await server.record_of(RunKey(who.tenant, id))
    if record is None or record.session_id is None:
        raise refusal(f"response {previous!r} was not stored: it cannot be continued", "previous_response_id")
    return record


async def _end_of(server: Server, record: RunRecord, run_id: str) -> int | None:
    """With how many messages the session stood at the end of a run; `None`: no run but `run_id` came after it."""
    runs = await server.sessions.runs(session=record.session_id, since=record.started_at, limit=MOST_RUNS)
    later = [
        run.base
        for run in runs
        if run.run_id not in (record.run_id, run_id) and run.base >= record.base and run.started_at >= record.started_at
    ]
    return min(later, default=None)


async def make_session(
    server: Server,
    names: Names,
    id: str,
    messages: tuple[Message, ...],
    *,
    user: str | None = None,
    metadata: dict[str, str] | None = None,
) -> None:
    """Makes a session of these messages, unless it is there: a request that comes again finds what it has made."""
    stored = names.stored(id)
    try:
        await server.sessions.get(stored)
    except SessionNotFound:
        await server.sessions.create(stored, user=user, metadata=metadata or {}, messages=messages)


def is_own(session: str | None, run_id: str) -> bool:
    """True for the session that was made for this response alone."""
    return session == PREFIX + run_id
