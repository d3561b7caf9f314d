"""A sandbox around one working directory, as a command line: bubblewrap, Linux namespaces, without a daemon."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from halter.errors import ConfigurationError, SandboxUnavailable
from halter.tools import sandbox_start
from halter.tools.sandbox import OWN_PROCESSES, Sandbox
from halter.tools.sandbox_exposed import is_reachable, repositories, unix_sockets
from halter.tools.sandbox_hosts import PORT

# Sockets lie in /run: of Docker, of D-Bus, of agents that hold keys. To read-only mounts they are open all the same.
_HIDDEN = ("/tmp", "/run", "/var/run", "/var/tmp")
_NAMES = "/run/systemd/resolve"  # where /etc/resolv.conf points to on many machines
_PATIENCE = 10.0  # seconds for a first, empty program
_SPARE_DATA = 256_000_000  # bytes that a process may map beside what it uses
_proven: set[tuple[str, ...]] = set()  # command lines of sandboxes that have worked in this process


class Box:
    """A sandbox around one working directory, tried out with an empty program; blocks meanwhile, some 50 ms.

    `shown`: paths that the program needs to read, wherever they are. Repositories below what is writable are those that
    are there now; what programs make later is theirs. Raises `ConfigurationError` if `cwd` would open too much, and
    `SandboxUnavailable` where there is no safe sandbox.
    """

    def __init__(self, given: Sandbox, cwd: str, shown: Sequence[str] = ()) -> None:
        self._given = given
        self._cwd = _checked(cwd)
        # The deeper ones later: they show through what was mounted around them.
        writable = sorted((*map(_full, given.writable), self._cwd), key=lambda path: path.count("/"))
        self._writable = tuple(dict.fromkeys(writable))
        hidden = (*_HIDDEN, _home(), *map(_full, given.hidden))
        self._hidden = tuple(
            path for path in hidden if path != "/" and os.path.isdir(path) and not os.path.islink(path)
        )
        self._is_root = os.geteuid() == 0
        needed = (path for path in map(_full, shown) if self._must_be_shown(path))
        self._readable = tuple(dict.fromkeys((*map(_full, given.readable), *needed)))
        self._protected = {path: repositories(path) for path in self._writable}
        self._prove()

    def argv(self, command: Sequence[str]) -> list[str]:
        """The command within the sandbox. If its network is a list of hosts, a descriptor must be the last argument.

        Raises `SandboxUnavailable` for a repository that has become a link.
        """
        return [*self._start(), self._given.found, *self._options(), *self._covers(), "--", *command]

    def _prove(self) -> None:
        key = (self._given.found, *self._options())
        if key in _proven:
            return
        ours, theirs = socket.socketpair()
        argv = [*self.argv(["true"]), *([str(theirs.fileno())] if self._given.hosts else [])]
        try:
            with ours, theirs:
                tried = subprocess.run(
                    argv,
                    capture_output=True,
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    timeout=_PATIENCE,
                    check=False,
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

    def _start(self) -> Iterator[str]:
        """What runs before bubblewrap, if anything has to."""
        limits = self._given.limits
        processes = None if limits is None or limits.processes is None else limits.processes + OWN_PROCESSES + 1
        setup = {
            "shown": (*self._readable, *self._writable) if self._is_root else None,
            "port": PORT if self._given.hosts else None,
            "processes": processes,  # one more than allowed: it is by that one that its supervisor knows
            "data": None if limits is None or limits.memory is None else 2 * limits.memory + _SPARE_DATA,
        }
        if any(value is not None for value in setup.values()):
            yield from (sys.executable, "-I", "-S", str(Path(sandbox_start.__file__)), json.dumps(setup))

    def _source(self, path: str) -> str:
        """Where bwrap finds a path that it is to show: for root, in the mount that `sandbox_start` has made of it."""
        return sandbox_start.place_of((*self._readable, *self._writable).index(path)) if self._is_root else path

    def _options(self) -> Iterator[str]:
        yield from ("--unshare-all", "--unshare-user", "--die-with-parent", "--cap-drop", "ALL")
        if self._given.shares_network or self._given.hosts:  # the latter shares one that has been made for it
            yield "--share-net"
        yield from ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys")
        yield from self._empty()
        if self._given.shares_network:
            yield from ("--ro-bind-try", _NAMES, _NAMES)
        for path in self._readable:
            yield from ("--ro-bind", self._source(path), path)
        for path in self._writable:
            yield from ("--bind", self._source(path), path)
            yield from self._protections(path)
        yield from ("--chdir", self._cwd)

    def _empty(self) -> Iterator[str]:
        """The directories that are empty. Files in them are memory, and so they get a size where that is limited."""
        limits = self._given.limits
        memory = None if limits is None else limits.memory
        places = self._hidden if memory is None else (*self._hidden, "/dev/shm")
        for path in places:
            yield from (() if memory is None else ("--size", str(memory // len(places))))
            yield from ("--tmpfs", path)
        yield from (() if memory is None else ("--remount-ro", "/dev"))

    def _must_be_shown(self, path: str) -> bool:
        """True for a path that the program would not find, or not be allowed to read."""
        if os.path.commonpath([path, _home()]) == path and path != "/":
            raise ConfigurationError(f"a sandbox that shows {path} would show the whole home: move what it needs")
        is_below = any(path == top or path.startswith(f"{top}/") for top in self._hidden)
        return is_below or (self._is_root and not is_reachable(f"{path}/."))

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
        for path in unix_sockets(to_all=self._is_root):
            if path not in (*self._readable, *self._writable) and not self._is_hidden(path):
                yield from ("--ro-bind", "/dev/null", path)

    def _is_hidden(self, path: str) -> bool:
        def nearest(tops: Sequence[str]) -> int:
            return max((len(top) for top in tops if path.startswith(f"{top}/")), default=0)

        return nearest(("/dev", "/proc", *self._hidden)) > nearest((*self._readable, *self._writable))


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
