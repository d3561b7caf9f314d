"""The marks by which a process is known as ours: two variables of its environment, which its own children inherit.

`HALTER_CALL` names the calls that it belongs to, the outermost first: a tool may run a program that runs Halter, whose
tools' processes are then part of both calls. `HALTER_OWNER` names the process that started it, and outlives that one.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from halter.tools.children import proc

CALL = "HALTER_CALL"
OWNER = "HALTER_OWNER"


def new_mark() -> str:
    """A mark that no other call has, or can guess."""
    return secrets.token_hex(16)


def marked(environment: Mapping[str, str], mark: str) -> dict[str, str]:
    """The environment of a process that belongs to the call of this mark, and to those that we ourselves belong to."""
    above = os.environ.get(CALL)
    return {**environment, CALL: f"{above}/{mark}" if above else mark, OWNER: str(Owner.here())}


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that starts others. `where`: in which namespaces its number and its start time mean anything."""

    where: str
    pid: int
    started: int

    @classmethod
    def here(cls) -> Owner:
        """This process."""
        pid = os.getpid()
        return cls(_namespaces(), pid, proc.started(pid) or 0)

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """As `str` has written it; `None` for anything else."""
        where, _, numbers = text.partition(".")
        pid, _, started = numbers.partition(".")
        if not (where and pid.isdecimal() and started.isdecimal()):
            return None
        return cls(where, int(pid), int(started))

    @property
    def is_dead(self) -> bool:
        """True if it has certainly ended. Of an owner in another container nothing is certain from here."""
        if self.where != _namespaces():
            return False
        found = proc.read(self.pid)
        return found is None or found.started != self.started or found.is_over

    def __str__(self) -> str:
        return f"{self.where}.{self.pid}.{self.started}"


def _namespaces() -> str:
    """The numbers of our namespaces of processes and of time; empty where there is no /proc."""
    try:
        names = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "time")]
    except OSError:
        return ""
    return "-".join("".join(filter(str.isdecimal, name)) for name in names)
