"""The databases of the session tests: a SQLite file, and a PostgreSQL that is started once for all who ask."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from halter.sessions.sql import open_sql

from ..services.postgres import Postgres, started
from .contract import Open

PATIENCE = 20.0  # seconds: no test waits for its end, and a busy machine may need some of it


@pytest.fixture(scope="session")
def postgres(require: Callable[[str, bool], None]) -> Generator[Postgres]:
    server = started(require)
    yield server
    server.close()


@pytest.fixture
def postgres_url(postgres: Postgres) -> str:
    """Of a place in it where nothing is yet."""
    return postgres.new_place()


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Open:
    """Each call gives a store on the same new file."""
    return lambda: open_sql(tmp_path / "sessions.db", patience=PATIENCE)


@pytest.fixture
def postgres_store(postgres_url: str) -> Open:
    """Each call gives a store on the same new database."""
    return lambda: open_sql(postgres_url, patience=PATIENCE)
