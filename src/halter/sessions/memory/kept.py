"""One session as it is kept in memory: what was said, who has its turn, and who waits for it. Plain data, no lock."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET

from halter.core.owner import is_dead
from halter.errors import UsageError
from halter.messages import Message
from halter.sessions.port import Conversation, Lease
from halter.sessions.records import Checkpoint, FactScope, Session


@dataclass(slots=True)
class Hold:
    """What lasts until `until`, on the store's clock, unless its owner renews it."""

    run_id: str
    owner: str
    until: float

    def is_over(self, now: float) -> bool:
        return self.until <= now or is_dead(self.owner)


@dataclass(slots=True)
class Turn(Hold):
    generation: int


@dataclass(slots=True)
class Place(Hold):
    """A place in the queue."""

    ticket: int
    first: bool


class KeptSession:
    """A session, its messages, its compactions, its turn and its queue."""

    def __init__(
        self,
        session: Session,
        messages: Sequence[Message] = (),
        checkpoint: Checkpoint | None = None,
        known: Mapping[FactScope, int] | None = None,
    ) -> None:
        self.about = copied(session)
        self.messages = list(messages)
        self.checkpoints = [] if checkpoint is None else [checkpoint]
        self.turn: Turn | None = None
        self.queue: dict[int, Place] = {}
        self.known = dict(known or {})  # by scope: up to which message it was learned from

    # --- its turn -------------------------------------------------------------------------------------------

    def is_free(self, ticket: int | None, now: float) -> bool:
        """True if nobody has the turn, and nobody comes before this ticket."""
        for place in [place for place in self.queue.values() if place.is_over(now)]:
            del self.queue[place.ticket]
        if self.turn is not None and not self.turn.is_over(now):
            return False
        ahead = min(self.queue.values(), key=lambda place: (not place.first, place.ticket), default=None)
        return ahead is None or ahead.ticket == ticket

    def is_unused_since(self, before: float, now: float) -> bool:
        return self.about.updated_at < before and self.is_free(None, now)

    def give(self, turn: Turn, ticket: int | None) -> None:
        self.turn = turn
        if ticket is not None:
            self.queue.pop(ticket, None)

    def is_held_by(self, lease: Lease) -> bool:
        turn = self.turn
        return turn is not None and (turn.run_id, turn.generation) == (lease.run_id, lease.generation)

    # --- what was said --------------------------------------------------------------------------------------

    def write(self, at: int, messages: Sequence[Message], state: Any) -> None:
        if at > len(self.messages):
            raise UsageError(f"session {self.about.id!r} has {len(self.messages)} messages: nothing can begin at {at}")
        self.messages[at:] = messages
        self.change({} if state is UNSET else {"state": state})

    def cut(self, to: int, of_run: str | None) -> None:
        del self.messages[to:]
        self.checkpoints = [each for each in self.checkpoints if each.upto <= to and each.run_id != of_run]
        self.known = {scope: min(upto, to) for scope, upto in self.known.items()}
        self.change({})

    def change(self, changes: dict[str, Any]) -> None:
        self.about = copied(msgspec.structs.replace(self.about, **changes, updated_at=time.time()))

    # --- as it is shown -------------------------------------------------------------------------------------

    @property
    def session(self) -> Session:
        holder = self.turn.run_id if self.turn else None
        return copied(msgspec.structs.replace(self.about, messages=len(self.messages), holder=holder))

    def conversation(self, *, full: bool) -> Conversation:
        checkpoint = self.checkpoints[-1] if self.checkpoints else None
        since = checkpoint.upto if checkpoint is not None and not full else 0
        return Conversation(session=self.session, messages=tuple(self.messages[since:]), checkpoint=checkpoint)


def copied(session: Session) -> Session:
    """With data of its own, as it would come back from JSON: what somebody changes afterwards is not what is stored."""
    return msgspec.structs.replace(
        session, tags=tuple(session.tags), metadata=_as_json(session.metadata), state=_as_json(session.state)
    )


def _as_json(value: object) -> Any:
    return msgspec.to_builtins(value, str_keys=True)
