"""What a block of code leaves behind: tasks, threads, open descriptors, child processes.

A stop is believed only when these are back where they were. The check waits a moment (threads and processes
end a little after they are told to) and then names what is left and where it is. Descriptors and children are
read from /proc; where there is none, only tasks and threads are compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halter.children.supervised import helper_descriptor
from halter.core.frames import describe_frame, where

_POLL = 0.005


class LeakError(AssertionError):
    """Something was left behind. `left`: one line for each thing; the message lists them."""

    def __init__(self, left: tuple[str, ...]) -> None:
        super().__init__(f"left behind: {len(left)}" + "".join(f"\n  {line}" for line in left))
        self.left = left


@dataclass(frozen=True)
class Snapshot:
    """What is alive now; each thing is mapped to a line that names it."""

    tasks: dict[asyncio.Task[Any], str]
    threads: dict[threading.Thread, str]
    fds: dict[tuple[int, str], str]
    children: dict[int, str]

    @classmethod
    def take(cls, *loops: asyncio.AbstractEventLoop) -> Snapshot:
        """Note the unfinished tasks of `loops`, and our threads, descriptors and direct children."""
        return cls(
            tasks={task: describe_task(task) for loop in loops for task in asyncio.all_tasks(loop)},
            threads={thread: _describe_thread(thread) for thread in threading.enumerate()},
            fds={(fd, what): f"descriptor {fd}: {what}" for fd, what in _open_fds()},
            children={pid: _describe_process(pid) for pid in _child_pids()},
        )

    def since(
        self, before: Snapshot, *, threads: int = 0, fds: int = 0, ignore_threads: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        """The lines of what was not there `before`; so many new `threads` and `fds` are let be."""
        new_threads = [
            line
            for thread, line in self.threads.items()
            if thread not in before.threads and not thread.name.startswith(ignore_threads)
        ]
        new_fds = [line for fd, line in self.fds.items() if fd not in before.fds]
        tasks = [line for task, line in self.tasks.items() if task not in before.tasks]
        children = [line for pid, line in self.children.items() if pid not in before.children]
        kept_threads = new_threads if len(new_threads) > threads else []
        return (*tasks, *kept_threads, *(new_fds if len(new_fds) > fds else []), *children)


@contextlib.contextmanager
def leak_check(
    *loops: asyncio.AbstractEventLoop,
    threads: int = 0,
    fds: int = 0,
    ignore_threads: tuple[str, ...] = (),
    warmup: Callable[[], object] | None = None,
    wait: float = 1.0,
) -> Generator[Snapshot, None, None]:
    """Raise `LeakError` at the end of the block if it left something behind.

    Put it around code that runs event loops, not inside one: it waits by sleeping. `loops`: whose tasks to
    compare. `threads`, `fds`: how many new ones to tolerate. `ignore_threads`: beginnings of names of threads
    that may stay, such as `("halter-",)`. `warmup`: called first, so that what it creates once and keeps
    belongs to the baseline. `wait`: real seconds that things get to go away. Yields the baseline. An
    exception from the block goes on as it is, unchecked.
    """
    if warmup is not None:
        warmup()
    gc.collect()
    before = Snapshot.take(*loops)
    yield before
    until = time.monotonic() + wait
    left = _look(before, loops, threads, fds, ignore_threads)
    while left and (began := time.monotonic()) < until:
        left = _look(before, loops, threads, fds, ignore_threads)
        # As long as a look took: collecting the garbage of a large program takes far longer than the pause.
        time.sleep(max(_POLL, time.monotonic() - began))
    if left:
        raise LeakError(left)


def _look(
    before: Snapshot,
    loops: tuple[asyncio.AbstractEventLoop, ...],
    threads: int,
    fds: int,
    ignore_threads: tuple[str, ...],
) -> tuple[str, ...]:
    gc.collect()  # what nothing holds any more is no leak
    now = Snapshot.take(*loops)
    return now.since(before, threads=threads, fds=fds, ignore_threads=ignore_threads)


# -- where a task or thread is


def describe_task(task: asyncio.Task[Any]) -> str:
    """`task 'name': ` and where it is."""
    return f"task {task.get_name()!r}: {where(task)}"


def describe_tasks(loop: asyncio.AbstractEventLoop) -> str:
    """How many tasks of the loop are unfinished, and a line for each."""
    lines = sorted(describe_task(task) for task in asyncio.all_tasks(loop))
    return f"{len(lines)} unfinished tasks" + "".join(f"\n  {line}" for line in lines)


def _describe_thread(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)  # pyright: ignore[reportPrivateUsage]  # documented
    kind = "daemon thread" if thread.daemon else "thread"
    return f"{kind} {thread.name!r}: {describe_frame(frame) if frame else 'not running'}"


# -- /proc


def _open_fds() -> Iterator[tuple[int, str]]:
    kept = str(helper_descriptor())
    for fd in _names("/proc/self/fd"):
        if fd == kept:
            continue
        # The listing's own descriptor is among them, and gone by now.
        with contextlib.suppress(OSError):
            yield int(fd), os.readlink(f"/proc/self/fd/{fd}")


def _child_pids() -> Iterator[int]:
    for thread in _names("/proc/self/task"):
        yield from map(int, _read(f"/proc/self/task/{thread}/children").split())


def _describe_process(pid: int) -> str:
    command = _read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
    # The state follows the name in parentheses, which may hold anything.
    state = _read(f"/proc/{pid}/stat").rpartition(")")[2].strip()[:1]
    ended = " ended, but nobody has waited for it" if state == "Z" else ""
    return f"child process {pid}: {command or _read(f'/proc/{pid}/comm').strip()}{ended}"


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
