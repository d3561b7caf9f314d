"""Who owns what outlives a process: that process, named so that any other one can tell whether it still lives.

1. An owner is said to be dead only if that is certain: same machine since its start, same namespaces, and the number is
free or was given to another process. 2. Where the system does not say so much, nobody is ever dead, and no two
processes have the same name.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass

from halter.core.process_stat import stat

_LARGEST_PID = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that starts others, or holds something. `where`: where its number and its start time mean anything."""

    where: str
    pid: int
    started: int

    @classmethod
    def here(cls) -> Owner:
        """This process."""
        if not _here:
            pid = os.getpid()
            found = stat(pid)
            where = _place() if found is not None else ""
            # Nobody can look for it: then a name of its own, since numbers are given again.
            _here.append(cls(where or secrets.token_hex(16), pid, found.started if found is not None else 0))
        return _here[0]

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """As `str` has written it; `None` for anything else."""
        where, _, numbers = text.partition(".")
        pid, _, started = numbers.partition(".")
        if not (where and pid.isdecimal() and started.isdecimal() and len(pid) <= 10 and int(pid) <= _LARGEST_PID):
            return None
        return cls(where, int(pid), int(started))

    @property
    def is_dead(self) -> bool:
        """True if it has certainly ended. Of an owner on another machine, or in another container, nothing is."""
        if self.where != _place() or self == Owner.here():  # who asks needs not be looked for
            return False
        found = stat(self.pid)
        if found is None:
            return _is_free(self.pid)
        return found.started != self.started or found.is_over

    def __str__(self) -> str:
        return f"{self.where}.{self.pid}.{self.started}"


def is_dead(owner: str) -> bool:
    """True if the process that this text names has certainly ended. What follows a slash is not looked at."""
    found = Owner.parse(owner.partition("/")[0])
    return owner in _retired or (found is not None and found.is_dead)


def is_of_another_boot(owner: str) -> bool:
    """True if this text names a process that has lived before the machine was started, or on another one."""
    found, here = Owner.parse(owner.partition("/")[0]), _place()
    if found is None or not here or found.where.count("-") != here.count("-"):
        return False
    return found.where.partition("-")[0] != here.partition("-")[0]


def retire(owner: str) -> None:
    """This process says that its own part of this name, an event loop, is no more. From any thread."""
    _retired.add(owner)


def _is_free(pid: int) -> bool:
    """True if there is no such process; one of another user may only be hidden from us (proc(5), hidepid)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _place() -> str:
    """This start of this machine, and our namespaces of processes and of time; empty where there is no /proc.

    The machine's first namespaces have the same numbers everywhere: they alone would name another machine's processes.
    """
    if not _places:
        _places.append(_look_around())
    return _places[0]


def _look_around() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip().replace("-", "")
        names = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "time")]
        sees_itself = os.readlink("/proc/self") == str(os.getpid())  # not so if /proc is another namespace's
    except OSError:
        return ""
    return "-".join([boot, *("".join(filter(str.isdecimal, name)) for name in names)]) if boot and sees_itself else ""


_retired: set[str] = set()
_here: list[Owner] = []
_places: list[str] = []


def _forget() -> None:
    """A forked child is another process, and may even be in another namespace."""
    _here.clear()
    _places.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
