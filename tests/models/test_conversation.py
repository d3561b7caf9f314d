"""What every provider wants of a conversation: calls beside their results, in all formats but Anthropic's own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halter.core.history import paired
from halter.messages import Message, Opaque, Text, ToolCall, ToolResult
from halter.models.chat.messages import chat_messages
from halter.models.gemini.request import gemini_contents
from halter.models.responses.input import input_items

ASK, HURRY = Message.user("ask"), Message.user("hurry")


def calls(*ids: str, interrupted: bool = False) -> Message:
    return Message("assistant", tuple(ToolCall(id, "f", "{}") for id in ids), interrupted=interrupted)


def results(*ids: str, content: str = "ok") -> Message:
    return Message("tool", tuple(ToolResult(id, content) for id in ids))


def shape(*messages: Message) -> list[str]:
    """Each message in a word: its role, the calls that may be sent or the results."""
    return [_word(message, sorted(answered)) for message, answered in paired(messages)]


def _word(message: Message, answered: list[str]) -> str:
    ids = answered or [part.call_id for part in message.parts if isinstance(part, ToolResult)]
    return " ".join([message.role, *ids])


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ((ASK, calls("a", "b"), results("a"), results("b")), ["user", "assistant a b", "tool a b"]),
        ((calls("a"), HURRY, results("a")), ["assistant a", "tool a", "user"]),
        ((calls("a"), calls("b"), results("a", "b")), ["assistant a", "tool a", "assistant b", "tool b"]),
        ((calls("a", "b"), results("b")), ["assistant b", "tool b"]),
        ((results("a"), calls("a"), HURRY), ["assistant", "user"]),
        ((calls("a"), results("a"), results("a")), ["assistant a", "tool a"]),
        ((calls("a", "a"), results("a", "a")), ["assistant a", "tool a a"]),
        ((calls("a"), results("gone", "a")), ["assistant a", "tool a"]),
        (
            (ASK, calls("a"), results("a"), ASK, calls("a", interrupted=True), HURRY),
            ["user", "assistant a", "tool a", "user", "assistant", "user"],
        ),
        ((calls("a"), HURRY, calls("a"), results("a")), ["assistant", "user", "assistant a", "tool a"]),
    ],
)
def test_each_result_stands_once_behind_the_call_before_it(messages: tuple[Message, ...], expected: list[str]) -> None:
    """By place, whatever else was said in between, and though an id is used again."""
    assert shape(*messages) == expected


def test_what_else_a_tool_message_holds_stays_where_it_is() -> None:
    """A server's own item, for one."""
    own = Opaque("x", {"type": "computer_call_output"})
    (_, behind, _, rest) = paired([calls("a"), HURRY, Message("tool", (own, ToolResult("a", "ok")))])
    assert (behind.message.parts, rest.message.parts) == ((ToolResult("a", "ok"),), (own,))


def test_calls_of_another_kind_have_results_too() -> None:
    """A custom tool's call is an item of the server's own."""
    made = [Message("assistant", (Opaque("x", "c"),)), HURRY, results("c")]
    found = paired(made, lambda message: (part.data for part in message.parts if isinstance(part, Opaque)))
    assert [(each.message.role, set(each.answered)) for each in found] == [
        ("assistant", {"c"}),
        ("tool", set()),
        ("user", set()),
    ]


# --- in the formats -----------------------------------------------------------------------------------------

REUSED = (
    ASK,
    calls("call_0"),
    results("call_0", content="first"),
    Message.assistant("Well."),
    ASK,
    Message("assistant", (Text("Let me"), ToolCall("call_0", "g", "{")), interrupted=True),
    HURRY,
    Message("assistant", (ToolCall("call_0", "h", "{}"),)),
    HURRY,
    results("call_0", content="third"),
)


def test_chat_sends_each_call_with_its_own_result_directly_behind_it() -> None:
    sent = chat_messages(REUSED, "chat:test")
    assert [(each["role"], "tool_calls" in each, each["content"]) for each in sent] == [
        ("user", False, "ask"),
        ("assistant", True, None),
        ("tool", False, "first"),
        ("assistant", False, "Well."),
        ("user", False, "ask"),
        ("assistant", False, "Let me"),
        ("user", False, "hurry"),
        ("assistant", True, None),
        ("tool", False, "third"),
        ("user", False, "hurry"),
    ]


def test_responses_send_each_call_with_its_own_result_directly_behind_it() -> None:
    sent = input_items(REUSED, "responses:test", is_stored=False)
    about_calls = [(each.get("type"), each.get("name"), each.get("output")) for each in sent]
    assert about_calls == [
        (None, None, None),
        ("function_call", "f", None),
        ("function_call_output", None, "first"),
        *[(None, None, None)] * 4,
        ("function_call", "h", None),
        ("function_call_output", None, "third"),
        (None, None, None),
    ]


def test_gemini_gets_results_by_the_name_of_their_own_call_and_apart_from_words() -> None:
    sent = gemini_contents(REUSED, model="gemini-2.5-flash")
    assert [(each["role"], *map(_gist, each["parts"])) for each in sent] == [
        ("user", "ask"),
        ("model", "call f"),
        ("user", "result f first"),
        ("model", "Well."),
        ("user", "ask"),
        ("model", "Let me"),
        ("user", "hurry"),
        ("model", "call h"),
        ("user", "result h third"),
        ("user", "hurry"),
    ]


def _gist(part: dict[str, Any]) -> str:
    match part:
        case {"functionCall": {"name": name}}:
            return f"call {name}"
        case {"functionResponse": {"name": name, "response": {"output": output}}}:
            return f"result {name} {output}"
        case _:
            return part["text"]


ids = st.sampled_from("abc")
calls_made = st.lists(ids, unique=True).map(lambda made: tuple(ToolCall(id, "f", "{}") for id in made))
anything = st.one_of(
    st.just(HURRY),
    calls_made.map(lambda made: Message("assistant", (Text("a"), *made))),
    st.lists(ids).map(lambda made: results(*made)),
)


@given(st.lists(anything, max_size=12))
def test_no_conversation_is_sent_in_a_way_that_chat_completions_refuse(messages: list[Message]) -> None:
    """Behind an answer with calls stands one message for each of them, and nowhere else."""
    expected: list[str] = []
    for message in chat_messages(tuple(messages), "chat:test"):
        if message["role"] == "tool":
            expected.remove(message["tool_call_id"])
        else:
            assert expected == []
        expected += [call["id"] for call in message.get("tool_calls", ())]
    assert expected == []
