"""Processes whose owner was killed before it could end them: ended where the next one starts.

Only those are touched that carry an owner's mark of this very container, are this user's, and whose owner, by number
and start time, is no more.
"""

from __future__ import annotations

import os
from functools import cache

from halter.core.threads import spawn
from halter.outcome import Ended
from halter.tools.children import proc
from halter.tools.children.ending import Ending
from halter.tools.children.marks import Owner
from halter.tools.children.proc import Process, Table
from halter.tools.children.sweeper import bring_to_an_end
from halter.tools.children.tree import Tree, running

GRACE = 1.0


def end_orphans() -> list[Process]:
    """Begins to end what dead owners have left behind, and returns it; TERM first, KILL a second later. Blocks briefly.

    It happens by itself where a process starts its first one; call it earlier if that may be late.
    """
    orphans = _orphans(proc.look())
    for mark in dict.fromkeys(orphan.calls[-1] for orphan in orphans):
        bring_to_an_end(Ending(Tree(mark), None, GRACE, _let_be))
    return orphans


def _orphans(table: Table) -> list[Process]:
    is_dead = cache(_is_dead)
    return [process for process in running(table.processes.values()) if process.calls and is_dead(process.owner)]


def _is_dead(owner: str) -> bool:
    found = Owner.parse(owner)
    return found is not None and found.is_dead


def _let_be(how: Ended) -> None:
    """Nobody waits for orphans; what cannot be ended is logged."""


_looked: set[int] = set()


def look_once() -> None:
    """Has the orphans ended, in a thread, once in the life of this process."""
    if os.getpid() not in _looked:
        _looked.add(os.getpid())
        spawn("orphans", end_orphans)
