"""K94: an answer that its provider has cut off; no call of it runs unless its arguments are complete, and the model is
told which did not.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from halter import Agent, events, tool
from halter.core.complete_calls import is_object, was_cut_off
from halter.core.history import CUT_OFF, for_model, seal, seal_lost
from halter.hooks import Hooks
from halter.messages import Message, ToolCall, ToolResult
from halter.testing import Answer, MemorySource
from halter.testing.wire_probe import WireProbe

from ..stopping.adapters import ADAPTERS, Adapter
from .conversations import CHECKS
from .test_the_next_turn import FORMATS

pytestmark = pytest.mark.scenario("K94")


@pytest.fixture(params=ADAPTERS, ids=lambda adapter: adapter.name)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    return request.param


class Deletions(list[str]):
    """A tool with a default that must not be used unasked, and the calls of it that ran."""

    def tool(self) -> Any:
        @tool
        def delete(path: str = "/") -> str:
            """Deletes a file."""
            self.append(path)
            return "Deleted."

        return delete


def results_in(messages: tuple[Message, ...]) -> list[ToolResult]:
    return [part for message in messages for part in message.parts if isinstance(part, ToolResult)]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_call_that_was_cut_off_before_its_arguments_does_not_run(
    adapter: Adapter, wire: WireProbe, stream: bool
) -> None:
    ran = Deletions()
    agent = Agent(adapter.model(wire.url("cut-call(delete)"), stream=stream), tools=[ran.tool()])
    result = asyncio.run(run_whole(agent))
    assert ran == []
    assert [(part.content, part.is_error) for part in results_in(result.messages)] == [(CUT_OFF, True)]
    body = json.loads(wire.requests()[-1].body)
    assert len(CHECKS[FORMATS.get(adapter.name, adapter.name)](body)) == 1
    assert json.dumps(CUT_OFF) in wire.requests()[-1].body  # and so the model knows


def test_a_call_that_was_cut_off_within_its_arguments_does_not_run(adapter: Adapter, wire: WireProbe) -> None:
    if adapter.name == "gemini":
        pytest.skip("Gemini writes a call in one piece")
    ran = Deletions()
    agent = Agent(adapter.model(wire.url('cut-call(delete, {"path": "/tm)')), tools=[ran.tool()])
    result = asyncio.run(run_whole(agent))
    assert ran == []
    assert [part.content for part in results_in(result.messages)] == [CUT_OFF]
    assert len(CHECKS[FORMATS.get(adapter.name, adapter.name)](json.loads(wire.requests()[-1].body))) == 1


def test_a_call_whose_arguments_had_come_runs_though_the_answer_was_cut_off(adapter: Adapter, wire: WireProbe) -> None:
    if FORMATS.get(adapter.name) == "responses":
        pytest.skip("the item itself says that it is incomplete: see below")
    ran = Deletions()
    agent = Agent(adapter.model(wire.url('cut-call(delete, {"path": "a.log"})')), tools=[ran.tool()])
    asyncio.run(run_whole(agent))
    assert ran == ["a.log"]


def test_a_call_without_arguments_runs_if_the_answer_was_not_cut_off(adapter: Adapter, wire: WireProbe) -> None:
    ran = Deletions()
    agent = Agent(adapter.model(wire.url("tool-call(delete,{})")), tools=[ran.tool()])
    asyncio.run(run_whole(agent))
    assert ran == ["/"]


def test_a_responses_item_that_says_that_it_is_incomplete_does_not_run(wire: WireProbe) -> None:
    """Whatever arguments it has by then."""
    ran = Deletions()
    (responses,) = [adapter for adapter in ADAPTERS if adapter.name == "openai-responses"]
    agent = Agent(responses.model(wire.url('cut-call(delete, {"path": "a.log"})')), tools=[ran.tool()])
    result = asyncio.run(run_whole(agent))
    assert ran == []
    assert [part.content for part in results_in(result.messages)] == [CUT_OFF]


def test_neither_a_hook_nor_a_handoff_is_asked_about_a_call_that_was_cut_off(wire: WireProbe) -> None:
    asked: list[str] = []

    class Looks(Hooks):
        async def before_tool(self, ctx: Any, call: ToolCall) -> None:
            asked.append(call.name)

    adapter = ADAPTERS[0]
    expert = Agent(adapter.model(wire.url("steady(3,1)")), name="expert")
    agent = Agent(adapter.model(wire.url("cut-call(transfer_to_expert)")), handoffs=[expert], hooks=Looks())
    log = asyncio.run(run_log(agent))
    assert not [event for event in log if isinstance(event, events.Handoff | events.ToolStarted)]
    assert asked == []


# The end of an answer with one call without arguments, in the provider's words.
REASONS = [
    *("length", "content_filter", "max_tokens", "max_output_tokens", "refusal", "model_context_window_exceeded"),
    *("SAFETY", "MAX_TOKENS", "model_length", "incomplete", "a-word-of-tomorrow"),
]


@pytest.mark.parametrize("reason", REASONS)
def test_every_word_for_a_cut_counts(reason: str) -> None:
    ran = Deletions()
    called = {"index": 0, "id": "c1", "type": "function", "function": {"name": "delete", "arguments": ""}}
    source = MemorySource(_chat({"tool_calls": [called]}, reason), _chat({"content": "Done."}, "stop"))
    agent = Agent(ADAPTERS[0].model("http://memory/v1", source=source), tools=[ran.tool()])
    result = asyncio.run(run_whole(agent))
    assert was_cut_off(reason)
    assert ran == []
    assert [part.content for part in results_in(result.messages)] == [CUT_OFF]


def _chat(delta: dict[str, Any], reason: str) -> Answer:
    frame = {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
    return Answer(body=((0, f"data: {json.dumps(frame)}\n\ndata: [DONE]\n\n".encode()),))


@pytest.mark.parametrize("word", [None, "", "stop", "tool_calls", "function_call", "tool_use", "completed", "STOP"])
def test_an_answer_that_came_to_its_own_end_was_not_cut_off(word: str | None) -> None:
    assert not was_cut_off(word)


NO_OBJECTS = ["", " ", '{"a": "b', "[]", "1", "null", '{"a": NaN}', '{"a": 1} x', '{"a": "\ud800"}', '{"a":' * 9999]


@pytest.mark.parametrize("text", NO_OBJECTS, ids=range(len(NO_OBJECTS)))
def test_only_a_whole_json_object_is_complete(text: str) -> None:
    assert not is_object(text)
    assert is_object(' {"a": [1, {}]} ')


def test_what_was_cut_off_is_told_as_such_wherever_a_result_is_missing() -> None:
    """Also by the seal of a stop, by that of a lost process, and where the conversation is repaired."""
    call = ToolCall("c1", "delete", "", incomplete=True)
    asked = (Message.user("Go."), Message("assistant", (call,), finish_reason="length"))
    sealed = seal(asked)
    assert sealed is not None
    assert [part.content for part in results_in((sealed,))] == [CUT_OFF]
    assert [part.content for part in results_in(seal_lost(asked)[1])] == [CUT_OFF]
    assert [part.content for part in results_in(for_model(asked))] == [CUT_OFF]


async def run_whole(agent: Agent[Any]) -> Any:
    return await agent.run("Clean up.").finished()


async def run_log(agent: Agent[Any]) -> list[events.Event]:
    return [event async for event in agent.run("Clean up.").events()]
