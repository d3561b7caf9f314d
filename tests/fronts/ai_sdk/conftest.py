"""The AI SDK in two processes, one for each version."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from ..node import Node, Worker
from .clients import BEGIN, SEVEN, SIX


@pytest.fixture(scope="session")
def six(node: Node) -> Generator[Worker]:
    with node.loaded(SIX + BEGIN) as worker:
        yield worker


@pytest.fixture(scope="session")
def seven(node: Node) -> Generator[Worker]:
    with node.loaded(SEVEN + BEGIN) as worker:
        yield worker


@pytest.fixture(params=["six", "seven"])
def client(request: pytest.FixtureRequest) -> Worker:
    """The AI SDK in its two versions."""
    return request.getfixturevalue(request.param)
