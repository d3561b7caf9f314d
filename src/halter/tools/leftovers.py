"""Temporary files beside those that they will replace; what a killed process has left of them is removed.

A process holds a lock on each of its temporary files. One that nobody holds a lock on, and that is older than a minute,
has lost its process: the next change in its directory removes it.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import stat
import time
from contextlib import suppress
from itertools import islice

LONGEST_NAME = 45  # characters of a file's name kept in the temporary one's: 255 bytes are the most
MOST_LOOKED_AT = 100_000  # names of a directory in which leftovers are looked for
OLD = 60.0  # seconds: a process that has just made its file may not have locked it yet
_OURS = re.compile(r"\..*\.[0-9a-f]{16}\.halter-new", re.DOTALL)


class TemporaryFile:
    """A new file in `directory`, open for writing; not there any more after `close`, unless it was renamed.

    `is_private`: nobody else may read it. Removes leftovers of the directory first. Raises `OSError`.
    """

    def __init__(self, directory: int, name: str, *, is_private: bool) -> None:
        remove_leftovers(directory)
        self._directory = directory
        self._name: str | None = f".{name[:LONGEST_NAME]}.{secrets.token_hex(8)}.halter-new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        self.number = os.open(self._name, flags, 0o600 if is_private else 0o666, dir_fd=directory)
        with suppress(OSError):  # a file system without locks: it is not cleaned up there either
            fcntl.flock(self.number, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def rename(self, name: str) -> None:
        assert self._name is not None
        os.replace(self._name, name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        self._name = None

    def close(self) -> None:
        if self._name is not None:
            with suppress(FileNotFoundError):
                os.unlink(self._name, dir_fd=self._directory)
            self._name = None
        if self.number >= 0:
            os.close(self.number)
            self.number = -1


def remove_leftovers(directory: int) -> None:
    """Removes temporary files whose process is gone. Raises nothing: another change will try again."""
    try:
        number = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=directory)
    except OSError:
        return  # it may be written but not listed
    try:
        with os.scandir(number) as scan:
            found = [entry.name for entry in islice(scan, MOST_LOOKED_AT) if _OURS.fullmatch(entry.name)]
        for name in found:
            with suppress(OSError):
                _remove_if_left(number, name)
    except OSError:
        pass
    finally:
        os.close(number)


def _remove_if_left(directory: int, name: str) -> None:
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    try:
        status = os.fstat(file)
        if stat.S_ISREG(status.st_mode) and time.time() - status.st_ctime > OLD:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(name, dir_fd=directory)
    finally:
        os.close(file)
