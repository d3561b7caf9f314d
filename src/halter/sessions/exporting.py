"""A session as JSON, to keep elsewhere and to read back: all that was said, in a form that has a name and a version."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from halter.errors import ConfigurationError
from halter.messages import Message
from halter.sessions.port import Conversation
from halter.sessions.records import Checkpoint, Fact, RunRecord, Session

FORMAT = "halter.session"
USER_FORMAT = "halter.user"
VERSION = 1

Export: TypeAlias = dict[str, Any]
ExportInput: TypeAlias = Mapping[str, Any] | str | bytes


class Exported(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an export holds. `messages`: all of them; `compaction`: the newest."""

    format: str
    version: int
    session: Session
    messages: tuple[Message, ...]
    compaction: Checkpoint | None = None


def exported(conversation: Conversation) -> Export:
    """A whole conversation as JSON has it: of lists, mappings with text for keys, text, numbers. Bytes are base64."""
    data = msgspec.to_builtins(
        {
            "format": FORMAT,
            "version": VERSION,
            "session": conversation.session,
            "messages": conversation.messages,
            "compaction": conversation.checkpoint,
        }
    )
    del data["session"]["holder"], data["session"]["messages"]  # of this place, and counted anew
    return json.loads(json.dumps(data))  # unlike msgspec's, it takes half of a surrogate pair, as models write them


def exported_user(
    user: str, sessions: list[Export], damaged: Mapping[str, str], facts: Iterable[Fact], runs: Iterable[RunRecord]
) -> Export:
    """All that is kept of a user. `sessions`: as `exported` gave them; `damaged`: why others could not be read."""
    data = msgspec.to_builtins({"format": USER_FORMAT, "version": VERSION, "user": user, "facts": facts, "runs": runs})
    for fact in data["facts"]:
        del fact["embedding"], fact["scope"]
    for run in data["runs"]:
        del run["owner"]
    not_read = [{"id": id, "why": why} for id, why in damaged.items()]
    return {**json.loads(json.dumps(data)), "sessions": sessions, "damaged": not_read}


def read_export(given: ExportInput) -> Exported:
    """An export, also as JSON text. Raises `ConfigurationError` for anything else, of another version too."""
    data = _parsed(given)
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise ConfigurationError(f'this is no exported session: its "format" is not {FORMAT!r}')
    if data.get("version") != VERSION:
        raise ConfigurationError(f"this session was exported in version {data.get('version')!r}; known is {VERSION}")
    try:
        found = msgspec.convert(data, Exported)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"this exported session is damaged: {error}") from error
    if not all(map(math.isfinite, (found.session.created_at, found.session.updated_at))):  # Python's JSON has NaN
        raise ConfigurationError("this exported session is damaged: its times are no numbers")
    if found.compaction is not None and not 0 <= found.compaction.upto <= len(found.messages):
        raise ConfigurationError(f"this exported session is damaged: it has no message {found.compaction.upto}")
    return found


def _parsed(given: ExportInput) -> Mapping[str, Any] | None:
    if not isinstance(given, str | bytes):
        return given
    try:
        return json.loads(given)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"this is no JSON: {error}") from error
