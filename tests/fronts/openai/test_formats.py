"""What OpenAI's formats make of random runs, read by the client's types, is what the runs themselves have said."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halter import Agent, RunContext, events, tool
from halter.compose import Sequential
from halter.core.runnable import Runnable
from halter.events import Event
from halter.messages import Message, ToolCall, Usage
from halter.outcome import RunResult
from halter.request import ModelRequest, ToolSpec
from halter.server.fronts.front import EVENT_TYPES, Dropped, RuledFormat
from halter.server.fronts.openai.chat_format import ChatFormat
from halter.server.fronts.openai.response_format import ResponseFormat
from halter.server.names import Names
from halter.server.port import RunKey, RunPlan
from halter.snapshot import Fold

from .conftest import check_chunk, check_event

FORMATS = (ChatFormat, ResponseFormat)
WORDS = ["one ", "two", "\n\ndata: x\n\n", "ü€😀", '"quoted"', "\u2028", "[DONE]", "\ud800"]
Turn = tuple[list[str], list[str], list[str]]  # reasoning, text, and the names of tools that are called
TURNS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(WORDS), max_size=2),
        st.lists(st.sampled_from(WORDS), max_size=4),
        st.lists(st.sampled_from(["look", "ask_caller"]), max_size=2),
    ),
    min_size=1,
    max_size=3,
)


@tool
async def look() -> str:
    """Looks."""
    return "Sunny."


class Planned:
    """A model that says what the turns plan, and then ends."""

    name = "planned"
    price = None

    def __init__(self, turns: list[Turn]) -> None:
        self._turns = turns

    async def respond(self, request: ModelRequest, ctx: RunContext) -> Message:
        said = sum(message.role == "assistant" for message in request.messages)
        thoughts, words, names = self._turns[said] if said < len(self._turns) else ([], ["End."], [])
        reply = ctx.reply()
        for piece in thoughts:
            reply.reasoning(piece)
            await ctx.drain()
        for piece in words or (() if names else ("End.",)):
            reply.text(piece)
            await ctx.drain()
        for place, name in enumerate(names):
            reply.tool_fragment(place, f"call_{said}_{place}", name, "{}")
        reply.assembly.usage = Usage(input=3, output=2)
        return reply.finish()


def carried_out(turns: list[Turn], is_inner: bool, stop_at: int | None) -> tuple[RunResult[Any], list[Event]]:
    """A run of these turns, alone or under another, and all its events."""
    agent = Agent(Planned(turns), name="a", tools=[look]).for_request(tools=[ToolSpec(name="ask_caller")])
    runnable: Runnable[Any] = Sequential(agent, name="row") if is_inner else agent

    async def run() -> tuple[RunResult[Any], list[Event]]:
        async with runnable.run("Go.") as run:
            number = 0
            async for _ in run.events():
                number += 1
                if number == stop_at:
                    run.cancel("enough")
            return await run.finished(), [event async for event in run.events(after=0)]

    return asyncio.run(run())


def frames_of(format: RuledFormat, log: Sequence[Event], size: int) -> list[dict[str, Any]]:
    """The data of all frames of a connection that reads the log in batches of this size."""
    written = format.snapshot(Fold(log[0].run_id).snapshot(), gap=None)
    for place in range(0, len(log), size):
        written += format.batch(log[place : place + size])
    lines = (written + format.end()).decode().split("\n")
    found = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert found.pop() == "[DONE]"
    return [json.loads(each) for each in found]


def made(kind: Any, id: str) -> Any:
    metadata = {"openai": {"client_tools": ["ask_caller"]}}
    key = RunKey("", id)
    return kind(
        Names(),
        RunPlan(key=key, agent="a", kind="agent", actor="", fingerprint="", created_at=1.0, metadata=metadata),
    )


def text_in_json(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def left_open(result: RunResult[Any]) -> list[str]:
    """The calls of the last answer that are the caller's to answer."""
    answers = [message for message in result.messages if message.role == "assistant"]
    calls: Sequence[ToolCall] = answers[-1].tool_calls if answers and not answers[-1].interrupted else ()
    return [call.id for call in calls if call.name == "ask_caller"]


def said_by(result: RunResult[Any], is_inner: bool) -> list[str]:
    """The texts of the run's own answers; one that is made of others shows what it ends with."""
    if is_inner:
        return [text_in_json(result.text)] if result.text else []
    return [text_in_json(each.text) for each in result.messages if each.role == "assistant" and each.text]


runs = given(
    turns=TURNS,
    is_inner=st.booleans(),
    stop_at=st.none() | st.integers(1, 25),
    size=st.sampled_from([1, 3, 200]),
)


@settings(max_examples=25)
@runs
def test_a_chat_completion_is_what_the_run_has_said(
    turns: list[Turn], is_inner: bool, stop_at: int | None, size: int
) -> None:
    result, log = carried_out(turns, is_inner, stop_at)
    format = made(ChatFormat, result.run_id)
    chunks = [check_chunk(each) for each in frames_of(format, log, size)]
    text = "".join(each.choices[0].delta.content or "" for each in chunks)
    assert text == "\n\n".join(said_by(result, is_inner))
    calls = [call.id for each in chunks for call in each.choices[0].delta.tool_calls or ()]
    finish = chunks[-1].choices[0].finish_reason
    if result.is_cancelled:
        assert finish == "length"
    elif not is_inner:
        assert calls == left_open(result)
        assert finish == ("tool_calls" if calls else "stop")
    whole = format.completion()["choices"][0]
    assert (whole["message"]["content"] or "", whole["finish_reason"]) == (text, finish)


@settings(max_examples=25)
@runs
def test_a_response_is_what_the_run_has_said(turns: list[Turn], is_inner: bool, stop_at: int | None, size: int) -> None:
    result, log = carried_out(turns, is_inner, stop_at)
    found = [check_event(each) for each in frames_of(made(ResponseFormat, result.run_id), log, size)]
    final = found[-1].response
    numbers = [event.sequence_number for event in found]
    assert numbers == sorted(set(numbers))
    assert final.status == ("cancelled" if result.is_cancelled else "completed")
    messages = [each for each in final.output if each.type == "message"]
    assert [each.content[0].text for each in messages] == said_by(result, is_inner)
    deltas = "".join(event.delta for event in found if event.type == "response.output_text.delta")
    assert deltas == "".join(said_by(result, is_inner))
    if not is_inner:
        assert [each.call_id for each in final.output if each.type == "function_call"] == left_open(result)
        thoughts = [each.summary[0].text for each in final.output if each.type == "reasoning"]
        assert thoughts == [text_in_json(each.reasoning) for each in result.messages if each.reasoning]


@pytest.mark.parametrize("kind", FORMATS)
def test_every_type_of_event_is_shown_or_dropped_for_a_reason(kind: type[RuledFormat]) -> None:
    assert set(kind.rules) == set(EVENT_TYPES)
    assert all(rule.reason for rule in kind.rules.values() if isinstance(rule, Dropped))


def test_a_format_that_forgets_a_type_of_event_cannot_be_made() -> None:
    rules = {kind: Dropped("it is not wanted") for kind in EVENT_TYPES if kind is not events.Handoff}
    with pytest.raises(TypeError, match="says nothing of Handoff"):
        type("Forgetful", (RuledFormat,), {"rules": rules})
