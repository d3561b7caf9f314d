"""Defaults for the whole process, by `halter.configure(…)` or the environment (`HALTER_GRACE`, `HALTER_TIMEOUT`)."""

from __future__ import annotations

import os

import msgspec

from halter.errors import ConfigurationError


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """`grace`: seconds that a stop waits before it abandons. `timeout`: seconds for a run, `None` for no limit."""

    grace: float = 5.0
    timeout: float | None = None


def seconds(name: str, value: object, *, or_none: bool = False, above_zero: bool = False) -> float | None:
    """The value as seconds. Raises `ConfigurationError` for what is no such number."""
    if value is None and or_none:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or value != value or value < 0 or (above_zero and value == 0):  # pyright: ignore[reportOperatorIssue]
        least = "more than 0" if above_zero else "0 or more"
        raise ConfigurationError(f"{name} must be {least} seconds, not {value!r}")
    return float(value)  # pyright: ignore[reportArgumentType]


def _from_environment() -> Settings:
    settings = Settings()
    for name in ("grace", "timeout"):
        text = os.environ.get(f"HALTER_{name.upper()}")
        if text:
            settings = msgspec.structs.replace(settings, **{name: _number(f"HALTER_{name.upper()}", text)})
    return settings


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigurationError(f"{name} must be a number of seconds, not {text!r}") from None


_settings: list[Settings] = []


def settings() -> Settings:
    """The settings in force."""
    if not _settings:
        _settings.append(_from_environment())
    return _settings[0]


def configure(*, grace: float | None = None, timeout: float | None = None) -> Settings:
    """Changes the process's defaults for runs made from now on; returns all that is in force.

    `grace`, `timeout`: seconds. What is not given stays. Raises `ConfigurationError`.
    """
    given = {"grace": seconds("grace", grace, or_none=True), "timeout": seconds("timeout", timeout, or_none=True)}
    changes = {name: value for name, value in given.items() if value is not None}
    _settings[:] = [msgspec.structs.replace(settings(), **changes)]
    return _settings[0]
