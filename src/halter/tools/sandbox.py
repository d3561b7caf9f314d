"""A sandbox for programs, by bubblewrap: Linux namespaces, without root and without a daemon.

Inside: the machine's files, to read; the working directory, to write; a /tmp and a home of its own, both empty; its own
processes alone, and no network. It keeps a program from other files, other processes and the net. It is no virtual
machine: the kernel is the same.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from halter.errors import ConfigurationError

# Sockets lie in /run: of Docker, of D-Bus, of agents that hold keys. To read-only mounts they are open all the same.
_HIDDEN = ("/tmp", "/run", "/var/tmp")
_NAMES = "/run/systemd/resolve"  # where /etc/resolv.conf points to on many machines


@dataclass(frozen=True, kw_only=True)
class Bubblewrap:
    """What a sandboxed program may reach, beyond the machine's files to read and its working directory to write.

    `network`: True gives it this machine's network, with all that listens on it. `writable`, `readable`: more paths,
    also below the home, which is hidden otherwise. `hidden`: directories that are to look empty. `program`: bwrap
    itself, by name or path. A leading `~` is the home. Raises `ConfigurationError` if bwrap is missing, or a path that
    is to be shown or hidden.

    Source of the options: bwrap(1).
    """

    network: bool = False
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    program: str = "bwrap"
    _found: str = field(init=False, repr=False, default="")

    def __post_init__(self) -> None:
        found = shutil.which(self.program)
        if found is None:
            raise ConfigurationError(
                f"the sandbox needs bubblewrap, and there is no {self.program!r} on the PATH: install the package "
                "`bubblewrap`, or leave out sandbox="
            )
        object.__setattr__(self, "_found", found)
        for path in (*self.writable, *self.readable, *self.hidden):
            if not Path(path).expanduser().exists():
                raise ConfigurationError(f"the sandbox cannot show or hide {path!r}: there is no such path")

    def argv(self, command: Sequence[str], cwd: str) -> list[str]:
        """The command within the sandbox, in `cwd`. Raises `ConfigurationError` if `cwd` would open too much."""
        return [self._found, *self._options(_checked(cwd)), "--", *command]

    def _options(self, cwd: str) -> Iterator[str]:
        yield from ("--unshare-all", "--die-with-parent", "--cap-drop", "ALL")
        if self.network:
            yield "--share-net"
        yield from ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
        for path in (*_HIDDEN, _home(), *map(_full, self.hidden)):
            if os.path.isdir(path) and not os.path.islink(path) and path != "/":
                yield from ("--tmpfs", path)
        if self.network:
            yield from ("--ro-bind-try", _NAMES, _NAMES)
        for path in map(_full, self.readable):
            yield from ("--ro-bind", path, path)
        for path in (*map(_full, self.writable), cwd):
            yield from ("--bind", path, path)
        yield from ("--chdir", cwd)


Sandbox: TypeAlias = Bubblewrap | Literal["bwrap"] | None


def sandbox_of(given: object) -> Bubblewrap | None:
    """The sandbox that an option names. Raises `ConfigurationError`."""
    if given is None or isinstance(given, Bubblewrap):
        return given
    if given == "bwrap":
        return Bubblewrap()
    raise ConfigurationError(f'sandbox must be "bwrap", a Bubblewrap(…) or None, not {given!r}')


def _checked(cwd: str) -> str:
    """The directory by its real name: it is what the program may write."""
    real = os.path.realpath(cwd)
    if os.path.commonpath([real, _home()]) == real:
        raise ConfigurationError(f"a sandbox in {real} could write the whole home: give it a cwd of its own")
    return real


def _full(path: str) -> str:
    return os.path.realpath(os.path.expanduser(path))


def _home() -> str:
    return os.path.realpath(os.path.expanduser("~"))
