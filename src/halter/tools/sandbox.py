"""What a sandboxed program may reach and use: the definition. `sandbox_box.py` makes a command line of it.

1. Inside: the machine's files, to read; the working directory, to write; a /tmp and a home of its own, both empty; its
own processes alone, and no network. 2. It is always an ordinary user's: where this process is root, root is given up
first (`sandbox_start.py`), because root without capabilities still owns most files and all of /proc/sys. 3. What it may
write holds no way out: repositories that were there before cannot be changed, because git on this side would run what
their hooks and settings say. 4. A sandbox that cannot be had like this is refused before any program starts.

It is no virtual machine: the kernel is the same.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from halter import checked
from halter.children.limits import TreeLimits
from halter.core.settings import seconds
from halter.errors import ConfigurationError, SandboxUnavailable
from halter.tools.sandbox_hosts import AllowedHosts

OWN_PROCESSES = 2  # bubblewrap's own: outside, and the first one inside
LEAST_MEMORY = 64_000_000  # bytes; bubblewrap and what prepares it need some of them


@dataclass(frozen=True, kw_only=True)
class Sandbox:
    """What a sandboxed program may reach, beyond the machine's files to read and its working directory to write.

    Give one to `shell`, `program`, `mcp_tools`, or to `tool(isolation="process")`; background jobs have their shell's.

    Args:
        network: False for none. Hosts, as `("pypi.org", "*.example.org", "git.example.org:22")`: these alone, through a
            proxy of Halter's that `HTTP_PROXY` and `HTTPS_PROXY` name; without a port, 80 and 443 are meant. True for
            this machine's network, with all that listens on it, abstract Unix sockets included.
        private: Whether the named hosts may be at addresses of this machine and its networks, which are refused else.
        writable: More paths to write, also below the home, which is hidden otherwise. A repository (`.git`, `.hg`)
            below a writable path stays read-only; name its `.git` as writable to allow commits.
        readable: More paths to read. A Unix socket is reachable if it is named here itself.
        hidden: Directories that are to look empty.
        memory: Bytes of RAM for all its processes together.
        processes: How many processes and threads may run at once.
        cpu_seconds: Seconds of CPU time for all its processes together.
        seconds: Seconds that it may run.
        program: bwrap itself, by name or path.

    Raises:
        SandboxUnavailable: bwrap is missing, or this kernel cannot hold a limit.
        ConfigurationError: A value is wrong, or a path that is to be shown or hidden does not exist.

    A leading `~` is the home. A program that exceeds a limit is ended with all that it has started, and the tool's
    result says which limit it was. Source of bubblewrap's options: bwrap(1).
    """

    network: bool | Iterable[str] = False
    private: bool = False
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    memory: int | None = None
    processes: int | None = None
    cpu_seconds: float | None = None
    seconds: float | None = None
    program: str = "bwrap"
    found: str = field(init=False, repr=False, default="")
    hosts: AllowedHosts | None = field(init=False, repr=False, default=None)
    limits: TreeLimits | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        found = shutil.which(self.program)
        if found is None:
            raise SandboxUnavailable(
                f"the sandbox needs bubblewrap, and there is no {self.program!r} on the PATH: install the package "
                "`bubblewrap`, or leave out sandbox="
            )
        for path in (*self.writable, *self.readable, *self.hidden):
            if not Path(path).expanduser().exists():
                raise ConfigurationError(f"the sandbox cannot show or hide {path!r}: there is no such path")
        object.__setattr__(self, "found", found)
        if not isinstance(self.network, bool):
            object.__setattr__(self, "hosts", AllowedHosts.of(self.network, private=self.private))
        elif self.private:
            raise ConfigurationError("private=True is for the hosts that network= names, and it names none")
        object.__setattr__(self, "limits", self._limits())

    def _limits(self) -> TreeLimits | None:
        memory = None if self.memory is None else checked.whole("memory", self.memory, at_least=LEAST_MEMORY)
        processes = None if self.processes is None else checked.whole("processes", self.processes, at_least=1)
        cpu, wall = (
            seconds(name, value, or_none=True, above_zero=True)
            for name, value in (("cpu_seconds", self.cpu_seconds), ("seconds", self.seconds))
        )
        if processes is not None and not _counts_processes_by_namespace():
            raise SandboxUnavailable(
                f"the sandbox cannot limit processes here: Linux {os.uname().release} counts those of the whole user; "
                "it needs Linux 5.14, or leave out processes="
            )
        given = (memory, processes, cpu, wall)
        return None if given == (None,) * 4 else TreeLimits(*given, uncounted=OWN_PROCESSES)

    @property
    def shares_network(self) -> bool:
        """True if it has this machine's network."""
        return self.network is True


SandboxOption: TypeAlias = Sandbox | Literal["bwrap"] | None


def sandbox_of(given: object) -> Sandbox | None:
    """The sandbox that an option names. Raises `ConfigurationError`."""
    if given is None or isinstance(given, Sandbox):
        return given
    if given == "bwrap":
        return Sandbox()
    raise ConfigurationError(f'sandbox must be "bwrap", a Sandbox(…) or None, not {given!r}')


def _counts_processes_by_namespace() -> bool:
    """Linux 5.14 (ucounts): RLIMIT_NPROC in a user namespace is for the processes in it."""
    try:
        major, minor = os.uname().release.split(".")[:2]
        return (int(major), int("".join(filter(str.isdecimal, minor)))) >= (5, 14)
    except ValueError:
        return False
