"""A conversation that was cut off: sealed, repaired, and told to the model."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halter.core.history import LOST, MARKER, NOT_RUN, for_model, paired, seal, seal_lost
from halter.messages import PAUSED, Message, Part, Text, ToolCall, ToolResult

from ..sizes import examples


def asked(*ids: str, text: str = "", interrupted: bool = False) -> Message:
    words: tuple[Part, ...] = (Text(text),) if text else ()
    return Message("assistant", (*words, *(ToolCall(id, "look", "{}") for id in ids)), interrupted=interrupted)


def answered(*ids: str, interrupted: bool = False) -> Message:
    return Message("tool", tuple(ToolResult(id, f"of {id}") for id in ids), interrupted=interrupted)


HI = Message.user("hi")
NEXT = Message.user("next")


# --- sealing ------------------------------------------------------------------------------------------------


@pytest.mark.scenario("D41")
def test_calls_at_the_end_of_a_conversation_are_sealed_as_never_run() -> None:
    """In their order, as errors, marked as interrupted."""
    sealed = seal([HI, asked("a", "b")])
    assert sealed == Message(
        "tool", (ToolResult("a", NOT_RUN, is_error=True), ToolResult("b", NOT_RUN, is_error=True)), interrupted=True
    )


@pytest.mark.parametrize(
    "messages",
    [[], [HI], [HI, asked(text="said")], [HI, asked("a"), answered("a")]],
    ids=["none", "user", "said", "done"],
)
def test_a_conversation_without_open_calls_lacks_nothing(messages: list[Message]) -> None:
    """Sealing is for open calls alone."""
    assert seal(messages) is None


def lost(id: str) -> ToolResult:
    return ToolResult(id, LOST, is_error=True)


@pytest.mark.scenario("D44")
@pytest.mark.parametrize(
    ("said", "sealed"),
    [
        ([HI, asked("a", "b")], (2, (lost("a"), lost("b")))),
        ([HI, asked("a", "b", "c"), answered("b")], (2, (lost("a"), ToolResult("b", "of b"), lost("c")))),
        ([HI, asked("a", "a"), answered("a")], (2, (ToolResult("a", "of a"), lost("a")))),
    ],
    ids=["none had ended", "the one in the middle had", "equal ids"],
)
def test_the_calls_of_a_turn_that_was_lost_have_their_results_in_their_order(
    said: list[Message], sealed: tuple[int, tuple[ToolResult, ...]]
) -> None:
    """Also those that ended before the ones before them; once more it changes nothing."""
    at, parts = sealed
    assert seal_lost(said) == (at, (Message("tool", parts, interrupted=True),))
    whole = [*said[:at], Message("tool", parts, interrupted=True)]
    assert seal_lost(whole) == (len(whole), ())


@pytest.mark.scenario("D44")
@pytest.mark.parametrize("said", [[HI], [HI, asked("a"), answered("a")]], ids=["asked", "tools done"])
def test_a_turn_that_was_lost_before_its_answer_is_marked(said: list[Message]) -> None:
    """The answer that never came says nothing but that it was cut off."""
    assert seal_lost(said) == (len(said), (Message("assistant", (), interrupted=True),))
    assert seal_lost([*said, asked(text="whole")]) == (len(said) + 1, ())
    assert seal_lost([]) == (0, ())


@pytest.mark.scenario("D42")
def test_an_answer_whose_rest_never_came_is_marked() -> None:
    """Its provider has paused it, and would have gone on with it: it is no whole one."""
    paused = Message("assistant", (Text("I search."),), finish_reason=PAUSED)
    assert seal([HI, paused], was_stopped=True) == Message("assistant", (), interrupted=True)
    assert seal_lost([HI, paused]) == (2, (Message("assistant", (), interrupted=True),))
    assert for_model([HI, paused, Message("assistant", (), interrupted=True), NEXT])[-1].text.startswith(MARKER)


# --- the marker ---------------------------------------------------------------------------------------------


@pytest.mark.scenario("D42")
@pytest.mark.parametrize(
    "cut",
    [
        [asked(text="half an an", interrupted=True)],
        [asked("a", interrupted=True), answered("a", interrupted=True)],
        [asked("a"), answered("a", interrupted=True)],
    ],
    ids=["text", "arguments", "call"],
)
def test_what_the_user_says_after_a_stop_begins_with_the_marker(cut: list[Message]) -> None:
    """Once, before the user's own words, which are unchanged; the words after those are not marked."""
    told = for_model([HI, *cut, NEXT, asked(text="hello"), Message.user("more")])
    users = [message for message in told if message.role == "user"]
    assert [message.text for message in users] == ["hi", f"{MARKER}\n\nnext", "more"]
    assert users[1].parts[1:] == NEXT.parts


def test_a_conversation_that_was_never_cut_is_as_it_was() -> None:
    """Not a message is touched."""
    whole = (Message.system("Be brief."), HI, asked("a"), answered("a"), asked(text="done"), NEXT)
    assert for_model(whole) == whole


def test_the_marker_can_have_other_words_and_stands_before_an_image_too() -> None:
    """It is text of its own, whatever the user sends."""
    picture = Message.user()
    told = for_model([HI, asked(text="half", interrupted=True), picture], marker="[stopped]")
    assert told[-1].parts == (Text("[stopped]\n\n"),)


# --- pairing ------------------------------------------------------------------------------------------------


@pytest.mark.scenario("D41")
def test_results_stand_directly_behind_their_calls_wherever_they_were() -> None:
    """In one message; what stood between comes after them."""
    told = for_model([HI, asked("a", "b"), Message.user("meanwhile"), answered("b"), answered("a")])
    assert told == (HI, asked("a", "b"), answered("b", "a"), Message.user("meanwhile"))


def test_a_call_without_a_result_gets_one_and_a_result_without_a_call_is_left_out() -> None:
    """Nothing that a provider would refuse is sent."""
    told = for_model([HI, answered("stray"), asked("a", "b"), answered("a"), NEXT])
    assert told == (
        HI,
        asked("a", "b"),
        Message("tool", (ToolResult("a", "of a"), ToolResult("b", NOT_RUN, is_error=True))),
        NEXT,
    )


def test_a_second_result_of_a_call_is_left_out() -> None:
    """The first counts."""
    told = for_model([HI, asked("a"), answered("a"), Message("tool", (ToolResult("a", "again"),)), NEXT])
    assert told == (HI, asked("a"), answered("a"), NEXT)


def test_an_id_that_is_used_again_is_another_call() -> None:
    """A result is that of the last call before it; equal ids in one answer have a result each."""
    assert for_model([HI, asked("a"), answered("a"), asked("a"), answered("a")])[1:] == (
        asked("a"), answered("a"), asked("a"), answered("a"),
    )  # fmt: skip
    assert for_model([HI, asked("a", "a"), answered("a", "a")])[1:] == (asked("a", "a"), answered("a", "a"))
    assert for_model([HI, asked("a", "a"), answered("a")])[2].parts == (
        ToolResult("a", "of a"), ToolResult("a", NOT_RUN, is_error=True),
    )  # fmt: skip


def test_a_message_that_says_nothing_is_not_sent() -> None:
    """As a stop before the first word leaves one."""
    assert for_model([HI, Message("assistant", (), interrupted=True), NEXT])[0] == HI
    assert [message.role for message in for_model([HI, Message("assistant", ()), NEXT])] == ["user", "user"]


# --- any conversation ---------------------------------------------------------------------------------------

IDS = st.sampled_from("abc")
PARTS: dict[str, Any] = {
    "user": st.lists(st.builds(Text, st.text(max_size=3)), max_size=2),
    "assistant": st.lists(
        st.builds(Text, st.text(max_size=3)) | st.builds(ToolCall, IDS, st.just("look"), st.just("{}")), max_size=4
    ),
    "tool": st.lists(st.builds(ToolResult, IDS, st.text(max_size=3)), max_size=4),
    "system": st.lists(st.builds(Text, st.text(max_size=3)), max_size=1),
}
MESSAGES = st.lists(
    st.sampled_from(list(PARTS)).flatmap(
        lambda role: st.builds(
            Message, st.just(role), PARTS[role].map(tuple), st.none(), st.booleans(), st.none(), st.none()
        )
    ),
    max_size=8,
)


@settings(max_examples=examples(30), deadline=None)
@given(MESSAGES)
def test_any_conversation_is_told_in_a_form_that_holds(messages: list[Message]) -> None:
    """Each call has one result, in the very next message; nothing is empty; telling it again changes nothing."""
    told = for_model(messages)
    assert for_model(told) == told
    calls: list[str] = []
    for message in told:
        assert message.parts
        results = [part.call_id for part in message.parts if isinstance(part, ToolResult)]
        if results or calls:
            assert sorted(results) == sorted(calls)
        calls = [call.id for call in message.tool_calls]
    assert not calls
    assert sum(len(message.tool_calls) for message in told) == sum(len(message.tool_calls) for message in messages)
    assert "".join(m.text for m in told if m.role == "assistant") == "".join(
        m.text for m in messages if m.role == "assistant"
    )


@given(MESSAGES)
@settings(max_examples=examples(15), deadline=None)
def test_pairing_loses_no_words_and_invents_none(messages: list[Message]) -> None:
    """Only results that no call has asked for, and second ones, are left out, and messages that say nothing."""
    kept = [each.message for each in paired(messages)]
    assert [m for m in kept if m.role != "tool"] == [m for m in messages if m.role != "tool" and m.parts]
    given_results = [part for m in messages for part in m.parts if isinstance(part, ToolResult)]
    kept_results = [part for m in kept for part in m.parts if isinstance(part, ToolResult)]
    assert all(kept_results.count(each) <= given_results.count(each) for each in kept_results)


def test_a_conversation_cut_at_any_message_is_whole_when_it_is_told() -> None:
    """What a process that was killed has left: any beginning of a conversation is repaired."""
    source = random.Random(1)
    whole = [HI]
    for number in range(20):
        ids = [f"{number}-{place}" for place in range(source.randint(1, 3))]
        whole += [asked(*ids, text="so "), answered(*ids), Message.user("go on")]
    for end in range(1, len(whole)):
        told = for_model(whole[:end])
        if whole[end - 1].role == "assistant":
            assert [part.content for part in told[-1].parts if isinstance(part, ToolResult)] == [NOT_RUN] * len(
                whole[end - 1].tool_calls
            )
        else:
            assert told == tuple(whole[:end])
