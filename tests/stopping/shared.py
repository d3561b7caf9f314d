"""The adapter for tests of what lies below every adapter: event loops, connection pools, processes.

A module that imports `adapter` from here runs with two wire formats; `make soak` runs it with each adapter.
"""

from __future__ import annotations

from typing import Any

import pytest

from .adapters import ADAPTERS, Adapter

ORDINARY = ("openai-chat", "anthropic")


def _params() -> list[Any]:
    return [
        pytest.param(each, id=each.name, marks=() if each.name in ORDINARY else pytest.mark.soak) for each in ADAPTERS
    ]


@pytest.fixture(params=_params())
def adapter(request: pytest.FixtureRequest) -> Adapter:
    return request.param


def in_pairs(*hows: str) -> list[Any]:
    """Parameters `adapter` and `how`: each adapter with a way to wait, and each way once outside of `make soak`."""
    return [
        pytest.param(
            adapter,
            hows[place % len(hows)],
            id=f"{adapter.name}-{hows[place % len(hows)]}",
            marks=() if place < len(hows) else pytest.mark.soak,
        )
        for place, adapter in enumerate(ADAPTERS)
    ]
