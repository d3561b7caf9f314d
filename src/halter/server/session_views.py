"""Answers about conversations and users."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from halter.messages import Message
from halter.server import examples
from halter.server.names import Names
from halter.server.views import like, plain, shown
from halter.sessions.records import Fact, Hit, Session


class SessionView(BaseModel):
    """A conversation, without its messages. `running`: the run that has its turn."""

    model_config = like(examples.SESSION)

    id: str
    user: str | None
    title: str
    tags: list[str]
    metadata: dict[str, Any]
    messages: int
    running: str | None
    created_at: float
    updated_at: float


class SessionListView(BaseModel):
    """Sessions, the one that was used last first."""

    model_config = like(examples.SESSIONS)

    sessions: list[SessionView]


class MessagesView(BaseModel):
    """What was said in a session, in Halter's own form."""

    model_config = like(examples.MESSAGES)

    messages: list[dict[str, Any]]


class HitView(BaseModel):
    """A message in which something was found."""

    session: str
    position: int
    role: str
    text: str


class HitListView(BaseModel):
    """What a search found."""

    model_config = like(examples.HITS)

    hits: list[HitView]


class FactView(BaseModel):
    """Something that is known of a user. `session`: where it was learned. Times are seconds since the epoch."""

    id: str
    text: str
    session: str | None
    created_at: float
    updated_at: float


class FactListView(BaseModel):
    """Facts, the newest first."""

    model_config = like(examples.FACTS)

    facts: list[FactView]


class DeletedFactsView(BaseModel):
    """How many facts were deleted."""

    model_config = like({"facts": 3})

    facts: int


class DeletedUserView(BaseModel):
    """How many sessions of the user were deleted."""

    model_config = like({"sessions": 2})

    sessions: int


def session_view(session: Session, names: Names) -> SessionView:
    """A session as a client sees it."""
    return SessionView(
        id=names.bare(session.id),
        user=names.bare_or_none(session.user),
        title=shown(session.title),
        tags=list(session.tags),
        metadata=plain(session.metadata),
        messages=session.messages,
        running=session.holder,
        created_at=session.created_at,
        updated_at=session.updated_at,
    )


def messages_view(messages: tuple[Message, ...]) -> MessagesView:
    """Messages as a client sees them."""
    return MessagesView(messages=plain(messages))


def fact_view(fact: Fact, names: Names) -> FactView:
    """A fact as a client sees it."""
    return FactView(
        id=fact.id,
        text=shown(fact.text),
        session=names.bare_or_none(fact.session_id),
        created_at=fact.created_at,
        updated_at=fact.updated_at,
    )


def hit_view(hit: Hit, names: Names) -> HitView:
    """What a search found, as a client sees it."""
    return HitView(session=names.bare(hit.session_id), position=hit.position, role=hit.role, text=shown(hit.text))
