"""The audit log: who started, stopped, answered and deleted what, with which effect. It is only ever appended to."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import msgspec

from halter.errors import ConfigurationError

IN_MEMORY = 10_000
_logger = logging.getLogger("halter.server")


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line.

    `at`: seconds since the epoch. `action`: as in `run.start`, `run.cancel`, `run.ended`, `session.delete`. `target`:
    the id of the run or session. `effect`: what came of it. `reason`, `mode`, `message`: of a stop.
    """

    at: float
    tenant: str
    actor: str
    action: str
    target: str
    effect: str
    reason: str | None = None
    mode: str | None = None
    message: str | None = None


class AuditLog:
    """The newest entries in memory, and all of them in a file if there is one.

    Args:
        path: a file of JSON lines, made if need be, readable for its owner alone. Each entry is one `write` to a file
            opened for appending, so lines of several processes do not mix.

    Raises:
        ConfigurationError: if the file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._entries: deque[AuditEntry] = deque(maxlen=IN_MEMORY)
        self._last = 0.0  # the time of the newest entry: no two have the same, so that pages have no holes
        self._descriptor: int | None = None
        self._is_torn = False  # the file ends in the middle of a line: a process was killed, or a disk was full
        self._path = Path(path) if path is not None else None
        if self._path is None:
            return
        try:
            if self._path.is_file():  # a pipe such as /dev/stdout has nothing to read
                self._read_newest(self._path)
            self.open()
        except OSError as error:
            raise ConfigurationError(f"cannot write the audit log {str(path)!r}: {error.strerror}") from error

    def open(self) -> None:
        """Opens the file, if there is one and it is closed. Raises `OSError`."""
        if self._path is not None and self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _read_newest(self, path: Path) -> None:
        with path.open("rb") as lines:
            for line in deque(lines, maxlen=IN_MEMORY):
                self._is_torn = not line.endswith(b"\n")
                try:
                    self._entries.append(_DECODER.decode(line))
                except msgspec.DecodeError:
                    _logger.warning("the audit log %s has a line that cannot be read", path)

    def write(
        self,
        tenant: str,
        actor: str,
        action: str,
        target: str,
        effect: str,
        *,
        reason: str | None = None,
        mode: str | None = None,
        message: str | None = None,
    ) -> None:
        """Appends an entry; a disk that is full is logged, and stops nothing."""
        self._last = max(time.time(), self._last + 1e-6)
        entry = AuditEntry(
            at=self._last,
            tenant=tenant,
            actor=actor,
            action=action,
            target=target,
            effect=effect,
            reason=reason,
            mode=mode,
            message=message,
        )
        self._entries.append(entry)
        if self._descriptor is not None:
            self._append(self._descriptor, entry)

    def _append(self, descriptor: int, entry: AuditEntry) -> None:
        line = msgspec.json.encode(entry) + b"\n"
        data = b"\n" + line if self._is_torn else line
        try:
            written = os.write(descriptor, data)
        except OSError:
            _logger.exception("the audit log cannot be written: %r", entry)
            return
        self._is_torn = written < len(data)
        if self._is_torn:
            _logger.error("the audit log cannot be written whole, its disk may be full: %r", entry)

    def newest(
        self,
        tenant: str,
        *,
        target: str | None = None,
        action: str | None = None,
        before: float | None = None,
        limit: int,
    ) -> Sequence[AuditEntry]:
        """The tenant's newest entries, the newest first; only those older than `before`."""
        found: list[AuditEntry] = []
        for entry in reversed(self._entries):
            if len(found) == limit:
                break
            fits = (target is None or entry.target == target) and (action is None or entry.action == action)
            if entry.tenant == tenant and fits and (before is None or entry.at < before):
                found.append(entry)
        return found

    def close(self) -> None:
        """Closes the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_DECODER = msgspec.json.Decoder(AuditEntry)
