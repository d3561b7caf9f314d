"""D41, D42: an agent stopped between a call and its result, and what the provider is asked in the turn after it.

The provider's own record is looked at: one truthful result for each call, directly behind it; the stop is told; the
prompt that was stopped is there once.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from halter import Agent, CancelMode, RunResult, events, tool
from halter.core.history import MARKER, MAY_HAVE_RUN, NOT_RUN, for_model
from halter.hooks import Hooks
from halter.messages import Message, ToolResult
from halter.models.scripted import Scripted, calls
from halter.testing.wire_probe import WireProbe

from ..stopping.adapters import ADAPTERS, Adapter
from .conversations import CHECKS, check_by_sdk, check_history
from .loops import in_real_time

PROMPT = "What is it like in Kyoto?"
NEXT = "Never mind. Say hello."
FORMATS = {"openai-chat": "chat", "azure": "chat", "openai-responses": "responses", "azure-responses": "responses"}

pytestmark = pytest.mark.scenario("D40", "D41", "D42")


@pytest.fixture(params=ADAPTERS, ids=lambda adapter: adapter.name)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    return request.param


@tool
async def look(city: str = "") -> str:
    """Looks out of the window."""
    if city != "Nara":
        await asyncio.sleep(60)
    return "Sunny."


class Hesitant(Hooks):
    """Waits before each call."""

    async def before_tool(self, ctx: Any, call: Any) -> None:
        await asyncio.sleep(60)


async def stopped_at(agent: Agent[Any], moment: type[events.Event]) -> RunResult[Any]:
    """The agent's run, stopped when the first such event is seen."""
    async with agent.run(PROMPT, grace=1) as run:
        async for event in run.events():
            if isinstance(event, moment):
                run.cancel("enough")
        return await run.finished()


async def ask_next(adapter: Adapter, wire: WireProbe, result: RunResult[Any]) -> dict[str, Any]:
    """The body of the next request, as the provider has read it."""
    agent = Agent(adapter.model(wire.url("steady(3,1)")), tools=[look])
    after = (await agent.run(NEXT, history=result.messages)).messages
    assert after[: len(result.messages)] == result.messages
    return json.loads(wire.requests()[-1].body)


def check_told(adapter: Adapter, body: dict[str, Any], said: list[str]) -> None:
    """Valid for this provider, with the results `said`, the marker before what comes next; nothing twice."""
    name = FORMATS.get(adapter.name, adapter.name)
    assert len(CHECKS[name](body)) == len(said)
    check_by_sdk_of(name, body)
    written = json.dumps(body)
    assert written.count(PROMPT) == 1
    assert written.count(NEXT) == 1
    assert written.count(MARKER) == 1
    assert 0 < written.index(NEXT) - written.index(MARKER) < 100
    for text in said:
        assert written.count(json.dumps(text)) == said.count(text)


def check_by_sdk_of(name: str, body: dict[str, Any]) -> None:
    valid: dict[str, dict[str, Any]] = {
        "chat": {"model": "m", "messages": [], "stream": True},
        "responses": {"stream": True},
        "anthropic": {"model": "m", "max_tokens": 1, "messages": [], "stream": True},
        "gemini": {"contents": []},
    }
    check_by_sdk(valid | {name: body})


def results_in(result: RunResult[Any]) -> list[str]:
    return [part.content for message in result.messages for part in message.parts if isinstance(part, ToolResult)]


@in_real_time
async def test_stopped_while_the_call_ran(adapter: Adapter, wire: WireProbe) -> None:
    """Part of it may have taken effect, and the model is told so."""
    agent = Agent(adapter.model(wire.url('tool-call(look, {"city": "Kyoto"})')), tools=[look])
    result = await stopped_at(agent, events.ToolStarted)
    check_history(result.messages)
    assert results_in(result) == [MAY_HAVE_RUN]
    check_told(adapter, await ask_next(adapter, wire, result), [MAY_HAVE_RUN])


@in_real_time
async def test_stopped_before_the_call_began(adapter: Adapter, wire: WireProbe) -> None:
    """It did not run, and the model is told so."""
    agent = Agent(adapter.model(wire.url('tool-call(look, {"city": "Kyoto"})')), tools=[look], hooks=Hesitant())
    result = await stopped_at(agent, events.ToolCalled)
    check_history(result.messages)
    assert results_in(result) == [NOT_RUN]
    check_told(adapter, await ask_next(adapter, wire, result), [NOT_RUN])


@in_real_time
async def test_stopped_while_the_arguments_streamed_in(adapter: Adapter, wire: WireProbe) -> None:
    """Half a call is a call that did not run; its half arguments are no reason to refuse the next request."""
    arguments = json.dumps({"city": "Kyoto" * 300})
    agent = Agent(adapter.model(wire.url(f"tool-call(look, {arguments})")), tools=[look])
    result = await stopped_at(agent, events.ToolArgumentsDelta)
    if adapter.name == "gemini":  # writes a call in one piece
        assert results_in(result) in ([], [NOT_RUN], [MAY_HAVE_RUN])
        return
    check_history(result.messages)
    assert result.messages[-2].interrupted
    assert results_in(result) == [NOT_RUN]
    check_told(adapter, await ask_next(adapter, wire, result), [NOT_RUN])


@in_real_time
async def test_stopped_when_one_of_three_calls_had_ended(adapter: Adapter, wire: WireProbe) -> None:
    """The one keeps its result; one was cut short, the last in the row never ran."""
    asked = (calls("look", city="Nara"), calls("look", city="Kyoto"), calls("look", city="Oslo"))
    result = await stopped_at(Agent(Scripted(asked), tools=[look], parallel_tools=False), events.ToolFinished)
    check_history(result.messages)
    assert results_in(result)[0] == "Sunny."
    second = results_in(result)[1]  # the stop comes as its predecessor ends: it may have begun by then
    assert results_in(result)[1:] == [second, NOT_RUN]
    check_told(adapter, await ask_next(adapter, wire, result), ["Sunny.", second, NOT_RUN])


@in_real_time
async def test_stopped_twice_in_a_row_is_told_twice(adapter: Adapter, wire: WireProbe) -> None:
    """Each stop has its marker, before what the user said after it; each call its one result."""
    script = Scripted(calls("look", city="Kyoto"))
    first = await stopped_at(Agent(script, tools=[look]), events.ToolStarted)
    async with Agent(script, tools=[look]).run("And now?", history=first.messages) as run:
        async for event in run.events():
            if isinstance(event, events.ToolStarted):
                run.cancel("enough")
        second = await run.finished()
    agent = Agent(adapter.model(wire.url("steady(3,1)")), tools=[look])
    await agent.run(NEXT, history=second.messages)
    written = wire.requests()[-1].body
    assert len(CHECKS[FORMATS.get(adapter.name, adapter.name)](json.loads(written))) == 2
    places = [written.index(text) for text in (PROMPT, MARKER, "And now?", NEXT)]
    assert places == sorted(places)
    assert written.count(MARKER) == 2


@pytest.mark.scenario("D42")
@pytest.mark.virtual_time
@pytest.mark.parametrize("mode", [CancelMode.IMMEDIATE, CancelMode.AFTER_TURN])
async def test_a_turn_that_was_stopped_before_its_answer_had_begun_is_told_to_the_model(mode: CancelMode) -> None:
    """While it waits for the first token, and between the results of its tools and the next answer."""

    @tool
    async def work() -> str:
        await asyncio.sleep(1)
        return "worked"

    agent = Agent(Scripted(calls("work"), "done", pace=1), tools=[work])
    run = agent.run("first").start()
    await asyncio.sleep(0.5 if mode is CancelMode.IMMEDIATE else 1.5)
    run.cancel(mode=mode)
    stopped = await run.finished()
    told = for_model((*stopped.messages, Message.user("second")))
    assert told[-1].text.startswith(MARKER)
    assert next(message.text for message in told if message.role == "user") == "first"
    assert all(message.parts for message in told)
