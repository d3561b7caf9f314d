"""The file in which an *always* is stored: JSON that a person can read, change and delete from."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from halter.errors import ConfigurationError


class Allowed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A yes that is remembered: calls of `tool` by `agent`, for `user`, whose arguments fit `pattern`.

    `at`: seconds since the epoch. `pattern`: for each argument a pattern of a shell, or, if it is no text, its value.
    `tenant`: of a server, whose user that is. `by`: who said yes, as far as it is known; `run`: where.
    """

    id: str
    at: float
    agent: str
    tool: str
    pattern: Mapping[str, Any]
    user: str | None = None
    tenant: str | None = None
    by: str | None = None
    run: str | None = None


class _Content(msgspec.Struct, kw_only=True):
    version: int = 1
    allowed: tuple[Allowed, ...] = ()


class ApprovalFile:
    """One file, which any number of processes may use at once. All of it blocks."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            self.path = Path(path).expanduser().absolute()
        except (TypeError, RuntimeError) as error:
            raise ConfigurationError(f"remember must be the path of a file, not {path!r}: {error}") from error

    def read(self) -> tuple[Allowed, ...]:
        """All that is stored; nothing if there is no file. Raises `ConfigurationError` if it is broken, `OSError`."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return ()
        try:
            content = _DECODER.decode(data)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise ConfigurationError(f"{self.path} is no file of approvals: {error}; mend or delete it") from error
        if content.version != 1:
            raise ConfigurationError(f"{self.path} is of version {content.version}, which this Halter does not know")
        return content.allowed

    def add(self, allowed: Allowed) -> None:
        """Stores one more. Raises `ConfigurationError`, `OSError`; then nothing has changed."""
        with self._locked():
            self._write((*self.read(), allowed))

    def remove(self, fits: Callable[[Allowed], bool]) -> bool:
        """Deletes those that fit; False if there are none. Raises `ConfigurationError`, `OSError`."""
        with self._locked():
            there = self.read()
            left = tuple(each for each in there if not fits(each))
            if len(left) < len(there):
                self._write(left)
            return len(left) < len(there)

    @contextmanager
    def _locked(self) -> Generator[None]:
        """The file itself is replaced, so a file beside it holds the lock."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _write(self, allowed: tuple[Allowed, ...]) -> None:
        data = msgspec.json.format(msgspec.json.encode(_Content(allowed=allowed)), indent=2)
        new = self.path.with_name(f".{self.path.name}.{secrets.token_hex(6)}.new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(new, flags, 0o600), "wb") as file:
                file.write(data + b"\n")
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        finally:
            new.unlink(missing_ok=True)


_DECODER = msgspec.json.Decoder(_Content, strict=True)
