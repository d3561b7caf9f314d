"""The end of one tree of processes: TERM, the grace, KILL, and again until nothing new appears.

1. TERM is sent once to each process, also to one that was just being started; what a process starts when it was asked
to end, to tidy up, is left alone until the grace is over. 2. KILL is repeated, sweep after sweep. 3. How it ended is
what was needed: `FINISHED` if nobody was there, `TERMINATED` if all went by themselves after TERM, else `KILLED`.
4. With a supervisor, its word alone says that nobody is left. Without one, a tree that looks empty is `UNKNOWN`.

Nothing here waits: a sweeper calls `look` whenever `is_due` says so.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import time
from collections.abc import Callable, Iterable

from halter.children import proc
from halter.children.leader import Leader
from halter.children.proc import Process, Table
from halter.children.tree import Tree, running
from halter.outcome import Ended

# Seconds until those are looked for that a sweep has missed. Between these, at random: who hands itself on at a beat of
# its own must not be missed at each.
SWEEP_AGAIN = (0.004, 0.02)
MOST_SWEEPS = 8  # without finding anybody; where others come and go all the time, each may have gaps
PATIENCE = 2.0  # seconds after the first KILL; what is alive then hangs in the kernel, or is not ours to end
TICK = 0.003
SLOW_TICK = 1.0
_logger = logging.getLogger("halter")


class Ending:
    """One tree on its way to its end. `grace`: seconds between TERM and KILL; 0: KILL at once.

    `is_urgent()`: asked again and again, from a thread; True: KILL now. `on_over(how)`: called once, from a thread,
    when nothing is left, or with `ABANDONED` for what cannot be ended.
    """

    def __init__(
        self,
        tree: Tree,
        leader: Leader | None,
        grace: float,
        on_over: Callable[[Ended], object],
        is_urgent: Callable[[], bool] = lambda: False,
    ) -> None:
        self.is_over = False
        self._tree = tree
        self._leader = leader
        self._on_over = on_over
        self._is_urgent = is_urgent
        self._kill_at = time.monotonic() + grace
        self._alive: list[Process] = []
        self._sweep_at = 0.0
        self._seen: set[tuple[int, int]] = set()
        self._killing_since: float | None = None
        self._asked: set[tuple[int, int]] = set()
        self._was_asked_again = False
        self._empty_sweeps = 0
        self._was_told = False

    # --- asked by the loop ----------------------------------------------------------------------------------

    def hasten(self, grace: float) -> None:
        """KILL comes at the latest so many seconds from now; from any thread."""
        self._kill_at = min(self._kill_at, time.monotonic() + grace)

    def kill_group(self) -> None:
        """KILLs the leader's group now, and the rest soon; from any thread."""
        self._kill_at = 0.0
        self._killing_since = self._killing_since or time.monotonic()
        if self._leader is not None:
            self._leader.signal_group(signal.SIGKILL)
            self._leader.kill_descendants()

    # --- asked by the sweeper -------------------------------------------------------------------------------

    @property
    def tick(self) -> float:
        """How many seconds may pass before `is_due` is asked again."""
        return SLOW_TICK if self._was_told else TICK

    def is_due(self, now: float) -> bool:
        """True if something may have changed that only a sweep can tell."""
        if self._leader is not None and self._leader.is_gone:
            return True
        if self._is_urgent():
            self._kill_at = min(self._kill_at, now)
        if now >= self._kill_at and self._killing_since is None:
            return True
        if now > self._sweep_at and (now >= self._kill_at or not self._was_asked_again):
            return True
        return not any(proc.is_alive(process) for process in self._alive)

    def finish_if_gone(self) -> bool:
        """True if nobody is left already, so that there is nothing to look for."""
        if self._leader is not None and self._leader.is_gone:
            self._finish()
        return self.is_over

    def look(self, everybody: Callable[[], Table], now: float) -> None:
        """Sends what is to be sent now to those that are there, or finds that nobody is.

        `everybody()`: the table of all processes; asked only where there is no supervisor.
        """
        self._sweep_at = now + random.uniform(*SWEEP_AGAIN)
        if self._leader is not None and self._leader.is_supervised:
            self._look_below(self._leader, now)
        elif proc.HAS_PROC:
            self._look_everywhere(everybody(), now)
        else:
            self._look_at_group(now)

    def _look_below(self, leader: Leader, now: float) -> None:
        if not self.finish_if_gone():
            self._alive = running(leader.descendants().processes.values())
            self._signal(now)

    def _look_everywhere(self, table: Table, now: float) -> None:
        members = self._tree.members(table)
        self._wait_for_adopted(table)
        self._alive = running(members)
        self._seen.update(process.key for process in self._alive)
        if self._alive:
            self._empty_sweeps = 0
            self._signal(now)
        else:
            self._empty_sweeps += 1
            if self._is_certain(table):
                self._finish()

    def _is_certain(self, table: Table) -> bool:
        """That nobody is there: by a sweep without gaps if nobody ever was, else by two of them."""
        if table.has_gaps:
            return self._empty_sweeps >= MOST_SWEEPS
        return self._empty_sweeps > 1 or not (self._asked or self._killing_since)

    def _signal(self, now: float) -> None:
        if now < self._kill_at:
            self._ask()
            return
        self._killing_since = self._killing_since or now
        self._send(signal.SIGKILL, self._alive)
        if self._leader is not None:
            self._leader.kill_descendants()
        if now - self._killing_since > PATIENCE:
            self.give_up()

    def _ask(self) -> None:
        """TERM, to those who have not had it; but not to what others, who have had it, have started since."""
        self._was_asked_again = bool(self._asked)
        tidying = {process.pid for process in self._alive if process.key in self._asked}
        new = [one for one in self._alive if one.key not in self._asked and one.parent not in tidying]
        self._send(signal.SIGTERM, new)
        self._send(signal.SIGCONT, new)  # one that was halted could not listen
        self._asked.update(process.key for process in new)

    def _send(self, number: signal.Signals, to: list[Process]) -> None:
        """To the leader's group in one go, so that none of it sees another one end and goes on; then to the rest."""
        group = self._leader.pid if self._leader is not None else None
        if self._leader is not None and any(process.group == group for process in to):
            self._leader.signal_group(number)
        for process in to:
            if process.group != group or _has_left(process):
                proc.send(process, number)

    def _look_at_group(self, now: float) -> None:
        leader = self._leader
        if leader is None or not leader.has_company():
            self._finish()
        elif now >= self._kill_at:
            self._killing_since = self._killing_since or now
            leader.signal_group(signal.SIGKILL)
            if now - self._killing_since > PATIENCE:
                self.give_up()
        elif not self._asked:
            self._asked.add((leader.pid, 0))
            leader.signal_group(signal.SIGTERM)

    def _wait_for_adopted(self, table: Table) -> None:
        """Where orphans become children of this process (it is a container's first), nobody else waits for them."""
        session = self._tree.session(table)
        for process in _ended_children(table.processes.values()):
            if process.pid != session and (process.session == session or process.key in self._seen):
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)

    def _finish(self) -> None:
        is_certain = self._leader is not None and self._leader.is_supervised
        if self._leader is not None:
            self._leader.reap()
        self.is_over = True
        how = Ended.TERMINATED if self._asked else Ended.FINISHED
        how = Ended.KILLED if self._killing_since else how
        self._tell(how if is_certain else Ended.UNKNOWN)

    def give_up(self) -> None:
        """Says that it cannot be ended; it is looked at now and then, for somebody may yet end it."""
        if not self._was_told:
            left = ", ".join(str(process.pid) for process in self._alive) or "unknown"
            _logger.error("processes that KILL does not end, or that are not ours to end: %s", left)
        self._tell(Ended.ABANDONED)

    def _tell(self, how: Ended) -> None:
        if not self._was_told:
            self._was_told = True
            self._on_over(how)

    def __repr__(self) -> str:
        state = "over" if self.is_over else "killing" if self._killing_since else f"{len(self._alive)} left"
        return f"<Ending of {self._tree}, {state}>"


def _has_left(process: Process) -> bool:
    """True if it has gone to another group since it was looked at."""
    now = proc.read(process.pid)
    return now is not None and now.key == process.key and now.group != process.group


def _ended_children(processes: Iterable[Process]) -> list[Process]:
    """Children of this very process that have ended, and that nobody has waited for."""
    me = os.getpid()
    return [process for process in processes if process.is_over and process.parent == me]
