"""Defaults for the whole process, by `halter.configure(…)` or the environment (`HALTER_GRACE`, `HALTER_TIMEOUT`)."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

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
    number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not math.isfinite(number) or number < 0 or (above_zero and number == 0):
        least = "more than 0" if above_zero else "0 or more"
        raise ConfigurationError(f"{name} must be {least} seconds, not {value!r}")
    return number


def _from_environment() -> Settings:
    variables = {name: f"HALTER_{name.upper()}" for name in ("grace", "timeout")}
    given = {name: _number(variable) for name, variable in variables.items() if os.environ.get(variable)}
    return _checked(Settings(), given)


def _number(variable: str) -> float:
    text = os.environ[variable]
    try:
        return float(text)
    except ValueError:
        raise ConfigurationError(f"{variable} must be a number of seconds, not {text!r}") from None


def _checked(before: Settings, given: Mapping[str, float | None]) -> Settings:
    """`before` with the changes. Raises `ConfigurationError`."""
    if "grace" in given:
        before = msgspec.structs.replace(before, grace=seconds("grace", given["grace"]) or 0.0)
    if "timeout" in given:
        timeout = seconds("timeout", given["timeout"], or_none=True, above_zero=True)
        before = msgspec.structs.replace(before, timeout=timeout)
    return before


_settings: list[Settings] = []


def settings() -> Settings:
    """The settings in force."""
    if not _settings:
        _settings.append(_from_environment())
    return _settings[0]


class _Unchanged:
    def __repr__(self) -> str:
        return "unchanged"


UNCHANGED = _Unchanged()


def configure(*, grace: float | _Unchanged = UNCHANGED, timeout: float | _Unchanged | None = UNCHANGED) -> Settings:
    """Changes the process's defaults for runs made from now on; returns all that is in force.

    `grace`: seconds. `timeout`: seconds, `None` for no limit. What is not given stays. Raises `ConfigurationError`.
    """
    given = {"grace": grace, "timeout": timeout}
    changes = {name: value for name, value in given.items() if not isinstance(value, _Unchanged)}
    _settings[:] = [_checked(settings(), changes)]
    return _settings[0]
