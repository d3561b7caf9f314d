"""What a termination was given, checked."""

from __future__ import annotations

from collections.abc import Sequence

from halter import checked
from halter.errors import ConfigurationError


def checked_words(name: str, given: str) -> str:
    """The text, if there is something in it. Raises `ConfigurationError`."""
    if not checked.text(name, given).strip():
        raise ConfigurationError(f"{name} must not be empty")
    return given


def checked_names(name: str, given: Sequence[str]) -> tuple[str, ...]:
    """The names; one alone may be given as it is. Raises `ConfigurationError`."""
    all_given = (given,) if isinstance(given, str) else given
    return tuple(checked_words(name, each) for each in all_given)


def counts(name: str | None, by: tuple[str, ...]) -> bool:
    """True if it counts what `name` says: `by` is empty for all."""
    return not by or name in by
