"""How large the next request is: the provider's count, and our estimate of what is new, scaled by how it counts."""

from __future__ import annotations

import pytest

from halter.compaction.plan import HEADING
from halter.compaction.size import Gauge
from halter.core.tokens import estimate_request
from halter.messages import Message, Usage
from halter.request import ModelRequest, ToolSpec

from .talk import long_talk, total

SYSTEM = Message.system("You are helpful. " * 40)
TOOLS = (ToolSpec(name="look", description="Looks at it. " * 30),)


def asked(messages: list[Message]) -> ModelRequest:
    return ModelRequest(messages=(SYSTEM, *messages), tools=TOOLS)


def answer(usage: Usage | None, words: int = 100) -> Message:
    return Message("assistant", Message.assistant("answer " * words).parts, usage=usage)


def test_before_anything_was_counted_it_is_our_estimate_with_instructions_and_tools() -> None:
    messages = long_talk(5)
    request = asked(messages)
    assert Gauge().of(request, messages) == estimate_request(request) > total(messages) + 200


def test_after_an_answer_it_is_what_the_provider_has_counted_and_what_is_new() -> None:
    """The new is scaled as the counted was: this provider counts half as much again as we do."""
    messages = [Message.user("question " * 500)]
    request = asked(messages)
    counted = int(estimate_request(request) * 1.5)
    gauge, said = Gauge(), answer(Usage(input=counted, output=321))
    gauge.answered(request, 1, said)
    messages += [said]
    assert gauge.of(asked(messages), messages) == counted + 321
    new = Message.user("more " * 400)
    messages += [new]
    assert gauge.of(asked(messages), messages) == pytest.approx(counted + 321 + 1.5 * total([new]), rel=0.01)
    assert gauge.ratio == pytest.approx(1.5, rel=0.01)


@pytest.mark.parametrize("usage", [None, Usage(input=9_999, output=9, estimated=True), Usage(input=0, output=9)])
def test_a_count_that_is_none_does_not_count(usage: Usage | None) -> None:
    """Our own estimate after a stop, and a server that counts nothing."""
    gauge, messages = Gauge(), long_talk(2)
    gauge.answered(asked(messages), len(messages), answer(usage))
    assert gauge.of(asked(messages), messages) == estimate_request(asked(messages))


def test_a_conversation_that_was_loaded_tells_by_its_last_answer_how_its_provider_counts() -> None:
    """Its count was of all that stands before it."""
    messages = [*long_talk(3), Message.user("q " * 300)]
    before = estimate_request(asked(messages))
    messages += [answer(Usage(input=int(before * 1.3), output=100)), Message.user("and now?")]
    size = Gauge().of(asked(messages), messages)
    assert size == pytest.approx(1.3 * estimate_request(asked(messages)), rel=0.02)


def test_a_count_of_something_else_does_not_lead_astray() -> None:
    """Of the same answer before a compaction, when much more stood before it."""
    messages = [Message.user("short"), answer(Usage(input=900_000, output=5)), Message.user("and now?")]
    request = asked(messages)
    assert Gauge().of(request, messages) <= 2 * estimate_request(request) + 1


def test_after_a_compaction_only_what_came_between_two_counts_tells_how_they_count() -> None:
    """What stood before them is not there any more: a request of half the size is not taken for one of the whole."""
    messages = [Message.user(f"{HEADING}\n\n" + "In short. " * 100), *long_talk(1)]
    for turn in range(3):
        before = 50_000 + int(1.2 * total(messages))
        messages += [Message.user(f"q{turn} " * 300), answer(Usage(input=before, output=9), words=300)]
    messages.append(Message.user("and now?"))
    size = Gauge().of(asked(messages), messages)
    assert size == pytest.approx(1.2 * estimate_request(asked(messages)), rel=0.02)


@pytest.mark.parametrize("before", [9_000, 2_000], ids=["counted before it", "too little"])
def test_after_a_compaction_a_count_may_tell_nothing(before: int) -> None:
    """The one was made before the compaction, the next behind it; or next to nothing lies between them."""
    first = answer(Usage(input=before, output=9), words=100 if before == 2_000 else 900)
    messages = [
        Message.user(f"{HEADING}\n\nIn short."),
        first,
        Message.user("well?"),
        answer(Usage(input=2_100, output=9)),
    ]
    assert Gauge().of(asked(messages), messages) == estimate_request(asked(messages))


def test_after_a_compaction_the_ratio_stays_and_the_count_goes() -> None:
    messages = [Message.user("question " * 500)]
    request = asked(messages)
    gauge, said = Gauge(), answer(Usage(input=estimate_request(request) * 2, output=10))
    gauge.answered(request, 1, said)
    assert gauge.ratio == 2.0
    gauge.forget()
    short = [Message.user("summary")]
    assert gauge.of(asked(short), short) == 2 * estimate_request(asked(short))


def test_a_request_that_was_refused_is_at_least_as_large_as_the_limit() -> None:
    """Whatever we thought: the estimates grow with it."""
    gauge, messages = Gauge(), long_talk(5)
    size = gauge.of(asked(messages), messages)
    gauge.at_least(3 * size, size)
    assert gauge.of(asked(messages), messages) == pytest.approx(3 * size, rel=0.01)


@pytest.mark.parametrize("counted", [False, True])
def test_what_is_certainly_below_is_known_by_a_look(counted: bool) -> None:
    """And what may be above is not said to be below."""
    gauge, messages = Gauge(), long_talk(2)
    if counted:
        said = answer(Usage(input=1_000, output=100))
        gauge.answered(asked(messages), len(messages), said)
        messages += [said]
    messages += [Message.user("more " * 100)]
    size = gauge.of(asked(messages), messages)
    assert gauge.is_below(60 * size, asked(messages), messages)
    assert not gauge.is_below(size, asked(messages), messages)
