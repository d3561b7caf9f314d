"""What a step waits for: one source, all of several, or any of them. Pure.

A source is the name of a step, which has ended, or a label, which a router has chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from halter.errors import ConfigurationError


class Named(Protocol):
    """A step, as others refer to it."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class All:
    """Met when all of its parts are."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """Met when one of its parts is."""

    parts: tuple[Condition, ...]


Condition: TypeAlias = str | All | Either
Source: TypeAlias = Named | str | All | Either


def and_(*sources: Source) -> All:
    """All of these: met once each has come, since it was met last; in whatever order they come.

    A source is a step, the name of one, a label, or another `and_` or `or_`. The step that listens gets their values
    as a tuple, in this order; of a source that has come twice, the later one. Raises `ConfigurationError`.
    """
    return All(_parts("and_", sources))


def or_(*sources: Source) -> Either:
    """Any of these: met each time that one comes. The step that listens gets the value of that one.

    Sources are those of `and_`. Raises `ConfigurationError`.
    """
    return Either(_parts("or_", sources))


def _parts(what: str, sources: tuple[Source, ...]) -> tuple[Condition, ...]:
    if len(sources) < 2:
        raise ConfigurationError(f"{what} takes two sources or more, not {len(sources)}")
    return tuple(condition_of(source) for source in sources)


def condition_of(source: Source) -> Condition:
    """The condition that somebody has written down. Raises `ConfigurationError`."""
    if isinstance(source, All | Either):
        return source
    name = source if isinstance(source, str) else getattr(source, "name", None)
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"a step listens to steps, to labels, to and_(…) and or_(…), not to {source!r}")
    return name


def sources_of(condition: Condition) -> Iterator[str]:
    """All that are named in it."""
    if isinstance(condition, str):
        yield condition
    else:
        for part in condition.parts:
            yield from sources_of(part)


def is_met(condition: Condition, arrived: Mapping[str, Any]) -> bool:
    """True if what has arrived is enough."""
    match condition:
        case str():
            return condition in arrived
        case All(parts):
            return all(is_met(part, arrived) for part in parts)
        case Either(parts):
            return any(is_met(part, arrived) for part in parts)


def value_of(condition: Condition, arrived: Mapping[str, Any]) -> Any:
    """What a step gets of a condition that is met."""
    match condition:
        case str():
            return arrived[condition]
        case All(parts):
            return tuple(value_of(part, arrived) for part in parts)
        case Either(parts):
            return next(value_of(part, arrived) for part in parts if is_met(part, arrived))
