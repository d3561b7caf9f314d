"""What the tests of compositions share: a provider in memory, and leaves that ask it."""

from __future__ import annotations

import pytest

from halter import Agent
from halter.models import OpenAIChat
from halter.testing import MemorySource
from halter.testing.memory import chat_stream

from ..core.conftest import check_log as check_log
from .kinds import Leaf

ANSWER = "".join(f"t{number} " for number in range(20))


@pytest.fixture
def source() -> MemorySource:
    """Twenty tokens for whoever asks, one a second."""
    return MemorySource(chat_stream(20, every=1.0), repeat=True)


@pytest.fixture
def leaf(source: MemorySource) -> Leaf:
    """Agents whose provider is `source`."""
    return lambda name: Agent(OpenAIChat("any", api_key="any", source=source), name=name)
