"""Directories locked against other changes: those of other threads, and of other processes that ask in the same way.

The lock is `flock` on the directory itself: it leaves no file behind and ends with its process. Some network file
systems have none; there only the threads of this process keep out of each other's way.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress

from halter.errors import ToolError
from halter.tools.contents import Look

PATIENCE = 5.0  # seconds; a change holds it for milliseconds
BETWEEN_TRIES = 0.002  # seconds


@contextmanager
def locked(directories: Iterable[int], look: Look) -> Generator[None]:
    """Holds the lock of each directory. `look`: called while it waits.

    Raises `ToolError` if somebody holds one of them for longer than 5 s, and what `look` does.
    """
    held: list[int] = []
    try:
        for number in _opened_in_order(directories, held):
            _lock(number, look)
        with _threads:
            yield
    finally:
        for number in held:
            with suppress(OSError):
                fcntl.flock(number, fcntl.LOCK_UN)  # a forked child may have the descriptor as well
            os.close(number)


def _opened_in_order(directories: Iterable[int], held: list[int]) -> list[int]:
    """Each directory once, by device and inode: two changes never wait for each other in a circle."""
    found: dict[tuple[int, int], int] = {}
    for directory in directories:
        status = os.fstat(directory)
        key = status.st_dev, status.st_ino
        if key in found:
            continue
        with suppress(PermissionError):  # it may be written but not listed
            found[key] = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=directory)
            held.append(found[key])
    return [found[key] for key in sorted(found)]


def _lock(number: int, look: Look) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        look()
        try:
            return fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise ToolError("another program holds the lock of this directory: try again later") from None
            time.sleep(BETWEEN_TRIES)
        except OSError:
            return None  # no locks here


_threads = threading.Lock()


def _renew_lock() -> None:
    """In a forked child nobody is left who could release it."""
    global _threads
    _threads = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
