"""Every place where sessions can be kept, by name: what one of them needs is made only for its own tests."""

from __future__ import annotations

from typing import Any

import pytest

from halter.sessions.memory import MemoryStore

from .contract import Open

PLACES = ["memory", "sqlite", "postgres"]


@pytest.fixture
def memory_store() -> Open:
    """In memory there is no second way to the same place."""
    store = MemoryStore()
    return lambda: store


@pytest.fixture(params=PLACES)
def open_store(request: pytest.FixtureRequest) -> Any:
    """Each call gives a store on one and the same place."""
    return request.getfixturevalue(f"{request.param}_store")
