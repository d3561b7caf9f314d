"""What the model is told of what is known: in front of what the user says now, and the rest as it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from halter.core.history import for_model
from halter.facts.recalled import BEGIN, Recalled
from halter.messages import Image, Message, Text, ToolCall, ToolResult

from .parts import fact

ASKED = Message.user("What should I drink?")
EARLIER = (Message.user("hi"), Message.assistant("hello"))
RECALLED = Recalled((fact("Likes tea."), fact("Has a cat.")), ASKED)
TOLD = f"{BEGIN}\n- Likes tea.\n- Has a cat.]\n\n"


def test_it_stands_in_front_of_what_is_asked_and_nothing_before_it_changes() -> None:
    told = RECALLED.told_with((*EARLIER, ASKED))
    assert told[:2] == EARLIER
    assert told[2].text == TOLD + "What should I drink?"


def test_it_stays_there_all_through_the_run() -> None:
    call = Message("assistant", (ToolCall("1", "look", "{}"),))
    later = (call, Message("tool", (ToolResult("1", "milk"),)), Message.user("And now?"))
    first = RECALLED.told_with((*EARLIER, ASKED))
    assert RECALLED.told_with((*EARLIER, ASKED, *later)) == (*first, *later)


def test_a_stop_is_told_before_it_and_once() -> None:
    history = (Message.user("hi"), Message("assistant", (Text("he"),), interrupted=True), ASKED)
    [*_, last] = told = RECALLED.told_with(for_model(history))
    assert last.text == f"{for_model(history)[-1].parts[0].text}{TOLD}{ASKED.text}"  # pyright: ignore
    assert for_model(told) == tuple(told)


def test_a_picture_that_is_asked_about_stays_with_its_question() -> None:
    picture = Image(url="https://example.org/cup.png")
    asked = Message.user("What is this?", picture, name="ann")
    [told] = Recalled((fact("Likes tea."),), asked).told_with((asked,))
    assert (told.parts[1:], told.name) == (asked.parts, "ann")


def test_of_two_that_are_alike_the_newest_is_meant() -> None:
    told = RECALLED.told_with((ASKED, Message.assistant("Tea."), ASKED))
    assert [message.text.startswith(BEGIN) for message in told] == [False, False, True]


def test_what_is_no_longer_there_has_it_before_what_the_user_has_said_last() -> None:
    told = RECALLED.told_with((Message.user("a summary"), Message.assistant("yes")))
    assert told[0].text == TOLD + "a summary"


def test_nothing_known_or_nobody_speaking_leaves_all_as_it_is() -> None:
    assert Recalled((), ASKED).told_with((ASKED,)) == (ASKED,)
    alone = (Message.assistant("hello"),)
    assert RECALLED.told_with(alone) == alone
    assert RECALLED.told_with(()) == ()
    assert Recalled(RECALLED.facts, None).told_with((ASKED,))[0].text == TOLD + ASKED.text


said = st.builds(Message.user, st.text()) | st.builds(Message.assistant, st.text())


@given(st.lists(said, max_size=8))
def test_whatever_the_conversation_is_only_one_message_is_longer(messages: list[Message]) -> None:
    told = RECALLED.told_with((*messages, ASKED))
    assert tuple(told[:-1]) == tuple(messages)
    assert told[-1].text == TOLD + ASKED.text
