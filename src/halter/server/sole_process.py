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
    """Held while a server lives. Raises `ConfigurationError` if another worker of the same supervisor has one."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        if fcntl is None or not _is_worker():
            return
        path = Path(tempfile.gettempdir()) / f"halter-server-{os.getuid()}-{os.getppid()}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0), 0o600)
        self._file = os.fdopen(descriptor, "r+b")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.release()
            raise ConfigurationError(
                "another worker process serves these agents already, and runs live in its memory: a stop that reached "
                "this one would not find them. Run one worker process (it serves thousands of streams)"
            ) from None

    def release(self) -> None:
        """Lets another process serve."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _is_worker() -> bool:
    """True in a process that a supervisor has started as one of several."""
    return multiprocessing.parent_process() is not None or "gunicorn.arbiter" in sys.modules
