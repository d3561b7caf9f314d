"""A conversation as it is shown to a reader: whole also where nobody came to end it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from halter.core.history import seal, seal_lost, seal_unfinished
from halter.errors import SessionDamaged
from halter.messages import Message
from halter.sessions.port import Conversation, Snapshot
from halter.sessions.records import RunRecord


def as_left(found: Conversation, lost: Iterable[RunRecord]) -> Conversation:
    """A whole conversation, loaded in full, as it will be once the turns of these lost runs were repaired."""
    said, checkpoint = found.messages, found.checkpoint
    for record in last_first(lost):
        if record.keep == "rollback":
            said = said[: record.base]
            is_kept = checkpoint is not None and checkpoint.run_id != record.run_id and checkpoint.upto <= len(said)
            checkpoint = checkpoint if is_kept else None
        else:
            at, end = seal_lost(said[record.base :])
            said = (*said[: record.base + at], *end)
    return replace(found, session=replace(found.session, messages=len(said)), messages=said, checkpoint=checkpoint)


def as_next_found(seen: Snapshot) -> Conversation:
    """A whole conversation as the next run will find it, if no turn is under way."""
    return as_left(seen.conversation, seen.lost) if seen.lost else seen.conversation


def as_read(seen: Snapshot) -> Conversation:
    """A whole conversation in a form that every provider accepts, also in the middle of a turn."""
    found = as_next_found(seen)
    if seen.live is None:
        return sealed(found)
    at, end = seal_unfinished(found.messages)
    return replace(found, messages=(*found.messages[:at], *end))


def over(seen: Snapshot) -> Conversation:
    """A whole conversation without the turn that is under way: half of it would pass for all of it."""
    found, live = as_next_found(seen), seen.live
    if live is not None and live.error is not None:  # it is made up: where its turn has begun is not known
        id = found.session.id
        raise SessionDamaged(f"session {id!r}: {live.error.message}, and it has the session's turn", session_id=id)
    return found if live is None else _before(found, live)


def _before(found: Conversation, live: RunRecord) -> Conversation:
    said, checkpoint = found.messages[: live.base], found.checkpoint
    is_kept = checkpoint is not None and checkpoint.run_id != live.run_id
    session = replace(found.session, messages=len(said), state=None)
    return replace(found, session=session, messages=said, checkpoint=checkpoint if is_kept else None)


def last_first(lost: Iterable[RunRecord]) -> list[RunRecord]:
    """As they are repaired: what is cut off a turn must not be what an earlier one was sealed with."""
    return sorted(lost, key=lambda record: (record.base, record.started_at), reverse=True)


def compacted(found: Conversation) -> Conversation:
    """The same, of what was loaded in full, as if it had not been."""
    since = found.checkpoint.upto if found.checkpoint is not None else 0
    return replace(found, messages=found.messages[since:])


def sealed(found: Conversation) -> Conversation:
    """With results for the calls at its end."""
    end = seal(found.messages)
    return found if end is None else replace(found, messages=(*found.messages, end))


def as_told(found: Conversation, *, full: bool) -> tuple[Message, ...]:
    """What a model would see of it; `full`: what was said."""
    summary = found.checkpoint.messages if found.checkpoint is not None and not full else ()
    return (*summary, *found.messages)
