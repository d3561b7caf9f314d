"""A sandbox for programs, by bubblewrap: Linux namespaces, without a daemon.

1. Inside: the machine's files, to read; the working directory, to write; a /tmp and a home of its own, both empty; its
own processes alone, and no network. 2. It is always an ordinary user's: where this process is root, root is given up
first (`sandbox_root.py`), because root without capabilities still owns most files and all of /proc/sys. 3. What it may
write holds no way out: repositories that were there before cannot be changed, because git on this side would run what
their hooks and settings say. 4. A sandbox that cannot be had like this is refused before any program starts.

It is no virtual machine: the kernel is the same.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from halter.errors import ConfigurationError, SandboxUnavailable
from halter.tools import sandbox_root
from halter.tools.sandbox_exposed import repositories, unix_sockets

# Sockets lie in /run: of Docker, of D-Bus, of agents that hold keys. To read-only mounts they are open all the same.
_HIDDEN = ("/tmp", "/run", "/var/run", "/var/tmp")
_NAMES = "/run/systemd/resolve"  # where /etc/resolv.conf points to on many machines
_PATIENCE = 10.0  # seconds for a first, empty program
_proven: set[tuple[str, ...]] = set()  # command lines of sandboxes that have worked in this process


@dataclass(frozen=True, kw_only=True)
class Bubblewrap:
    """What a sandboxed program may reach, beyond the machine's files to read and its working directory to write.

    `network`: True gives it this machine's network, with all that listens on it, abstract Unix sockets included.
    `writable`, `readable`: more paths, also below the home, which is hidden otherwise; a Unix socket is reachable if it
    is named here itself. A repository (`.git`, `.hg`) below a writable path stays read-only; name its `.git` as
    writable to allow commits. `hidden`: directories that are to look empty. `program`: bwrap itself, by name or path. A
    leading `~` is the home. Raises `SandboxUnavailable` if bwrap is missing, and `ConfigurationError` for a path that
    is to be shown or hidden and does not exist.

    Source of the options: bwrap(1).
    """

    network: bool = False
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    program: str = "bwrap"
    found: str = field(init=False, repr=False, default="")

    def __post_init__(self) -> None:
        found = shutil.which(self.program)
        if found is None:
            raise SandboxUnavailable(
                f"the sandbox needs bubblewrap, and there is no {self.program!r} on the PATH: install the package "
                "`bubblewrap`, or leave out sandbox="
            )
        object.__setattr__(self, "found", found)
        for path in (*self.writable, *self.readable, *self.hidden):
            if not Path(path).expanduser().exists():
                raise ConfigurationError(f"the sandbox cannot show or hide {path!r}: there is no such path")


class Box:
    """A sandbox around one working directory, tried out with an empty program; blocks meanwhile, some 50 ms.

    Repositories below what is writable are those that are there now; what programs make later is theirs. Raises
    `ConfigurationError` if `cwd` would open too much, and `SandboxUnavailable` where there is no safe sandbox.
    """

    def __init__(self, given: Bubblewrap, cwd: str) -> None:
        self._given = given
        self._cwd = _checked(cwd)
        self._readable = tuple(map(_full, given.readable))
        # The deeper ones later: they show through what was mounted around them.
        writable = sorted((*map(_full, given.writable), self._cwd), key=lambda path: path.count("/"))
        self._writable = tuple(dict.fromkeys(writable))
        hidden = (*_HIDDEN, _home(), *map(_full, given.hidden))
        self._hidden = tuple(
            path for path in hidden if path != "/" and os.path.isdir(path) and not os.path.islink(path)
        )
        self._protected = {path: repositories(path) for path in self._writable}
        self._is_root = os.geteuid() == 0
        self._prove()

    def argv(self, command: Sequence[str]) -> list[str]:
        """The command within the sandbox. Raises `SandboxUnavailable` for a repository that has become a link."""
        return [*self._as_ordinary_user(), self._given.found, *self._options(), *self._covers(), "--", *command]

    def _prove(self) -> None:
        key = (self._given.found, *self._options())
        if key in _proven:
            return
        try:
            tried = subprocess.run(
                self.argv(["true"]), capture_output=True, stdin=subprocess.DEVNULL, timeout=_PATIENCE, check=False
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise SandboxUnavailable(f"the sandbox cannot be had here: {error}") from error
        if tried.returncode != 0:
            said = tried.stderr.decode(errors="replace").strip() or f"exit code {tried.returncode}"
            needs = (
                "for a process of root it needs id-mapped mounts (Linux 5.12, and a file system that has them) and "
                "CAP_SYS_ADMIN: run as an ordinary user"
                if self._is_root
                else "it needs user namespaces: allow them for bwrap"
            )
            raise SandboxUnavailable(f"the sandbox cannot be had here: {said}; {needs}, or leave out sandbox=")
        _proven.add(key)

    def _as_ordinary_user(self) -> Iterator[str]:
        if self._is_root:
            shown = json.dumps((*self._readable, *self._writable))
            yield from (sys.executable, "-I", "-S", str(Path(sandbox_root.__file__)), shown)

    def _source(self, path: str) -> str:
        """Where bwrap finds a path that it is to show: for root, in the mount that `sandbox_root` has made of it."""
        return sandbox_root.place_of((*self._readable, *self._writable).index(path)) if self._is_root else path

    def _options(self) -> Iterator[str]:
        yield from ("--unshare-all", "--unshare-user", "--die-with-parent", "--cap-drop", "ALL")
        if self._given.network:
            yield "--share-net"
        yield from ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys")
        for path in self._hidden:
            yield from ("--tmpfs", path)
        if self._given.network:
            yield from ("--ro-bind-try", _NAMES, _NAMES)
        for path in self._readable:
            yield from ("--ro-bind", self._source(path), path)
        for path in self._writable:
            yield from ("--bind", self._source(path), path)
            yield from self._protections(path)
        yield from ("--chdir", self._cwd)

    def _protections(self, path: str) -> Iterator[str]:
        """Repositories, read-only. The directories above them become mounts, too: those cannot be renamed, and so no
        other repository takes the place of one."""
        kept = self._protected[path]
        above = {str(parent) for name in kept for parent in Path(name).parents} - {"."}
        for option, names in (("--bind-try", sorted(above)), ("--ro-bind-try", kept)):
            for name in names:
                if os.path.islink(f"{path}/{name}"):
                    raise SandboxUnavailable(
                        f"the sandbox cannot protect {path}/{name}, which is a link: use the directory that it leads to"
                    )
                yield from (option, f"{self._source(path)}/{name}", f"{path}/{name}")

    def _covers(self) -> Iterator[str]:
        """Something else over each Unix socket of this machine that would be seen."""
        for socket in unix_sockets(to_all=self._is_root):
            if socket not in (*self._readable, *self._writable) and not self._is_hidden(socket):
                yield from ("--ro-bind", "/dev/null", socket)

    def _is_hidden(self, path: str) -> bool:
        def nearest(tops: Sequence[str]) -> int:
            return max((len(top) for top in tops if path.startswith(f"{top}/")), default=0)

        return nearest(("/dev", "/proc", *self._hidden)) > nearest((*self._readable, *self._writable))


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
