"""Settings of `halter ask` and `halter chat`, and where each comes from.

1. The command line wins over the environment, that over the project's file, that over the user's file, that over the
defaults. 2. A project's file comes with a checkout that somebody else may have written: it may not say whose code is
run, where keys are sent or what runs unasked. Such lines are ignored, and `halter config` says so.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from halter.errors import ConfigurationError

PROJECT_FILE = ".halter.toml"
DEFAULT = "default"


@dataclass(frozen=True)
class Setting:
    """One setting. `choices`: the values that it takes, if not all of its type; `is_safe`: a project may set it."""

    name: str
    default: Any
    about: str
    kind: type = str
    choices: tuple[Any, ...] = ()
    is_safe: bool = False

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"HALTER_{self.name.upper()}"

    def read(self, value: object, source: str) -> Any:
        """The value, checked. Raises `ConfigurationError` that names the source."""
        found = self._converted(value)
        if found is None or (self.choices and any(each not in self.choices for each in _each(found))):
            wanted = f"one of {', '.join(map(str, self.choices))}" if self.choices else f"a {_KINDS[self.kind]}"
            raise ConfigurationError(f"{self.name} must be {wanted}, not {value!r} ({source})")
        return found

    def _converted(self, value: object) -> Any:
        if self.kind is tuple:
            texts = value.replace(",", " ").split() if isinstance(value, str) else value
            is_list = isinstance(texts, list | tuple) and all(isinstance(each, str) for each in texts)  # pyright: ignore[reportUnknownVariableType]
            return tuple(texts) if is_list else None  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType,reportArgumentType]
        if self.kind is bool and isinstance(value, str):
            return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}.get(value.lower())
        if self.kind is float:
            return _number(value)
        return value if isinstance(value, self.kind) else None


_KINDS = {str: "text", bool: "yes or no", float: "number, 0 or more", tuple: "list of names"}
STOP_KEYS = ("escape", "ctrl-c")

SETTINGS: tuple[Setting, ...] = (
    Setting("model", "", "the model that answers, as in openai:gpt-5.2", is_safe=True),
    Setting("base_url", "", "a server of OpenAI's format instead of the provider's own"),
    Setting("app", "", "app.py:agent, instead of the assistant"),
    Setting("server", "", "a Halter server whose agents answer"),
    Setting("instructions", "", "told to the assistant after its own", is_safe=True),
    Setting("tools", True, "whether the assistant has files, a shell and web pages", bool, is_safe=True),
    Setting("approve", (), "tools that run unasked; `all` for every one", tuple),
    Setting("sessions", "", "where conversations are kept: a path or a database's URL"),
    Setting("history", "", "the file that keeps what you typed"),
    Setting("stop_keys", STOP_KEYS, "the keys that stop a turn", tuple, STOP_KEYS),
    Setting("escape_wait", 50.0, "milliseconds after which a lone Esc byte is the Esc key", float),
    Setting("leave_window", 2.0, "seconds within which a second Ctrl-C at the prompt leaves", float),
    Setting("reasoning", "folded", "what is shown of it", str, ("folded", "shown", "hidden"), is_safe=True),
    Setting("editing", "emacs", "the keys of the input line", str, ("emacs", "vi")),
    Setting("color", "auto", "whether to color", str, ("auto", "always", "never")),
)
_BY_NAME = {setting.name: setting for setting in SETTINGS}


@dataclass(frozen=True)
class Value:
    """A setting's value. `source`: the default, an environment variable, a file or an option."""

    value: Any
    source: str


@dataclass(frozen=True)
class Config:
    """All settings. `ignored`: lines of the project's file that have no effect, and why."""

    values: Mapping[str, Value]
    ignored: tuple[str, ...] = field(default=())

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name].value
        except KeyError:
            raise AttributeError(name) from None


def user_file() -> Path:
    """The user's own file."""
    return _base("XDG_CONFIG_HOME", ".config") / "config.toml"


def data_directory() -> Path:
    """Where conversations and what you typed are kept unless a setting says otherwise."""
    return _base("XDG_DATA_HOME", ".local/share")


def project_file(start: Path | None = None) -> Path | None:
    """The nearest `.halter.toml` of this directory and those above it, up to a repository's root or the home."""
    here = (start or Path.cwd()).resolve()
    for directory in (here, *here.parents):
        if (directory / PROJECT_FILE).is_file():
            return directory / PROJECT_FILE
        if (directory / ".git").exists() or directory == Path.home():
            return None
    return None


def load(options: Mapping[str, Any] | None = None, start: Path | None = None) -> Config:
    """The settings in force.

    Args:
        options: what the command line says, by setting; `None` values say nothing.
        start: the directory from which a project's file is looked for; the current one, if it is left out.

    Raises:
        ConfigurationError: a file cannot be read, or a value is none; it names the file.
    """
    values = {setting.name: Value(setting.default, DEFAULT) for setting in SETTINGS}
    ignored: list[str] = []
    project = project_file(start)
    for path, is_project in ((user_file(), False), (project, True)):
        if path is not None and path.is_file():
            found, unused = _read_file(path, is_project=is_project)
            values |= found
            ignored += unused
    for setting in SETTINGS:
        text = os.environ.get(setting.variable)
        if text:
            values[setting.name] = Value(setting.read(text, setting.variable), setting.variable)
    for name, value in (options or {}).items():
        if value is not None:
            option = f"--{name.replace('_', '-')}"
            values[name] = Value(_BY_NAME[name].read(value, option), option)
    return Config(values, tuple(ignored))


def _read_file(path: Path, *, is_project: bool) -> tuple[dict[str, Value], list[str]]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    found: dict[str, Value] = {}
    ignored: list[str] = []
    for name, value in table.items():
        setting = _BY_NAME.get(name)
        if setting is None:
            near = get_close_matches(name, _BY_NAME, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(_BY_NAME)}"
            raise ConfigurationError(f"{path} sets {name!r}, which is no setting: {hint}")
        if is_project and not setting.is_safe:
            ignored.append(f"{name} in {path}: only your own file, the environment or an option may set it")
        else:
            found[name] = Value(setting.read(value, str(path)), str(path))
    return found, ignored


def _base(variable: str, default: str) -> Path:
    given = os.environ.get(variable, "")
    return (Path(given) if os.path.isabs(given) else Path.home() / default) / "halter"


def _each(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)  # pyright: ignore[reportUnknownVariableType]


def _number(value: object) -> float | None:
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else -1.0
    except ValueError:
        return None
    return number if 0 <= number < 1e9 else None
