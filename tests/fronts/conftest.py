"""What the tests of all fronts have: a server on a real socket, and Node with the real clients."""

from __future__ import annotations

import pytest

from ..conftest import require_service
from ..server.conftest import agent_on, serve
from .node import Node, find_programs, installed

__all__ = ["agent_on", "serve"]


@pytest.fixture(scope="session")
def node() -> Node:
    """Node, with the packages of `node/package.json`."""
    require_service("Node with npm", find_programs())
    return Node(installed())
