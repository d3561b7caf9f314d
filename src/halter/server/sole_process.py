"""One process per memory store: a second worker of the same server would not know the runs of the first.

Workers of uvicorn, gunicorn and the like are children of one supervisor. The first one takes a lock that is named
after that supervisor; the others are refused.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from pathlib import Path
from typing import IO

from halter.errors import ConfigurationError

try:
    import fcntl
except ImportError:  # Windows: its servers start no second worker on one socket
    fcntl = None


class SoleProcess:
    """Held while a server lives. Raises `ConfigurationError` if another worker of the same supervisor has one.

    Several servers of one process share its lock: an app may mount more than one.
    """

    _process = 0  # the one that has the lock; a fork of it has none
    _users = 0
    _file: IO[bytes] | None = None

    def __init__(self) -> None:
        self._is_held = fcntl is not None and _is_worker()
        if not self._is_held:
            return
        lock = SoleProcess
        if lock._process != os.getpid() or not lock._users:
            lock._process, lock._users, lock._file = os.getpid(), 0, _locked()
        lock._users += 1

    def release(self) -> None:
        """Lets another process serve, when the last server of this one has ended."""
        lock = SoleProcess
        if not self._is_held:
            return
        self._is_held = False
        lock._users -= 1
        if lock._users == 0 and lock._file is not None:
            lock._file.close()
            lock._file = None


def _locked() -> IO[bytes]:
    """The lock's file. Raises `ConfigurationError` if another process has it."""
    assert fcntl is not None
    path = Path(tempfile.gettempdir()) / f"halter-server-{os.getuid()}-{os.getppid()}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0), 0o600)
    file = os.fdopen(descriptor, "r+b")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise ConfigurationError(
            "another worker process serves these agents already, and runs live in its memory: a stop that reached "
            "this one would not find them. Run one worker process (it serves thousands of streams)"
        ) from None
    return file


def _is_worker() -> bool:
    """True in a process that a supervisor has started as one of several."""
    return multiprocessing.parent_process() is not None or "gunicorn.arbiter" in sys.modules
