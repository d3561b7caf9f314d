"""Where a conversation may be cut, and how it is called that has no title."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halter.messages import Image, Message, Text, ToolCall, ToolResult
from halter.sessions.cutting import whole_cut
from halter.sessions.titles import LONGEST, first_words

from ..sizes import examples

HI, BYE = Message.user("hi"), Message.assistant("bye")


def asked(*ids: str) -> Message:
    return Message("assistant", (Text("Let me see."), *(ToolCall(id, "look", "{}") for id in ids)))


def answered(*ids: str) -> Message:
    return Message("tool", tuple(ToolResult(id, "here") for id in ids))


def test_a_cut_between_a_call_and_its_result_goes_back_before_the_answer() -> None:
    messages = [HI, asked("a", "b"), answered("a", "b"), BYE]
    assert [whole_cut(messages, at) for at in range(5)] == [0, 1, 1, 3, 4]


def test_results_in_several_messages_belong_to_their_answer() -> None:
    messages = [HI, asked("a", "b"), answered("a"), HI, answered("b"), BYE]
    assert [whole_cut(messages, at) for at in range(7)] == [0, 1, 1, 1, 1, 5, 6]


def test_an_id_that_is_used_again_is_another_call() -> None:
    messages = [asked("a"), answered("a"), asked("a"), answered("a")]
    assert [whole_cut(messages, at) for at in range(5)] == [0, 0, 2, 2, 4]


def test_going_back_never_stops_inside_an_earlier_answer() -> None:
    messages = [HI, asked("a"), asked("b"), answered("a"), answered("b")]
    assert whole_cut(messages, 4) == 1


def test_calls_without_results_stay() -> None:
    assert whole_cut([HI, asked("a", "b"), answered("a")], 3) == 3


IDS = st.sampled_from(["a", "b", "c"])
MESSAGES = st.one_of(
    st.just(HI),
    st.just(BYE),
    st.lists(IDS, min_size=1, max_size=3, unique=True).map(lambda ids: asked(*ids)),
    st.lists(IDS, min_size=1, max_size=3, unique=True).map(lambda ids: answered(*ids)),
)


def is_whole(messages: list[Message], at: int) -> bool:
    """True if no call before `at` has its result behind it: each result is that of the last call before it."""
    calls: dict[str, int] = {}
    for position, message in enumerate(messages):
        for call in message.tool_calls:
            calls[call.id] = position
        for part in message.parts:
            if isinstance(part, ToolResult) and calls.pop(part.call_id, at) < at <= position:
                return False
    return True


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(MESSAGES, max_size=12), st.data())
def test_of_all_cuts_that_tear_nothing_apart_it_is_the_last(messages: list[Message], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(messages)))
    cut = whole_cut(messages, at)
    assert cut == max(place for place in range(at + 1) if is_whole(messages, place))
    assert whole_cut(messages, cut) == cut


# --- titles -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "title"),
    [
        ([], ""),
        ([Message.assistant("Hello")], ""),
        ([Message.user(Image(url="https://a.example/b.png")), Message.user("and this?")], "and this?"),
        ([Message.system("be brief"), Message.user("  What\n is \t this? ")], "What is this?"),
        ([Message.user("word " * 20)], "word word word word word word word word word word word word…"),
        ([Message.user("x" * 100)], "x" * (LONGEST - 1) + "…"),
    ],
    ids=["nothing", "no user", "no text", "one line", "long", "one long word"],
)
def test_a_title_is_the_first_words_of_the_user(messages: list[Message], title: str) -> None:
    assert first_words(messages) == title
    assert len(title) <= LONGEST
