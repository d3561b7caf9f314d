"""API keys in a file: who may do what. Only hashes of the keys are stored.

A key is `halter_<id>_<secret>`; the secret has 256 bits, so one round of SHA-256 protects it. The file is replaced
whole and read again when it has changed: a revoked key stops working with the next request.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from starlette.requests import HTTPConnection

from halter.errors import ConfigurationError
from halter.server.principal import Principal, Scope

try:
    import fcntl
except ImportError:  # Windows: two commands at once are not kept apart there
    fcntl = None

PREFIX = "halter"
ORDINARY: tuple[Scope, ...] = ("run", "read", "stop")


class StoredKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is stored. Times are seconds since the epoch."""

    id: str
    hash: str
    tenant: str
    actor: str
    scopes: tuple[str, ...]
    created_at: float

    @property
    def principal(self) -> Principal:
        """Whom it stands for."""
        return Principal(tenant=self.tenant, actor=self.actor, scopes=frozenset(self.scopes))


class _File(msgspec.Struct, kw_only=True):
    version: int = 1
    keys: list[StoredKey] = []


class KeyFile:
    """The keys in a file.

    Args:
        path: the file. `add` makes it, readable for its owner alone.

    All methods raise `ConfigurationError` if the file cannot be read or is not one of keys.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._seen: tuple[int, int, int] | None = None
        self._keys: dict[str, StoredKey] = {}

    # --- for the command ------------------------------------------------------------------------------------

    def add(self, actor: str, *, tenant: str, scopes: tuple[str, ...] = ORDINARY) -> str:
        """Adds a key and returns it: the only time that it is seen.

        Args:
            actor: the name under which its holder's starts and stops are recorded.
            tenant: whose runs it sees.
            scopes: what it may do.
        """
        id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        if not actor.strip() or not tenant:
            raise ConfigurationError("a key needs a name and a tenant")
        key = StoredKey(
            id=id, hash=_hash(secret), tenant=tenant, actor=actor, scopes=tuple(scopes), created_at=time.time()
        )
        _ = key.principal  # checked before it is stored
        with self._alone():
            self._write([*self.list(), key])
        return f"{PREFIX}_{id}_{secret}"

    def list(self) -> list[StoredKey]:
        """All keys, the oldest first; none if there is no file."""
        return self._read().keys if self._path.exists() else []

    def revoke(self, id: str) -> StoredKey:
        """Removes the key with this id, or with these first characters of it, and returns it."""
        with self._alone():
            keys = self.list()
            found = [key for key in keys if key.id.startswith(id)] if id else []
            if len(found) != 1:
                problem = f"several keys begin with {id!r}" if found else f"there is no key {id!r}"
                raise ConfigurationError(f"{problem}; `halter keys ls` lists them")
            self._write([key for key in keys if key is not found[0]])
        return found[0]

    # --- for the server -------------------------------------------------------------------------------------

    async def __call__(self, connection: HTTPConnection) -> Principal | None:
        """The principal behind the request's `Authorization: Bearer` or `X-API-Key` header."""
        kind, _, token = connection.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            token = connection.headers.get("x-api-key", "")
        return self.principal(token.strip())

    def principal(self, token: str) -> Principal | None:
        """The principal of a key; `None` if it is not valid."""
        self._refresh()
        _, _, rest = token.partition("_")
        id, _, secret = rest.partition("_")
        key = self._keys.get(id)
        # An unknown id takes as long as a known one.
        is_right = hmac.compare_digest(_hash(secret), key.hash if key else _NOBODY)
        return key.principal if key is not None and is_right else None

    def _refresh(self) -> None:
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            self._keys, self._seen = {}, None
            return
        seen = (status.st_mtime_ns, status.st_ino, status.st_size)
        if seen != self._seen:
            self._keys = {key.id: key for key in self._read().keys}
            self._seen = seen

    # --- the file -------------------------------------------------------------------------------------------

    def _read(self) -> _File:
        try:
            return _DECODER.decode(self._path.read_bytes())
        except OSError as error:
            raise ConfigurationError(f"cannot read the keys in {str(self._path)!r}: {error.strerror}") from error
        except msgspec.DecodeError as error:
            raise ConfigurationError(f"{str(self._path)!r} is not a file of keys: {error}") from error

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Within this block no other process changes the file: its key would be lost, or a revoked one come back."""
        if fcntl is None:
            yield
            return
        try:
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise ConfigurationError(f"cannot write the keys to {str(self._path)!r}: {error.strerror}") from error
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _write(self, keys: list[StoredKey]) -> None:
        data = msgspec.json.format(msgspec.json.encode(_File(keys=keys)), indent=2)
        try:
            descriptor, new = tempfile.mkstemp(dir=self._path.parent, prefix=self._path.name)  # readable for us alone
            with os.fdopen(descriptor, "wb") as file:
                file.write(data + b"\n")
                file.flush()
                os.fsync(descriptor)
            os.replace(new, self._path)
        except OSError as error:
            raise ConfigurationError(f"cannot write the keys to {str(self._path)!r}: {error.strerror}") from error


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


_NOBODY = _hash(secrets.token_hex())
_DECODER = msgspec.json.Decoder(_File)
