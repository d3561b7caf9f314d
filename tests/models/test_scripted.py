"""The scripted model, where nothing else tries it."""

from __future__ import annotations

import time

import pytest

from halter import Agent
from halter.models.scripted import Scripted


@pytest.mark.loops
async def test_a_pace_below_a_millisecond_is_kept_on_average() -> None:
    """uvloop takes half a millisecond for none: a flood of 2,000 words a second was one of 100,000 there."""
    began = time.monotonic()
    result = await Agent(Scripted("w " * 200, pace=0.0005)).run("Go.")
    assert result.text == "w " * 200
    assert time.monotonic() - began >= 0.099
