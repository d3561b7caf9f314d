"""Events as ADK's events: the shapes, and what is dropped by which rule."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halter import events
from halter.events import AnyEvent, Event
from halter.messages import Message, Refusal, Text, ToolCall, Usage
from halter.outcome import CancelReceipt
from halter.server.fronts.adk.format import LINES, AdkFormat
from halter.server.fronts.front import Dropped
from halter.server.names import Names

from ..random_runs import random_log
from .shapes import batches, seen_by_client, seen_in_run

STAMP: dict[str, Any] = {"run_id": "r", "parent_id": None, "root_id": "r", "at": 12.5}
AGENT: dict[str, Any] = {**STAMP, "agent": None, "task": None}
ACTIONS = {"stateDelta": {}, "artifactDelta": {}, "requestedAuthConfigs": {}, "requestedToolConfirmations": {}}
ABOUT = {"invocationId": "r", "author": "poet", "actions": ACTIONS, "nodeInfo": {"path": "poet"}}
STARTED = events.Started(seq=1, name="poet", kind="agent", input="Go.", **STAMP)


def a_format(**options: Any) -> AdkFormat:
    return AdkFormat(Names(), app="app", **{"streaming": True, "wrapping": LINES, **options})


def shown(found: Sequence[Event], sizes: Sequence[int] = (1,), **options: Any) -> list[dict[str, Any]]:
    format = a_format(**options)
    return [json.loads(line) for batch in batches(found, sizes) for line in format.batch(batch).splitlines()]


def one(event: Event, **options: Any) -> dict[str, Any]:
    [found] = shown([STARTED, event], **options)
    return found


def test_every_type_of_event_is_shown_or_dropped_for_a_reason() -> None:
    for kind in AnyEvent.__args__:
        rule = AdkFormat.rules[kind]
        assert not isinstance(rule, Dropped) or len(rule.reason.split()) >= 4, kind


def test_a_piece_of_an_answer_is_partial_and_has_the_id_of_its_message() -> None:
    delta = events.TextDelta(seq=2, text='Say "hi"\n', message_id="m", first_seq=2, **AGENT)
    content = {"parts": [{"text": 'Say "hi"\n'}], "role": "model"}
    assert one(delta) == {**ABOUT, "content": content, "partial": True, "id": "m", "timestamp": 12.5}
    thought = events.ReasoningDelta(seq=2, text="Hm.", message_id="m", first_seq=2, **AGENT)
    assert one(thought)["content"]["parts"] == [{"text": "Hm.", "thought": True}]
    assert shown([STARTED, delta, thought], streaming=False) == []


def test_a_piece_that_is_no_unicode_is_shown_with_question_marks() -> None:
    delta = events.TextDelta(seq=2, text="a\ud800b", message_id="m", first_seq=2, **AGENT)
    assert one(delta)["content"]["parts"] == [{"text": "a?b"}]


def test_a_whole_message_has_its_calls_its_usage_and_its_reason() -> None:
    message = Message(
        "assistant",
        (Text("Let me see."), ToolCall("c", "add", '{"a":1}'), ToolCall("d", "odd", "[")),
        finish_reason="tool_calls",
        usage=Usage(input=7, output=5, reasoning=2, cached=3),
        model="openai:gpt-5.2",
    )
    found = one(events.MessageFinished(seq=2, message=message, message_id="m", **AGENT))
    assert found == {
        **ABOUT,
        "content": {
            "parts": [
                {"text": "Let me see."},
                {"functionCall": {"id": "c", "args": {"a": 1}, "name": "add"}},
                {"functionCall": {"id": "d", "args": {"arguments": "["}, "name": "odd"}},
            ],
            "role": "model",
        },
        "finishReason": "STOP",
        "usageMetadata": {
            "cachedContentTokenCount": 3,
            "candidatesTokenCount": 3,
            "promptTokenCount": 7,
            "thoughtsTokenCount": 2,
            "totalTokenCount": 12,
        },
        "modelVersion": "openai:gpt-5.2",
        "id": "m",
        "timestamp": 12.5,
    }


def test_a_message_that_was_cut_off_is_interrupted_and_shows_no_calls_as_none_of_them_ran() -> None:
    message = Message("assistant", (Text("Let m"), ToolCall("c", "add", '{"a"')), interrupted=True)
    found = one(events.MessageFinished(seq=2, message=message, message_id="m", **AGENT))
    assert found["interrupted"]
    assert found["content"]["parts"] == [{"text": "Let m"}]


@pytest.mark.parametrize(
    ("outcome", "result", "response"),
    [
        ("ok", 3, {"result": 3}),
        ("ok", {"a": 1}, {"a": 1}),
        ("ok", None, {"result": None}),
        ("error", "broken", {"error": "broken"}),
        ("cancelled", "it was stopped", {"error": "it was stopped"}),
        ("denied", "no", {"error": "no"}),
    ],
)
def test_a_tool_has_one_response(outcome: Any, result: Any, response: Any) -> None:
    event = events.ToolFinished(seq=2, call_id="c", name="add", outcome=outcome, result=result, elapsed=0.1, **AGENT)
    content = one(event)["content"]
    assert content == {
        "parts": [{"functionResponse": {"id": "c", "name": "add", "response": response}}],
        "role": "user",
    }


def test_a_question_is_a_long_running_call_of_adks_own_functions() -> None:
    message = Message("assistant", (ToolCall("c", "pay", '{"cents":5}'),))
    said = events.MessageFinished(seq=2, message=message, message_id="m", **AGENT)
    approval = events.InputRequested(seq=3, request_id="q", kind="approval", prompt="Pay?", call_id="c", **AGENT)
    question = events.InputRequested(seq=4, request_id="p", kind="text", prompt="Whom?", options=("a", "b"), **AGENT)
    _, confirm, ask = shown([STARTED, said, approval, question])
    assert confirm["longRunningToolIds"] == ["q"]
    assert confirm["content"]["parts"][0]["functionCall"] == {
        "id": "q",
        "args": {
            "originalFunctionCall": {"id": "c", "args": {"cents": 5}, "name": "pay"},
            "toolConfirmation": {"hint": "Pay?", "confirmed": False},
        },
        "name": "adk_request_confirmation",
    }
    call = ask["content"]["parts"][0]["functionCall"]
    assert (call["name"], call["args"]["message"]) == ("adk_request_input", "Whom?")
    assert call["args"]["response_schema"] == {"type": "string", "enum": ["a", "b"]}


def test_a_handoff_is_an_action() -> None:
    found = one(events.Handoff(seq=2, from_agent="poet", to_agent="critic", **AGENT))
    assert found["actions"] == {**ACTIONS, "transferToAgent": "critic"}
    assert "content" not in found


def test_a_child_is_the_author_of_what_it_says_and_has_a_branch() -> None:
    stamp = {**STAMP, "run_id": "c", "parent_id": "r"}
    child = events.Started(seq=2, name="critic", kind="agent", input="Go.", **stamp)
    delta = events.TextDelta(seq=3, text="No.", message_id="m", first_seq=3, agent=None, task=None, **stamp)
    [found] = shown([STARTED, child, delta])
    assert (found["author"], found["branch"]) == ("critic", "poet.critic")
    assert (found["invocationId"], found["nodeInfo"]) == ("r", {"path": "poet/critic"})


def test_the_answer_of_a_run_that_no_message_has_shown_is_its_last_event() -> None:
    end = events.Completed(seq=9, output={"a": 1}, text="", usage=Usage(), **STAMP)
    found = one(end)
    assert found["content"] == {"parts": [{"text": '{"a":1}'}], "role": "model"}
    assert found["output"] == {"a": 1}
    said = Message("assistant", (Refusal("No."),))
    message = events.MessageFinished(seq=2, message=said, message_id="m", **AGENT)
    same = events.Completed(seq=3, output="No.", text="No.", usage=Usage(), **STAMP)
    assert len(shown([STARTED, message, same])) == 1
    assert shown([STARTED, message, same], is_live=True)[-1]["turnComplete"] is True


def test_a_failure_has_an_error_code_and_what_adks_clients_raise() -> None:
    error = events.Failure(type="ServerFailed", message="out of order")
    found = one(events.Failed(seq=2, error=error, text="", usage=Usage(), **STAMP))
    assert (found["errorCode"], found["errorMessage"]) == ("ServerFailed", "out of order")
    assert found["error"] == "ServerFailed: out of order"
    assert found["error_details"]["error_type"] == "ServerFailed"


def test_a_stop_is_one_interrupted_event_and_says_why() -> None:
    receipt = CancelReceipt(requested_at=12.0, stopped_after_ms=3.0, confirmed=True)
    stop: dict[str, Any] = {"reason": "user_stop", "mode": "immediate", "text": "", "usage": Usage()}
    found = one(events.Cancelled(seq=2, receipt=receipt, **stop, **STAMP), custom_metadata={"k": 1})
    assert (found["interrupted"], found["turnComplete"]) == (True, True)
    why = {"status": "cancelled", "reason": "user_stop", "mode": "immediate"}
    assert found["customMetadata"] == {"k": 1, "halter": why}


def test_the_ends_of_children_are_not_the_end() -> None:
    stamp = {**STAMP, "run_id": "c", "parent_id": "r"}
    error = events.Failure(type="E", message="m")
    assert shown([STARTED, events.Failed(seq=2, error=error, text="", usage=Usage(), **stamp)]) == []
    assert shown([STARTED, events.Completed(seq=2, output="x", text="x", usage=Usage(), **stamp)]) == []


def test_a_reader_that_is_behind_gets_neighbouring_pieces_as_one() -> None:
    pieces = [events.TextDelta(seq=n, text=f"{n} ", message_id="m", first_seq=n, **AGENT) for n in range(2, 300)]
    [found] = shown([STARTED, *pieces], [1, 1_000])
    assert found["content"]["parts"][0]["text"] == "".join(f"{n} " for n in range(2, 300))


@settings(max_examples=25, deadline=None, database=None)
@given(st.integers(0, 10_000), st.lists(st.integers(1, 200), min_size=1, max_size=4))
def test_a_client_sees_the_same_text_tools_and_end_as_the_run_itself(seed: int, sizes: list[int]) -> None:
    found = random_log(seed)
    run = seen_in_run(found)
    assert seen_by_client(shown(found, sizes)) == run
    assert seen_by_client(shown(found, sizes, streaming=False)) == {**run, "pieces": "", "thoughts": ""}


def test_frames_are_those_of_server_sent_events() -> None:
    delta = events.TextDelta(seq=2, text="Hi.", message_id="m", first_seq=2, **AGENT)
    frames = AdkFormat(Names(), app="app", streaming=True).batch([STARTED, delta, delta])
    assert frames.count(b"\n\n") == frames.count(b"data: {") == 2
    assert frames.startswith(b"data: {")
    assert frames.endswith(b"}\n\n")
