"""What the tests of agents share: what must hold for every finished log, and a quiet logger."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from ..core.conftest import check_log as check_log


@pytest.fixture
def quiet() -> Iterator[None]:
    """What is abandoned and what fails is logged, as it should be; not in these tests' output."""
    logger = logging.getLogger("halter")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)
