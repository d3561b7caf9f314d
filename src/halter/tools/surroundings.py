"""Where a tool's programs run: the directory, the environment, the sandbox.

Variables of this process are passed on by name, from a short list: an API key that is not passed cannot be printed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from halter.children.child import Child
from halter.errors import ConfigurationError, ToolError
from halter.tools.sandbox import SandboxOption, sandbox_of
from halter.tools.sandboxed import Sandboxed

PASSED = frozenset(
    ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "VIRTUAL_ENV", "SSL_CERT_FILE")
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What each program of a tool is given. `cwd`: where this process is, if `None`. `env`: more variables."""

    cwd: str | None
    env: Mapping[str, str]
    sandboxed: Sandboxed

    @classmethod
    def of(cls, cwd: str | Path | None, env: Mapping[str, str] | None, sandbox: SandboxOption) -> Surroundings:
        """From what a definition says. Raises `ConfigurationError`."""
        if cwd is not None and not isinstance(cwd, str | Path):
            raise ConfigurationError(f"cwd must be a path, not {cwd!r}")
        if env is not None and not (isinstance(env, Mapping) and all(map(_is_variable, env.items()))):
            raise ConfigurationError("env must be a mapping of names to texts, as in {'JAVA_HOME': '/opt/java'}")
        directory = None if cwd is None else str(Path(cwd).expanduser().absolute())
        found = cls(directory, dict(env or {}), Sandboxed(sandbox_of(sandbox)))
        if directory is not None:
            found.sandboxed.box(directory)
        return found

    def directory(self) -> str:
        """Where a program that is started now would run, links followed."""
        return os.path.realpath(self.cwd or os.getcwd())

    def environment(self) -> dict[str, str]:
        """All variables of a program."""
        return {**passed_on(), "TERM": "dumb", **self.env}

    async def start(self, child: Child, argv: Sequence[str]) -> None:
        """Starts a program here. Raises `ToolError` if that cannot be. Cancelled, the start goes on: end the child."""
        try:
            cwd = self.cwd or os.getcwd()
            await self.sandboxed.start(child, argv, environment=self.environment(), cwd=cwd)
        except (OSError, ValueError) as error:
            raise ToolError(f"it could not be started: {error}") from error


def passed_on() -> dict[str, str]:
    """The variables of this process that are passed on."""
    return {name: value for name, value in os.environ.items() if name in PASSED or name.startswith("LC_")}


def _is_variable(pair: tuple[object, object]) -> bool:
    name, value = pair
    return isinstance(name, str) and isinstance(value, str) and bool(name) and "=" not in name
