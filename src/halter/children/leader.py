"""The first process of a call: its end is learned at once, and it is waited for as late as possible.

As long as nobody has waited for it, its number is nobody else's, and neither is that of its group and session: that is
what makes a signal to the group safe. So its end is looked at without waiting for it, and it is waited for, once, when
its whole tree is gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from typing import Protocol

from halter.children import proc
from halter.children.proc import Table
from halter.core.threads import spawn


class Watching(Protocol):
    """A loop, as far as it is needed here."""

    def add_reader(self, fd: int, callback: Callable[[], object], /) -> object: ...

    def call_soon_threadsafe(self, callback: Callable[[], object], /) -> object: ...


class Leader:
    """A direct child in a session of its own. `code`: how it ended, negative for a signal; `None`: runs, or unknown.
    `limit`: the place in its `TreeLimits` of the one for which its supervisor has ended it.

    Where there are supervisors, it is a `SupervisedLeader`.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.started = proc.started(pid)
        self.code: int | None = None
        self.limit: int | None = None
        self._is_reaped = False
        self._lock = threading.Lock()

    def watch(self, loop: Watching, on_exit: Callable[[], object]) -> int | None:
        """Has `on_exit` called on the loop when it has ended. Returns a descriptor to take off the loop, and close."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except (OSError, AttributeError):  # an old kernel, a sandbox that does not know the call, another system
            spawn(f"wait-{self.pid}", self._wait, loop, on_exit)
            return None
        loop.add_reader(descriptor, on_exit)
        return descriptor

    def _wait(self, loop: Watching, on_exit: Callable[[], object]) -> None:
        with contextlib.suppress(ChildProcessError):  # reaped already, by `reap`
            if hasattr(os, "waitid"):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            else:
                self._note(os.waitpid(self.pid, 0)[1])
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody asks any more
            loop.call_soon_threadsafe(on_exit)

    def outlast(self) -> None:
        """Blocks until it has ended, in the thread that started it: programs can ask to be ended with that thread
        (PR_SET_PDEATHSIG), and bubblewrap does."""
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def look(self) -> None:
        """Notes the code, if it has ended, and leaves it to be waited for."""
        if self.code is not None or self._is_reaped or not hasattr(os, "waitid"):
            return
        with contextlib.suppress(ChildProcessError):  # somebody waits for all children of this process
            found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if found is not None:
                self.code = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def reap(self) -> None:
        """Waits for it, if it has ended; from any thread."""
        with self._lock:
            if self._is_reaped:
                return
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                self._is_reaped = True
                return
            if pid:
                self._note(status)

    def forget(self) -> None:
        """Closes its descriptors; in a forked child, or where the process ends."""

    @property
    def is_supervised(self) -> bool:
        """True while a supervisor has all of its descendants, and says when none is left."""
        return False

    @property
    def is_gone(self) -> bool:
        """True if its supervisor says that it has ended and no descendant of it is left."""
        return False

    def descendants(self) -> Table:
        """All that its supervisor has below it."""
        return Table({}, has_gaps=True)

    def kill_descendants(self) -> None:
        """Has its supervisor KILL them, again and again, until none is left."""

    def _note(self, status: int) -> None:
        self._is_reaped = True
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(status)

    def signal_group(self, number: signal.Signals) -> None:
        """Signals its process group, if that is certainly still its own; from any thread."""
        if not self._lock.acquire(blocking=False):  # it is being waited for: the group is gone
            return
        try:
            if self._has_its_group():
                os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # nobody is left in it, or nobody who listens to us; a sweep tells which
        finally:
            self._lock.release()

    def _has_its_group(self) -> bool:
        if not proc.HAS_PROC:  # a group's number is not given away while somebody is in it; more is not to be known
            return True
        return not self._is_reaped and self.started is not None and proc.started(self.pid) == self.started

    def has_company(self) -> bool:
        """True if somebody is left in its process group. For systems without /proc."""
        self.reap()
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return not self._is_reaped
        return True

    def __repr__(self) -> str:
        state = "waited for" if self._is_reaped else "not waited for"
        return f"<Leader {self.pid}, {state}, {'no code yet' if self.code is None else f'code {self.code}'}>"
