"""What a definition was given, checked: a wrong value is a clear error where the definition is made."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from halter.errors import ConfigurationError

T = TypeVar("T")
LONGEST_NAME = 256  # characters


def text(name: str, value: Any) -> str:
    """The value, if it is text. Raises `ConfigurationError`."""
    if not isinstance(value, str):
        raise ConfigurationError(f"{name} must be text, not {type(value).__name__}")
    return value


def name(what: str, value: Any) -> str:
    """The value, if it is a name: text of 1 to 256 characters that has a form in UTF-8, without NUL."""
    given = text(what, value)
    if not 1 <= len(given) <= LONGEST_NAME:
        raise ConfigurationError(f"{what} must have 1 to {LONGEST_NAME} characters, not {len(given)}")
    if "\0" in given or not _is_utf_8(given):
        raise ConfigurationError(f"{what} must be text that can be stored, not {given!r}")
    return given


def _is_utf_8(given: str) -> bool:
    try:
        given.encode()
    except UnicodeEncodeError:
        return False
    return True


def whole(name: str, value: Any, *, at_least: int) -> int:
    """The value, if it is a whole number, and not too small. Raises `ConfigurationError`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise ConfigurationError(f"{name} must be {at_least} or more, not {value!r}")
    return value


def one_of(name: str, value: T, allowed: tuple[T, ...]) -> T:
    """The value, if it is one of these. Raises `ConfigurationError`."""
    if value not in allowed:
        raise ConfigurationError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")
    return value


def plain_function(name: str, value: Any) -> Any:
    """The value, if it may be called and does not have to be awaited. Raises `ConfigurationError`."""
    method = getattr(value, "__call__", None)  # noqa: B004 - of an object that can be called, its body
    if not callable(value) or inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(method):
        raise ConfigurationError(f"{name} must be a plain function, not {value!r}")
    return value
