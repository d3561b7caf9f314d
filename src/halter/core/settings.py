"""Defaults for the whole process, by `halter.configure(…)` or the environment.

`HALTER_GRACE`, `HALTER_TIMEOUT`: seconds; `HALTER_SESSIONS`: where sessions are kept.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from halter import checked
from halter.core.history import MARKER
from halter.errors import ConfigurationError

if TYPE_CHECKING:
    from halter.core.ports import SessionRef


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """`grace`: seconds that a stop waits before it abandons. `timeout`: seconds for a run, `None` for no limit.

    `sessions`: where sessions are kept: `"memory"`, a path, a database's URL, or a `Sessions`. `record_runs`: runs
    without a session have a record there too. `stop_marker`: how a model is told that its last answer was stopped.
    """

    grace: float = 5.0
    timeout: float | None = None
    sessions: Any = "memory"
    record_runs: bool = False
    stop_marker: str = MARKER


def seconds(name: str, value: object, *, or_none: bool = False, above_zero: bool = False) -> float | None:
    """The value as seconds. Raises `ConfigurationError` for what is no such number."""
    if value is None and or_none:
        return None
    try:
        number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:  # a whole number beyond what a float can be
        number = math.inf
    if not math.isfinite(number) or number < 0 or (above_zero and number == 0):
        least = "more than 0" if above_zero else "0 or more"
        raise ConfigurationError(f"{name} must be {least} seconds, not {value!r}")
    return number


def _from_environment() -> Settings:
    variables = {name: f"HALTER_{name.upper()}" for name in ("grace", "timeout")}
    given: dict[str, Any] = {
        name: _number(variable) for name, variable in variables.items() if os.environ.get(variable)
    }
    if os.environ.get("HALTER_SESSIONS"):
        given["sessions"] = os.environ["HALTER_SESSIONS"]
    return _checked(Settings(), given)


def _number(variable: str) -> float:
    text = os.environ[variable]
    try:
        return float(text)
    except ValueError:
        raise ConfigurationError(f"{variable} must be a number of seconds, not {text!r}") from None


def _checked(before: Settings, given: Mapping[str, Any]) -> Settings:
    """`before` with the changes. Raises `ConfigurationError`."""
    changes = dict(given)
    if "grace" in given:
        changes["grace"] = seconds("grace", given["grace"]) or 0.0
    if "timeout" in given:
        changes["timeout"] = seconds("timeout", given["timeout"], or_none=True, above_zero=True)
    if "record_runs" in given:
        checked.one_of("record_runs", given["record_runs"], (True, False))
    if "stop_marker" in given:
        checked.text("stop_marker", given["stop_marker"])
    return msgspec.structs.replace(before, **changes)


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


def configure(
    *,
    grace: float | _Unchanged = UNCHANGED,
    timeout: float | _Unchanged | None = UNCHANGED,
    sessions: Any = UNCHANGED,
    record_runs: bool | _Unchanged = UNCHANGED,
    stop_marker: str | _Unchanged = UNCHANGED,
) -> Settings:
    """Changes the process's defaults for runs made from now on; returns all that is in force.

    `grace`: seconds. `timeout`: seconds, `None` for no limit. `sessions`: where sessions are kept: `"memory"`, the path
    of an SQLite file, a database's URL, or a `halter.sessions.Sessions`. `record_runs`: whether runs without a session
    have a record there too. `stop_marker`: the words by which a model is told that its last answer was stopped. What
    is not given stays. Raises `ConfigurationError`.
    """
    given = {
        "grace": grace,
        "timeout": timeout,
        "sessions": sessions,
        "record_runs": record_runs,
        "stop_marker": stop_marker,
    }
    changes = {name: value for name, value in given.items() if not isinstance(value, _Unchanged)}
    after = _checked(settings(), changes)
    if "sessions" in changes:
        _sessions[:] = [_opened(after.sessions)]
    _settings[:] = [after]
    return after


# --- sessions -----------------------------------------------------------------------------------------------

_SESSIONS = "halter.sessions"  # named, and not imported: the core knows no adapter
_sessions: list[Any] = []


def default_sessions() -> Any:
    """The `Sessions` that are configured; else those in this process's memory. Raises `ConfigurationError`."""
    if not _sessions:
        _sessions.append(_opened(settings().sessions))
    return _sessions[0]


def _opened(where: Any) -> Any:
    kind = import_module(_SESSIONS).Sessions
    return where if isinstance(where, kind) else kind(where)


def session_ref(given: Any) -> SessionRef | None:
    """What `run(session=…)` was given, as a session. Raises `ConfigurationError`."""
    if given is None or callable(getattr(given, "turn", None)):
        return given
    return default_sessions().session(given)
