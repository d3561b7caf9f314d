"""When a team has said enough: between turns, in the middle of one, and in one run alone."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from halter import CancellationToken, CancelReason, Message, RunStatus, Usage, events
from halter.errors import ConfigurationError, RunFailed
from halter.teams import RoundRobin
from halter.terminations import (
    External,
    Function,
    HandoffTo,
    MaxMessages,
    Source,
    StopMessage,
    Termination,
    TextMention,
    Timeout,
    TokenUsage,
)

from .parts import agent, log_of, now, said

virtual = pytest.mark.virtual_time


@dataclass
class At:
    """A view, as a test wants it."""

    messages: list[Message] = field(default_factory=list)
    saying: dict[str, str] = field(default_factory=dict)
    turns: tuple[str, ...] = ()
    handoffs: tuple[str, ...] = ()
    usage: Usage = field(default_factory=Usage)
    elapsed: float = 0.0


def word(name: str, text: str, **options: Any) -> Message:
    return Message("assistant", Message.assistant(text).parts, name=name, **options)


NOW_AND_THEN = [
    (MaxMessages(2), At(turns=("a",)), At(turns=("a", "b")), "2 messages"),
    (StopMessage("STOP"), At([word("a", "STOP it")]), At([word("b", "I STOP.")]), "b has ended with 'STOP'"),
    (StopMessage(by="b"), At([word("a", "TERMINATE")]), At([word("b", "**TERMINATE**\n")]), "b has ended"),
    (StopMessage(), At([word("a", "TERMINATE", interrupted=True)]), At([word("a", "TERMINATE")]), "a has ended"),
    (HandoffTo("user"), At(handoffs=("b",)), At(handoffs=("b", "user")), "handed over to user"),
    (Source("b"), At(turns=("a",)), At(turns=("a", "b")), "b has spoken"),
    (TextMention("yes"), At(saying={"a": "ye"}), At(saying={"b": "no", "a": "yes, "}), "a has said 'yes'"),
    (TextMention("yes", by=["b"]), At([word("a", "yes")]), At([word("b", "yes")]), "b has said 'yes'"),
    (TextMention("yes", inside=False), At(saying={"a": "yes"}), At([word("a", "yes")]), "a has said 'yes'"),
    (TokenUsage(10), At(usage=Usage(input=5, output=4)), At(usage=Usage(input=5, output=5)), "10 tokens"),
    (TokenUsage(output=5), At(usage=Usage(input=9, output=4)), At(usage=Usage(output=5)), "5 tokens"),
    (TokenUsage(input=5), At(usage=Usage(input=4, output=9)), At(usage=Usage(input=5)), "5 tokens"),
    (Timeout(3), At(elapsed=2.9), At(elapsed=3), "3 seconds"),
    (Function(lambda view: len(view.turns) > 1 and "enough"), At(turns=("a",)), At(turns=("a", "b")), "enough"),
]


@pytest.mark.parametrize(("termination", "before", "then", "why"), NOW_AND_THEN, ids=lambda each: type(each).__name__)
def test_each_looks_at_its_own_and_says_why(termination: Termination, before: At, then: At, why: str) -> None:
    """Two looks at once do not know of each other."""
    look, other = termination.begin(), termination.begin()
    assert not look(before)
    then = replace(then, messages=before.messages + then.messages)  # a conversation only grows
    assert why in str(look(then))
    assert not other(before)


def test_both_end_when_both_have_happened_in_whatever_order() -> None:
    """What has once been true stays true."""
    both = (Source("a") & TextMention("yes")).begin()
    assert both(At([word("b", "yes")])) is None
    assert both(At([word("b", "yes")], turns=("a",))) == "a has spoken and b has said 'yes'"
    flickers = (Function(lambda view: len(view.turns) == 1 and "one") & Timeout(2)).begin()
    looks = [flickers(At(turns=("a",) * time, elapsed=time)) for time in (0, 1, 2)]
    assert looks == [None, None, "one and 2 seconds"]


def test_a_function_is_asked_once_for_each_turn_however_often_others_are_looked_at() -> None:
    """Between turns it would be called on the loop."""
    asked: list[int] = []
    look = (Function(lambda view: asked.append(len(view.turns))) | Timeout(9)).begin()
    for turns, time in ((0, 0), (0, 1), (1, 2), (1, 3), (1, 9)):
        ended = look(At(turns=("a",) * turns, elapsed=time))
    assert asked == [0, 1]
    assert ended == "9 seconds"


def test_either_ends_at_the_first_and_they_combine() -> None:
    either = MaxMessages(2) | Source("a") & HandoffTo("user")
    assert repr(either) == "(MaxMessages(2) | (Source('a') & HandoffTo('user')))"
    assert either.begin()(At(turns=("b", "b"))) == "2 messages"
    assert either.begin()(At(turns=("a",))) is None
    assert (Timeout(1) | Timeout(3) & TextMention("x")).times == (1, 3)
    assert [(MaxMessages(1) | TextMention("x", inside=inside)).reads for inside in (True, False)] == [True, False]


WRONG = {
    "no messages": lambda: MaxMessages(0),
    "not a termination": lambda: MaxMessages(1) | 3,  # pyright: ignore
    "no words": lambda: TextMention(" "),
    "nobody": Source,
    "no limit": TokenUsage,
    "no tokens": lambda: TokenUsage(0),
    "less than no time": lambda: Timeout(-1),
    "no token": lambda: External("token"),  # pyright: ignore
    "no function": lambda: Function(3),  # pyright: ignore
    "one that has to be awaited": lambda: Function(asyncio.sleep),  # pyright: ignore
    "a member that is none": lambda: RoundRobin([agent("ann", "one")], until=MaxMessages(9) | Source("anna")),
    "of one that is none": lambda: RoundRobin([agent("ann", "one")], until=StopMessage(by="anna") | MaxMessages(9)),
    "for one run": lambda: RoundRobin([agent("ann", "one")], until=MaxMessages(9)).until(TextMention("x", by="anna")),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_makes_no_sense_is_refused(what: str) -> None:
    wrong: Any = WRONG[what]
    with pytest.raises(ConfigurationError):
        wrong()


# --- in the middle of a turn --------------------------------------------------------------------------------


@virtual
async def test_words_end_the_team_where_they_are_said() -> None:
    """The member's run is stopped as policy; the team completes with what had arrived."""
    ann, ben = agent("ann", "one two three"), agent("ben", "four APPROVED and much more")
    run = RoundRobin([ann, ben], until=TextMention("APPROVED") | MaxMessages(9)).run("go")
    result = await run
    assert now() == 5
    assert (result.status, result.text, result.output) == (RunStatus.COMPLETED, "four APPROVED ", "four APPROVED ")
    assert result.state.stop_reason == "ben has said 'APPROVED'"
    assert result.state.turns == ("ann",)
    assert result.messages[-1].interrupted
    assert (result.cancellation, result.receipt) == (None, None)
    (cut,) = [event for event in await log_of(run) if isinstance(event, events.Cancelled)]
    assert cut.reason is CancelReason.POLICY


@virtual
async def test_words_in_a_whole_message_let_it_become_whole() -> None:
    team = RoundRobin([agent("ann", "yes and more")], until=TextMention("yes", inside=False) | MaxMessages(9))
    result = await team.run("go")
    assert (result.text, now(), result.state.turns) == ("yes and more", 3, ("ann",))
    assert not result.messages[-1].interrupted


@virtual
async def test_time_is_up_in_the_middle_of_a_word_and_of_silence() -> None:
    """Not a `timeout`: the run completes."""
    team = RoundRobin([agent("ann", "one two", pace=10)], until=Timeout(15))
    result = await team.run("go")
    assert (now(), result.status, result.text) == (15, RunStatus.COMPLETED, "one ")
    assert result.state.stop_reason == "15 seconds"
    result = await RoundRobin([agent("ann", "one two", pace=100)], until=Timeout(15)).run("go")
    assert (now(), result.text) == (30, "")


@virtual
async def test_tokens_are_counted_while_they_come() -> None:
    """An answer of many words ends near the limit, and the usage says that it is estimated."""
    team = RoundRobin([agent("ann", "word " * 1000, pace=0.01)], until=TokenUsage(output=100))
    result = await team.run("go")
    assert 60 < len(result.text.split()) < 115
    assert result.usage.estimated
    assert result.state.usage == result.usage


@virtual
async def test_tokens_of_the_turns_before_count() -> None:
    """Each has said five words, and was told some."""
    team = RoundRobin([agent("ann", "a b c d e"), agent("ben", "a b c d e")], until=TokenUsage(output=12))
    result = await team.run("go")
    assert result.state.turns == ("ann", "ben")
    assert 1 <= len(result.text.split()) <= 4


@virtual
async def test_a_function_may_look_inside() -> None:
    until = Function(lambda view: any(len(text) > 6 for text in view.saying.values()), inside=True)
    result = await RoundRobin([agent("ann", "one two three")], until=until).run("go")
    assert result.text == "one two "


@pytest.mark.parametrize("inside", [True, False])
@virtual
async def test_a_function_that_raises_fails_the_team(inside: bool) -> None:
    """With its own error; nothing goes on."""

    def broken(view: Any) -> bool:
        if view.turns or view.saying.get("ann") == "one ":
            raise ZeroDivisionError("in the termination")
        return False

    run = RoundRobin([agent("ann", "one two")], until=Function(broken, inside=inside)).run("go")
    with pytest.raises(RunFailed) as caught:
        await run
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert now() == (1 if inside else 2)


@virtual
async def test_one_that_raises_when_its_time_has_come_fails_the_team_too() -> None:
    """It is the loop that calls there."""
    broken = Function(lambda view: 1 / (2 - view.elapsed) < 0, inside=True)
    result = await RoundRobin([agent("ann", "one two three")], until=Timeout(2) & broken).run("go").finished()
    assert isinstance(result.error, ZeroDivisionError)
    assert now() == 2


# --- from outside -------------------------------------------------------------------------------------------


@virtual
async def test_from_outside_the_team_ends_in_the_middle_of_a_turn() -> None:
    enough = External()
    team = RoundRobin([agent("ann", "one two three")], until=enough)
    asyncio.get_running_loop().call_later(1.5, enough.set, "that will do")
    result = await team.run("go")
    assert (now(), result.text, result.state.stop_reason) == (1.5, "one ", "that will do")


@pytest.mark.real_loop("asyncio")
async def test_from_another_thread_too() -> None:
    """On an idle loop."""
    enough = External()
    run = RoundRobin([agent("ann", "one two", pace=30)], until=enough).run("go").start()
    threading.Timer(0.02, enough.set).start()
    result = await asyncio.wait_for(run, 5)
    assert result.state.stop_reason == "told from outside"


@virtual
async def test_it_ends_the_runs_that_have_it_and_no_other() -> None:
    """`until` gives one run its own; the definition is as it was."""
    team = RoundRobin([agent("ann", "one two three")], until=MaxMessages(1))
    enough = External()
    stopped, other = team.until(enough | MaxMessages(1)).run("go").start(), team.run("go").start()
    await asyncio.sleep(1.5)
    enough.set()
    assert [(await run).text for run in (stopped, other)] == ["one ", "one two three"]
    assert repr(team.termination) == "MaxMessages(1)"


@virtual
async def test_said_before_it_begins_nobody_speaks() -> None:
    token = CancellationToken()
    token.cancel()
    run = RoundRobin([agent("ann", "one")], until=External(token)).run("go")
    result = await run
    assert (result.output, result.text, result.state.turns) == ("", "", ())
    assert "model.requested" not in {event.type for event in await log_of(run)}


@virtual
async def test_nothing_listens_when_a_run_is_over() -> None:
    """A token outlives the runs that have it."""
    enough = External()
    await RoundRobin([agent("ann", "one")], until=enough | MaxMessages(1)).run("go")
    assert repr(enough) == "External(<CancellationToken live, 0 listening>)"


@virtual
async def test_a_user_may_stop_what_was_about_to_end() -> None:
    """A stop and the team's own end in one instant: one outcome."""
    run = RoundRobin([agent("ann", "one two three")], until=Timeout(1.5)).run("go").start()
    asyncio.get_running_loop().call_at(1.5, run.cancel)
    result = await run.finished()
    assert result.is_cancelled or result.is_completed
    assert said(result.messages) == [(None, "go"), ("ann", "one ")]


@pytest.mark.real_loop("uvloop")
async def test_time_is_up_also_where_the_loop_counts_whole_milliseconds() -> None:
    """There a timer may be called before the loop's own clock says that its time has come; and it is called once."""
    for after in (0.0504, 0.0511, 0.0517, 0.0523, 0.0531, 0.0542, 0.0559, 0.0574):
        team = RoundRobin([agent("ann", "one two", pace=30)], until=Timeout(after))
        result = await asyncio.wait_for(team.run("go"), 5)
        assert result.state.stop_reason == f"{after:g} seconds"


def test_words_are_found_wherever_a_text_grows() -> None:
    """Only what is new is looked through, and the words may lie across it; another message begins anew."""
    look = TextMention("the end").begin()
    said = ["It is ", "It is the ", "It is the en", "the e", "the en and on", "the en and on the end"]
    assert [bool(look(At(saying={"ann": text}))) for text in said] == [False] * 5 + [True]
