"""What /proc says of processes, and signals that cannot hit the wrong one.

A number is recycled, a number together with its start time is not: a signal goes through a descriptor of the process,
whose start time was looked at after the descriptor was opened. Where there is no /proc, nothing is found here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from typing import TypeAlias

from halter.core.process_stat import read_some, stat

LOADING = 0.0005  # seconds; a program is loaded in less, as a rule
MOST_LOOKS = 20
MOST_LISTINGS = 3  # of what has come while the others were looked at
HAS_PROC = os.path.exists("/proc/self/stat")
_CALL = b"HALTER_CALL="
_OWNER = b"HALTER_OWNER="
_Marks: TypeAlias = tuple[tuple[str, ...], str, bool]  # calls, owner, is_loading
_NO_MARKS: _Marks = ((), "", False)
_LOADING: _Marks = ((), "", True)
_LARGEST_ENVIRONMENT = 8 * 1024 * 1024  # bytes; more than Linux lets a program be started with


@dataclass(frozen=True, slots=True)
class Process:
    """One process, as it was when it was looked at. `started`: in ticks since the machine's start."""

    pid: int
    parent: int
    group: int
    session: int
    started: int
    is_over: bool  # it has ended, and nobody has waited for it
    calls: tuple[str, ...] = ()
    owner: str = ""
    is_loading: bool = False  # what it runs was not there yet, after a while: its marks are not known

    @property
    def key(self) -> tuple[int, int]:
        """What no other process has."""
        return self.pid, self.started


@dataclass(frozen=True, slots=True)
class Table:
    """All processes by their numbers. `has_gaps`: some ended while they were looked at, and may have started others, or
    were still being loaded."""

    processes: dict[int, Process]
    has_gaps: bool

    @property
    def ended(self) -> frozenset[tuple[int, int]]:
        """Those for which somebody else has yet to wait."""
        me = os.getpid()
        return frozenset(one.key for one in self.processes.values() if one.is_over and one.parent != me)


def look(ended_before: frozenset[tuple[int, int]] = frozenset()) -> Table:
    """All processes of this machine (of this container), with the marks of those that are this user's.

    `ended_before`: what the last table has said, so that it is no gap. Takes some 20 µs for each process: for a thread,
    not for an event loop.
    """
    found: dict[int, Process | None] = {}
    for _ in range(MOST_LISTINGS):
        new = _numbers() - found.keys()
        if not new:
            break
        for pid in sorted(new, reverse=True):  # the newest first: it may live for a moment only
            found[pid] = read(pid, with_marks=True)
    there = {pid: one for pid, one in found.items() if one is not None}
    is_whole = len(there) == len(found) and not any(one.is_loading for one in there.values())
    table = Table(there, has_gaps=not is_whole)
    return table if table.ended <= ended_before else Table(there, has_gaps=True)


def below(root: tuple[int, int]) -> Table:
    """All descendants of this very process, given by its number and start time; without their marks.

    Some 40 µs for each descendant, however many other processes there are.
    """
    found: dict[int, Process] = {}
    unread = [root]
    while unread:
        pid, since = unread.pop()
        children = [one for number in _children(pid) if (one := read(number)) is not None and one.parent == pid]
        if started(pid) == since:  # else the number is another's by now, and so are the children
            new = [one for one in children if one.pid not in found]
            found.update((one.pid, one) for one in new)
            unread.extend(one.key for one in new)
    return Table(found, has_gaps=False)


def _children(pid: int) -> list[int]:
    """The children of all threads of this process, as far as they stand still meanwhile."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    files = [f"/proc/{pid}/task/{thread}/children" for thread in threads]
    if files and not os.path.exists(files[0]):  # a kernel that was built without it
        return [number for number in _numbers() if (one := read(number)) is not None and one.parent == pid]
    return [int(number) for file in files for number in read_some(file, 1 << 20).split()]


def _numbers() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdecimal()} if HAS_PROC else set()


def read(pid: int, *, with_marks: bool = False) -> Process | None:
    """The process of this number, or `None`."""
    found = stat(pid)
    if found is None:
        return None
    marks = _marks_of(pid, found.state) if with_marks and not found.is_kernels else _NO_MARKS
    return Process(found.pid, found.parent, found.group, found.session, found.started, found.is_over, *marks)


def started(pid: int) -> int | None:
    """When the process of this number started, in ticks since the machine's start; `None` if there is none."""
    found = stat(pid)
    return found.started if found is not None else None


def is_alive(process: Process) -> bool:
    """True if this very process still runs."""
    now = read(process.pid)
    return now is not None and now.started == process.started and not now.is_over


def send(process: Process, number: signal.Signals) -> bool:
    """Sends the signal to this very process, or to none. False if it was not allowed to."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    except (OSError, AttributeError):  # an old kernel, or a sandbox that does not know the call
        return _send_by_number(process, number)
    try:
        if started(process.pid) == process.started:
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    finally:
        os.close(descriptor)
    return True


def _send_by_number(process: Process, number: signal.Signals) -> bool:
    try:
        if started(process.pid) == process.started:
            os.kill(process.pid, number)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True


def _marks_of(pid: int, state: bytes) -> _Marks:
    """The calls and the owner that its environment names; nothing for a process of another user."""
    where = f"/proc/{pid}" if state != b"Z" else _living_thread(pid)
    if where is None:  # nobody is left who could have one: nothing to wait for
        return _NO_MARKS
    environment = _environment(pid, where)
    if environment is None:
        return _LOADING
    if _CALL not in environment or not _is_ours(pid):
        return _NO_MARKS
    lines = environment.split(b"\0")
    calls, owner = (
        next((line[len(name) :].decode("ascii", "replace") for line in lines if line.startswith(name)), "")
        for name in (_CALL, _OWNER)
    )
    return tuple(calls.split("/")), owner, False


def _environment(pid: int, where: str) -> bytes | None:
    """Empty where it was cleared. One that is just being loaded has none either, and no command line: it is awaited; at
    last `None`."""
    for _ in range(MOST_LOOKS):
        environment = read_some(f"{where}/environ", _LARGEST_ENVIRONMENT)
        if environment or read_some(f"{where}/cmdline", 1) or not _is_ours(pid):
            return environment
        time.sleep(LOADING)
    return None


def _is_ours(pid: int) -> bool:
    """True if it acts as this user: the owner of its directory (proc_pid(5))."""
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.geteuid()
    except OSError:
        return False


def _living_thread(pid: int) -> str | None:
    """Where the environment is still to be read if the first thread has ended; `None` if all have."""
    threads: list[str] = []
    with contextlib.suppress(OSError):
        threads = os.listdir(f"/proc/{pid}/task")
    others = [thread for thread in threads if thread != str(pid)]
    return f"/proc/{pid}/task/{others[0]}" if others else None
