"""`Facts`: what it was given is looked at where it is made."""

from __future__ import annotations

from typing import Any

import pytest

from halter import Agent
from halter.crews import Member
from halter.errors import ConfigurationError
from halter.facts import Facts
from halter.models.scripted import Scripted


@pytest.mark.parametrize(
    "given",
    [
        {"model": "no-such:model"},
        {"model": 5},
        {"scope": "alice"},
        {"recall": -1},
        {"recall": True},
        {"most": 0},
        {"embed": "openai"},
        {"template": ""},
        {"template": 5},
    ],
    ids=str,
)
def test_what_cannot_work_is_refused_at_once(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Facts(**given)


def test_a_scope_that_has_to_be_awaited_is_refused() -> None:
    async def scope(ctx: object) -> str:
        return "alice"

    with pytest.raises(ConfigurationError, match="plain function"):
        Facts(scope=scope)  # pyright: ignore[reportArgumentType]


def test_an_agents_memory_is_facts() -> None:
    with pytest.raises(ConfigurationError, match=r"memory=Facts\(\)"):
        Agent("scripted:Hi", memory=True)  # pyright: ignore


def test_it_says_who_learns() -> None:
    assert repr(Facts()) == "Facts()"
    assert repr(Facts("scripted:{}")) == "Facts('scripted')"
    model = Scripted("{}")
    assert Facts(model).model is model


def test_a_member_of_a_crew_may_have_one() -> None:
    facts = Facts()
    assert Member("scripted:Hi", role="r", goal="g", memory=facts).memory is facts
