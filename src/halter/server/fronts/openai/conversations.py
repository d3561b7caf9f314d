"""Conversations: sessions by another name."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from halter.core.ids import new_id
from halter.errors import SessionNotFound
from halter.server.fronts.openai.bodies import ConversationBody
from halter.server.fronts.openai.items import items_of, read_items
from halter.server.fronts.openai.responses import listed
from halter.server.fronts.openai.sessions import make_session
from halter.server.principal import Principal
from halter.server.problems import Problem
from halter.server.server import Server
from halter.sessions.records import Session


async def create_conversation(server: Server, body: ConversationBody, who: Principal) -> Response:
    """Makes a session, with what was said in it before. Raises `Problem`."""
    names, id = server.names(who.tenant), f"conv_{new_id()}"
    messages = read_items(body.items, "items") if body.items else ()
    await make_session(server, names, id, messages, metadata=body.metadata)
    return _shown(await server.sessions.get(names.stored(id)), id)


async def get_conversation(server: Server, id: str, who: Principal) -> Response:
    """One conversation. Raises `Problem` 404."""
    return _shown(await _session(server, id, who), id)


async def update_conversation(server: Server, id: str, body: ConversationBody, who: Principal) -> Response:
    """Replaces its metadata. Raises `Problem` 404."""
    await _session(server, id, who)
    stored = server.names(who.tenant).stored(id)
    return _shown(await server.sessions.update(stored, metadata=body.metadata or {}), id)


async def delete_conversation(server: Server, id: str, who: Principal) -> Response:
    """Stops its runs, and deletes it with all that was said. Raises `Problem` 404."""
    if not await server.delete_session(who, id):
        raise _unknown(id)
    deleted = {"id": id, "object": "conversation.deleted", "deleted": True}
    return Response(msgspec.json.encode(deleted), media_type="application/json")


async def conversation_items(
    server: Server, id: str, who: Principal, *, limit: int, after: str | None, order: str
) -> Response:
    """What was said, the newest first unless `order` is `asc`. Raises `Problem` 404."""
    await _session(server, id, who)
    messages = await server.sessions.history(server.names(who.tenant).stored(id), full=True)
    return listed(items_of(messages, id), limit=limit, after=after, order=order)


async def _session(server: Server, id: str, who: Principal) -> Session:
    try:
        return await server.sessions.get(server.names(who.tenant).stored(id))
    except SessionNotFound as error:
        raise _unknown(id) from error


def _unknown(id: str) -> Problem:
    return Problem(404, f"there is no conversation {id!r}", code="conversation_not_found")


def _shown(session: Session, id: str) -> Response:
    fields: dict[str, Any] = {
        "id": id,
        "object": "conversation",
        "created_at": int(session.created_at),
        "metadata": dict(session.metadata),
    }
    return Response(msgspec.json.encode(fields), media_type="application/json")
