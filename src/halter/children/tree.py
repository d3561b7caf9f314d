"""Which processes belong to one call: read from a table of all processes, and from nothing else.

1. A member has the call's mark in its environment; or is in the session of the call's leader, while that one has not
been waited for, so that nobody else can have its number; or is a child of a member. 2. The mark and the session are
proof. That somebody's parent is a member holds only while that very parent lives: it is looked at once more.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from halter.children import proc
from halter.children.proc import Process, Table


@dataclass(frozen=True, slots=True)
class Tree:
    """All processes of one call. `leader`: the first of them, our own child, and when it started; if we have it."""

    mark: str
    leader: tuple[int, int] | None = None

    def members(self, table: Table, *, is_alive: Callable[[Process], bool] = proc.is_alive) -> list[Process]:
        """Those in the table that are ours, also those that have ended and were not waited for.

        `is_alive`: asked of a parent, once its child is known by nothing else.
        """
        session = self.session(table)
        mine = {process.pid: process for process in table.processes.values() if self._is_proven(process, session)}
        children = _children(table)
        unread = list(mine.values())
        while unread:
            parent = unread.pop()
            found = [child for child in children.get(parent.pid, ()) if child.pid not in mine]
            if found and is_alive(parent):
                mine.update((child.pid, child) for child in found)
                unread.extend(found)
        mine.pop(os.getpid(), None)
        return list(mine.values())

    def session(self, table: Table) -> int | None:
        """The number of the leader's session, while it is certainly ours."""
        if self.leader is None:
            return None
        leader = table.processes.get(self.leader[0])
        return leader.pid if leader is not None and leader.key == self.leader else None

    def _is_proven(self, process: Process, session: int | None) -> bool:
        return self.mark in process.calls or (session is not None and process.session == session)


def _children(table: Table) -> dict[int, list[Process]]:
    found: defaultdict[int, list[Process]] = defaultdict(list)
    for process in table.processes.values():
        found[process.parent].append(process)
    return found


def running(processes: Iterable[Process]) -> list[Process]:
    """Those that have not ended."""
    return [process for process in processes if not process.is_over]
