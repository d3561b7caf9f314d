"""What the tests of facts share: sessions, and a quiet logger."""

from __future__ import annotations

from pathlib import Path

import pytest

from halter.sessions import Sessions

from ..agents.conftest import quiet as quiet
from ..sessions.conftest import postgres as postgres
from ..sessions.conftest import postgres_store as postgres_store
from ..sessions.conftest import postgres_url as postgres_url
from ..sessions.conftest import sqlite_store as sqlite_store
from ..sessions.contract import Open
from ..sessions.places import PLACES
from ..sessions.places import memory_store as memory_store
from ..sessions.places import open_store as open_store
from .parts import Kept


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def chats(open_store: Open) -> Sessions:
    """In each place where sessions can be kept."""
    return Sessions(open_store())


@pytest.fixture(params=PLACES)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a program keeps its sessions."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return "memory" if request.param == "memory" else str(tmp_path / "chats.db")
