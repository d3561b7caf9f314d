"""Where sessions are kept, as users say it: a word, a path, a URL, or a store of their own."""

from __future__ import annotations

import os
from os import PathLike
from typing import cast

from halter.errors import ConfigurationError
from halter.sessions.memory import MemoryStore
from halter.sessions.port import Store

MEMORY = "memory"
_A_STORE_HAS = ("take", "write", "close", "load", "find")


def opened(where: str | PathLike[str] | Store | None, *, patience: float, migrate: bool = True) -> tuple[Store, bool]:
    """The store, and whether other processes may use it too. Nothing is touched yet. Raises `ConfigurationError`."""
    if where is None or where == MEMORY:
        return MemoryStore(), False
    if isinstance(where, str | PathLike):
        return _in_sql(os.fspath(where), patience, migrate), True
    if isinstance(where, type) or not all(callable(getattr(where, name, None)) for name in _A_STORE_HAS):
        raise ConfigurationError(f'sessions are kept in "memory", at a path or a URL, or in a Store, not in {where!r}')
    return where, not isinstance(where, MemoryStore)


def _in_sql(where: str, patience: float, migrate: bool) -> Store:
    if not isinstance(cast("object", where), str) or not where.strip():
        raise ConfigurationError(f"sessions cannot be kept at {where!r}: it is no path")
    from halter.sessions.sql import open_sql  # loads SQLAlchemy, which is an extra

    return open_sql(where, patience=patience, migrate=migrate)
