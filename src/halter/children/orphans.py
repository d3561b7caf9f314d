"""Processes whose owner was killed before it could end them: ended where the next one starts.

Only those are touched that carry an owner's mark of this very container, are this user's, and whose owner, by number
and start time, is no more.
"""

from __future__ import annotations

import os
from functools import cache

from halter.children import proc
from halter.children.ending import Ending
from halter.children.proc import Process, Table
from halter.children.sweeper import bring_to_an_end
from halter.children.tree import Tree, running
from halter.core.owner import is_dead
from halter.core.threads import spawn
from halter.outcome import Ended

GRACE = 1.0


def end_orphans() -> list[Process]:
    """Begins to end what dead owners have left behind, and returns it; TERM first, KILL a second later. Blocks briefly.

    It happens by itself where a process starts its first one, where it first uses sessions that other processes share,
    and where it finds a turn that was lost with its process; call it if that may be late.
    """
    orphans = _orphans(proc.look())
    for mark in dict.fromkeys(orphan.calls[-1] for orphan in orphans):
        bring_to_an_end(Ending(Tree(mark), None, GRACE, _let_be))
    return orphans


def _orphans(table: Table) -> list[Process]:
    is_gone = cache(is_dead)
    return [process for process in running(table.processes.values()) if process.calls and is_gone(process.owner)]


def _let_be(how: Ended) -> None:
    """Nobody waits for orphans; what cannot be ended is logged."""


_looked: set[int] = set()


def look_once() -> None:
    """Has the orphans ended, in a thread, once in the life of this process."""
    if os.getpid() not in _looked:
        look_again()


def look_again() -> None:
    """Has the orphans ended, in a thread: somebody has found that their owner is dead."""
    _looked.add(os.getpid())
    spawn("orphans", end_orphans)
