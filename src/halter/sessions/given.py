"""What a session is given, checked before anything happens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast, get_args

from halter import checked
from halter.checked import name as name
from halter.core.settings import seconds
from halter.errors import ConfigurationError
from halter.sessions.recording import as_data
from halter.sessions.records import FactScope, ScopeKind

KINDS: tuple[ScopeKind, ...] = get_args(ScopeKind)
ALL = 2**48  # more than there can be of anything


def tags(value: Any) -> tuple[str, ...]:
    """Each once, in their order."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ConfigurationError(f"tags must be several names, not {value!r}")
    return tuple(dict.fromkeys(name("a tag", tag) for tag in cast("Iterable[Any]", value)))


def some_tags(value: Any) -> tuple[str, ...]:
    """One tag, several, or `None`: any."""
    if value is None or isinstance(value, str):
        return () if value is None else (value,)
    if not isinstance(value, Iterable):
        raise ConfigurationError(f"tag must be text, or several, not {type(value).__name__}")
    return tuple(checked.text("tag", tag) for tag in cast("Iterable[Any]", value))


def metadata(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"metadata must be a mapping, not {type(value).__name__}")
    return as_data(value, "the metadata")


def user(value: Any) -> str | None:
    return None if value is None else name("user", value)


def scope(value: Any) -> FactScope:
    """Whose facts: a `FactScope`, or the name of a user. Raises `ConfigurationError`."""
    if not isinstance(value, FactScope):
        return FactScope("user", name("the user whose facts these are", value))
    checked.one_of("the kind of a FactScope", value.kind, KINDS)
    name("the name of a FactScope", value.name)
    return value


def title(value: Any) -> str:
    return checked.text("title", value)


def changes(**given: Any) -> dict[str, Any]:
    """The fields of a session, as they are stored. Raises `ConfigurationError`."""
    return {field: _FIELDS[field](value) for field, value in given.items()}


_FIELDS: dict[str, Callable[[Any], Any]] = {
    "user": user,
    "title": title,
    "tags": tags,
    "metadata": metadata,
    "state": as_data,
}


# --- what is looked for -------------------------------------------------------------------------------------


def texts(**given: Any) -> dict[str, Any]:
    """Each text, or `None`: any."""
    return {what: None if value is None else checked.text(what, value) for what, value in given.items()}


def times(**given: Any) -> dict[str, Any]:
    """Each seconds since the epoch, or `None`: any."""
    return {what: seconds(what, value, or_none=True) for what, value in given.items()}


def page(limit: Any, offset: Any) -> dict[str, Any]:
    return {"limit": most(limit), "offset": min(checked.whole("offset", offset, at_least=0), ALL)}


def most(limit: Any) -> int:
    """How many, as every place can count them."""
    return min(checked.whole("limit", limit, at_least=0), ALL)
