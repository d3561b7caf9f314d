"""A runnable as a tool: what its run is given by the run that calls it."""

from __future__ import annotations

from typing import Any

import pytest

from halter import Agent, RunContext, runnable
from halter.models.scripted import Scripted, calls


@pytest.mark.virtual_time
async def test_a_run_that_a_tool_starts_has_the_context_and_the_grace_of_the_run_that_calls_it() -> None:
    """Also two levels down: what the caller gave to the outermost run is what every tool in the tree sees."""
    seen: list[Any] = []

    @runnable
    async def innermost(ctx: RunContext, input: str) -> str:
        seen.append((ctx.context, ctx.grace))
        return "done"

    inner = Agent(Scripted(calls("innermost", input="look"), "done"), name="inner", tools=[innermost])
    outer = Agent(Scripted(calls("inner", input="look"), "done"), tools=[inner])
    given = object()
    await outer.run("look", context=given, grace=2.5)
    assert seen == [(given, 2.5)]
