"""What tool calls are running now: programs, by the runs that wait for them."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import NamedTuple

from halter.children import child


class Work(NamedTuple):
    """What a child is started for. `command`: as it was given. `began_at`: by `time.monotonic()`."""

    run_id: str
    call_id: str
    command: str
    began_at: float


class Program(NamedTuple):
    """A program that runs now. `elapsed`: seconds since it was started; `pid`: its first process's number."""

    run_id: str
    call_id: str
    pid: int
    command: str
    elapsed: float


def programs_of(run_ids: Collection[str]) -> list[Program]:
    """The programs of tool calls of these runs, in this process, the oldest first; from any thread."""
    now = time.monotonic()
    found = [
        Program(work.run_id, work.call_id, pid, work.command, now - work.began_at)
        for each in child.live()
        if (work := each.work) is not None and work.run_id in run_ids and (pid := each.pid) is not None
    ]
    return sorted(found, key=lambda program: -program.elapsed)
