"""Tools that the caller of a run answers: a call of one ends the run, and the next run brings its result."""

from __future__ import annotations

import json

import pytest

from halter import Agent, events, tool
from halter.core.history import NOT_RUN
from halter.errors import ConfigurationError
from halter.messages import Message, ToolResult
from halter.models.openai import OpenAIChat
from halter.models.scripted import Scripted, calls
from halter.request import OutputSchema, Settings, ToolSpec
from halter.sessions import Sessions
from halter.testing.wire_probe import WireProbe

from .loops import in_real_time

ROOM = ToolSpec(name="open_door", description="Opens a door.")


@tool
async def look() -> str:
    """Looks out of the window."""
    return "Sunny."


def both_kinds() -> Agent:
    answers = Scripted(("Wait.", calls("look"), calls("open_door", room=3)), "Done.")
    return Agent(answers, tools=[look]).for_request(tools=[ROOM])


@in_real_time
async def test_a_call_of_the_callers_tool_ends_the_run_without_its_result() -> None:
    run = both_kinds().run("Open it.")
    seen = [event async for event in run.events()]
    result = await run.finished()
    assert result.is_completed
    assert result.text == "Wait."
    finished = [event.name for event in seen if isinstance(event, events.ToolFinished)]
    assert finished == ["look"]
    assert [event.name for event in seen if isinstance(event, events.ToolCalled)] == ["look", "open_door"]


@in_real_time
async def test_the_next_run_of_the_session_brings_the_result() -> None:
    sessions = Sessions()
    agent = both_kinds()
    first = await agent.run("Open it.", session=sessions.session("s"))
    call = first.messages[-2].tool_calls[1]
    answer = Message("tool", (ToolResult(call.id, "It is open."),))
    second = await agent.run(answer, session=sessions.session("s"))
    assert second.text == "Done."
    results = [part for message in second.messages for part in message.parts if isinstance(part, ToolResult)]
    assert [part.content for part in results] == ["Sunny.", "It is open."]


@in_real_time
async def test_the_provider_is_asked_with_the_callers_tools_and_settings(wire: WireProbe) -> None:
    model = OpenAIChat("m", base_url=wire.url("steady(3,1)"), api_key="")
    shape = OutputSchema(name="city", schema={"type": "object", "properties": {"name": {"type": "string"}}})
    agent = Agent(model, instructions="Be kind.", tools=[look]).for_request(
        tools=[ROOM], settings=Settings(temperature=0.5), instructions="Be short.", output=shape
    )
    await agent.run("Hello")
    body = json.loads(wire.requests()[-1].body)
    assert [each["function"]["name"] for each in body["tools"]] == ["look", "open_door"]
    assert body["temperature"] == 0.5
    assert body["messages"][0]["content"] == "Be kind.\n\nBe short."
    assert body["response_format"]["json_schema"]["name"] == "city"


@in_real_time
async def test_a_call_that_is_never_answered_is_told_as_not_run(wire: WireProbe) -> None:
    first = await both_kinds().run("Open it.")
    await Agent(OpenAIChat("m", base_url=wire.url("steady(3,1)"), api_key="")).run(
        "Never mind.", history=first.messages
    )
    messages = json.loads(wire.requests()[-1].body)["messages"]
    assert [each["content"] for each in messages if each["role"] == "tool"] == ["Sunny.", NOT_RUN]


def test_a_tool_of_the_caller_must_have_a_name_of_its_own() -> None:
    with pytest.raises(ConfigurationError, match="two tools are called 'look'"):
        Agent("scripted:Hello", tools=[look]).for_request(tools=[ToolSpec(name="look")])
