"""What of a conversation is trimmed and where it is cut: for any conversation, and for those that matter."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halter.compaction.plan import HEADING, HEADING_WITHIN
from halter.compaction.shape import is_said, is_summary
from halter.core.history import MARKER, for_model
from halter.messages import Message, ToolResult

from ..agents.conversations import CHECKS, bodies_of, check_by_sdk, check_history
from ..bounds import assert_within
from .talk import applied, calling, conversations, long_talk, plan, returned, size_of, total

HI = Message.user("hi")


# --- any conversation ---------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(conversations(), st.floats(0.05, 0.95), st.integers(1, 3))
def test_whatever_is_left_is_valid_smaller_and_keeps_what_is_new(
    messages: list[Message], share: float, keep_turns: int
) -> None:
    """Each call with its result, the newest turn's words and newest step untouched, and all that is kept as it was."""
    goal = int(total(messages) * share)
    made = plan(messages, goal, keep_turns=keep_turns)
    if made is None:
        return
    left = applied(messages, made)
    told = for_model(left)
    check_history(told)
    assert for_model(told) == told
    assert total(left) < total(messages)
    assert len(left) <= len(messages) + 1
    assert sum(map(is_summary, left)) == bool(made.summarised)
    assert [message for message in left if message.role == "system"] == [m for m in messages if m.role == "system"]
    newest = max(at for at, message in enumerate(messages) if is_said(message))
    assert messages[newest] in left, "what the user has said last"
    calls = [at for at, message in enumerate(messages) if message.tool_calls]
    step = calls[-1] if calls and calls[-1] > newest else newest
    assert list(left[-len(messages[step:]) :]) == messages[step:], "the newest step"
    answers = [message for message in messages if message.role == "assistant"]
    assert all(message in answers for message in left if message.role == "assistant"), "answers, signatures and all"


@settings(max_examples=100, deadline=None)
@given(conversations(), st.floats(0.05, 0.95), st.integers(1, 3))
def test_a_plan_for_what_a_plan_has_left_does_nothing(messages: list[Message], share: float, keep_turns: int) -> None:
    """Else a conversation that cannot be made small enough would be compacted before each request."""
    goal = int(total(messages) * share)
    made = plan(messages, goal, keep_turns=keep_turns)
    if made is None:
        return
    left = applied(messages, made, "word " * min(1_400, made.replaced // 4))
    again = plan(left, goal, keep_turns=keep_turns)
    assert again is None or total(applied(left, again)) <= 0.9 * total(left)


@settings(max_examples=40, deadline=None)
@given(conversations(), st.floats(0.05, 0.95))
def test_every_provider_would_take_it(messages: list[Message], share: float) -> None:
    """In the words of each: turns in turn, each call with its result."""
    made = plan(messages, int(total(messages) * share))
    if made is None:
        return
    bodies = bodies_of(applied(messages, made))
    for name, check in CHECKS.items():
        check(bodies[name])
    check_by_sdk(bodies)


@settings(max_examples=60, deadline=None)
@given(conversations(), st.floats(0.05, 0.95), st.integers(0, 2**32))
def test_calls_and_results_in_disorder_are_not_parted(messages: list[Message], share: float, seed: int) -> None:
    """A history of somebody else's may have them apart: what a plan leaves has no result that lost its call."""
    results = [message for message in messages if message.role == "tool"]
    if not results:
        return
    moved = results[seed % len(results)]
    messages = [*(message for message in messages if message is not moved), moved, Message.user("well?")]
    made = plan(messages, int(total(messages) * share))
    if made is None:
        return
    left = applied(messages, made)
    calls = {call.id for message in left for call in message.tool_calls}
    assert {part.call_id for message in left for part in message.parts if isinstance(part, ToolResult)} == calls


# --- the gentlest measure -----------------------------------------------------------------------------------


def test_what_is_small_enough_is_left_alone() -> None:
    messages = long_talk(3)
    assert plan(messages, total(messages)) is None
    assert plan([], 10) is None


def test_long_results_of_older_turns_are_trimmed_first() -> None:
    """Their head and their tail stay, and a line that says how much is missing; no summary, and the newest as it is."""
    old, new = returned("a", text="x" * 9_000 + "end"), returned("b", text="y" * 9_000)
    messages = [HI, calling("a"), old, Message.assistant("so"), HI, HI, calling("b"), new]
    made = plan(messages, total(messages) - 400, keep_turns=1)
    assert made is not None
    assert (made.summarised, made.trimmed, made.upto) == ((), 1, 3)
    left = applied(messages, made)
    (short,) = left[2].parts
    assert isinstance(short, ToolResult)
    assert len(short.content) <= 400
    assert short.content.startswith("xxx")
    assert short.content.endswith("end")
    assert "left out" in short.content
    assert left[3:] == tuple(messages[3:])


def test_as_few_turns_as_possible_are_summarised() -> None:
    """As many as bring it down to the goal, and no more; the newest are not among them."""
    messages = [*long_talk(20), Message.user("now?")]
    one_turn = total(messages[:2])
    made = plan(messages, total(messages) - 5 * one_turn)
    assert made is not None
    assert made.upto < 20
    assert made.upto % 2 == 0
    assert made.summarised == tuple(messages[: made.upto])
    assert made.heading == HEADING
    left = applied(messages, made)
    assert is_summary(left[0])
    assert left[1:] == tuple(messages[made.upto :])


def test_the_newest_turns_stay_if_without_them_it_is_small_enough() -> None:
    """With room up to `most`, the newest two turns are not touched for the sake of the goal."""
    messages = [*long_talk(4), *long_talk(2, words=600)]
    size = total(messages)
    kept = total(messages[-4:])
    gentle = plan(messages, kept // 2, most=size - 100)
    assert gentle is not None
    assert gentle.upto == len(messages) - 4
    firm = plan(messages, kept // 2, most=kept // 2)
    assert firm is not None
    assert firm.upto > len(messages) - 4


def test_a_single_turn_of_many_steps_gives_up_its_older_steps() -> None:
    """What the user asked for stays, word for word, behind the summary; the newest step stays whole."""
    messages = [Message.user("Find the treasure.")]
    for step in range(30):
        messages += [calling(f"c{step}", text=f"step {step} " * 30), returned(f"c{step}", text="sand " * 60)]
    made = plan(messages, total(messages) // 3)
    assert made is not None
    left = applied(messages, made)
    assert left[0].text.startswith(HEADING_WITHIN)
    assert left[1] == messages[0]
    assert left[2:] == tuple(messages[-len(left[2:]) :])
    assert left[2].role == "assistant"
    check_history(for_model(left))
    assert total(left) <= total(messages) // 3


def test_results_in_the_newest_turn_are_trimmed_before_its_steps_are_summarised() -> None:
    """But those of the newest step never: they are what the model is to read next."""
    messages = [HI]
    for step in range(3):
        messages += [calling(f"c{step}"), returned(f"c{step}", text=f"{step} " * 4_000)]
    size = total(messages)
    made = plan(messages, size // 2)
    assert made is not None
    assert (made.summarised, made.trimmed) == ((), 2)
    assert applied(messages, made)[-2:] == tuple(messages[-2:])


def test_one_step_that_is_too_large_by_itself_cannot_be_helped() -> None:
    messages = [HI, calling("a"), returned("a", text="x " * 50_000)]
    assert plan(messages, 100) is None


def test_what_would_save_next_to_nothing_is_not_done() -> None:
    """A tenth at least: a compaction costs a request, and the provider's prompt cache."""
    messages = [*long_talk(1, words=5), Message.user("a long request " * 2_000)]
    assert plan(messages, 10) is None


def test_what_is_said_beside_the_conversation_counts() -> None:
    """Instructions and tools take their room too."""
    messages = long_talk(10)
    assert plan(messages, total(messages)) is None
    assert plan(messages, total(messages), overhead=2_000) is not None


def test_an_earlier_summary_goes_into_the_next_one() -> None:
    """There is one at most."""
    messages = [*long_talk(10), HI]
    first = plan(messages, total(messages) // 2)
    assert first is not None
    grown = [*applied(messages, first, "it began " * 200), *long_talk(10), HI]
    second = plan(grown, total(grown) // 2)
    assert second is not None
    assert is_summary(second.summarised[0])
    assert sum(map(is_summary, applied(grown, second))) == 1


def test_a_summary_alone_is_not_summarised_again() -> None:
    messages = [Message.user(f"{HEADING}\n\n" + "it began " * 2_000), HI]
    assert plan(messages, 10) is None


@pytest.mark.parametrize("within", [False, True], ids=["between turns", "inside a turn"])
def test_the_marker_of_a_stop_is_not_lost(within: bool) -> None:
    """If the answer that was stopped goes, the summary that stands before what the user said next ends with it."""
    stopped = Message("assistant", Message.assistant("half an ans " * 300).parts, interrupted=True)
    messages = [HI, stopped, Message.user("go on")]
    if within:
        for step in range(20):
            messages += [calling(f"c{step}", text="hm " * 40), returned(f"c{step}")]
    made = plan(messages, total(messages) // (2 if within else 3), keep_turns=1)
    assert made is not None
    told = for_model(applied(messages, made))
    written = "".join(message.text for message in told)
    assert written.count(MARKER) == 1
    assert written.index(MARKER) < written.index("go on")
    assert made.summary("In short.", marker="[Halted.]").text.endswith("In short.\n\n[Halted.]") == made.was_stopped


def test_what_was_never_answered_is_a_turn_that_is_past_for_the_next_run() -> None:
    """An input that was too long for any request would be so in all that follow, if it counted as what is said now."""
    messages = [*long_talk(2), Message.user("far too much " * 5_000), Message.user("Never mind, be brief.")]
    assert (made := plan(messages, 500)) is None or total(applied(messages, made)) > 10_000
    made = plan(messages, 500, begun=len(messages) - 1)
    assert made is not None
    assert applied(messages, made)[-1:] == (messages[-1],)
    assert total(applied(messages, made)) < 500


def test_a_loop_of_tools_with_large_results_does_not_pay_for_a_summary_at_each_step() -> None:
    """Each step is a third of what a request may have: results are trimmed, and summaries come in between."""
    result = "a line of data " * 1_000
    messages: list[Message] = [HI]
    summaries = 0
    for step in range(40):
        messages += [calling(f"c{step}"), returned(f"c{step}", text=result)]
        size = size_of(messages[-1])
        if total(messages) > 3 * size:
            made = plan(messages, 2 * size - size // 4, most=2 * size + size // 2)
            assert made is not None
            summaries += bool(made.summarised)
            messages = list(applied(messages, made))
            assert total(messages) < 3 * size
    assert summaries <= 4


def test_ten_thousand_messages_are_planned_in_a_moment() -> None:
    """In time in proportion to the conversation."""
    messages = [*long_talk(5_000, words=2), HI]
    began = time.thread_time()
    made = plan(messages, 50_000, size_of=lambda message: 10)
    assert_within(1.0, time.thread_time() - began, "in processor time, it")
    assert made is not None
    assert made.upto > 1_000
