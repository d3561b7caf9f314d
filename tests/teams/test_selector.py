"""Somebody chooses who is next: a function, or a model that is held to the names."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from halter import Agent, Budget, CancelMode, events
from halter.errors import ConfigurationError, UsageError
from halter.features import Features
from halter.models.scripted import Scripted
from halter.teams import Selector
from halter.terminations import MaxMessages, Timeout

from .parts import Notes, agent, log_of, now

virtual = pytest.mark.virtual_time


def three() -> list[Agent]:
    return [agent(name, "word", description=f"Knows {name}.") for name in ("ann", "ben", "zoe")]


@pytest.mark.parametrize("is_async", [False, True])
@virtual
async def test_a_function_chooses_until_it_chooses_nobody(is_async: bool) -> None:
    """It sees the conversation, and the names that may be chosen."""
    asked: list[Any] = []

    def choose(messages: Any, names: Any) -> str | None:
        asked.append(([message.text for message in messages], names))
        return ["zoe", "ann", None][len(asked) - 1]

    async def later(messages: Any, names: Any) -> str | None:
        await asyncio.sleep(0)
        return choose(messages, names)

    result = await Selector(three(), choose=later if is_async else choose).run("go")
    assert result.state.turns == ("zoe", "ann")
    assert result.state.stop_reason == "nobody was chosen"
    assert asked == [
        (["go"], ("ann", "ben", "zoe")),
        (["go", "word"], ("ann", "ben")),
        (["go", "word", "word"], ("ben", "zoe")),
    ]


@virtual
async def test_whoever_may_not_speak_is_not_let() -> None:
    """Not the last speaker, unless repeats are allowed."""
    result = await Selector(three(), choose=lambda messages, names: "ann").run("go").finished()
    assert isinstance(result.error, UsageError)
    assert "these may: ben, zoe" in str(result.error)
    again = Selector(three(), choose=lambda messages, names: "ann", allow_repeats=True, until=MaxMessages(2))
    assert (await again.run("go")).state.turns == ("ann", "ann")


@virtual
async def test_a_model_is_asked_with_what_was_said_and_who_there_is() -> None:
    """A child run called `selector`; its answer is no part of the conversation, nor of the text."""
    model = Notes('{"value": "zoe"}', '{"value": "ann"}')
    team = Selector(three(), choose=model, until=MaxMessages(2))
    run = team.run("go")
    texts = [text async for text in run.text_stream()]
    result = await run
    assert texts == ["word", "word"]
    assert result.state.turns == ("zoe", "ann")
    (system, asked), (later, then) = model.told
    assert all(line in system[1] for line in ("- ann: Knows ann.", "- ben: Knows ben.", "- zoe: Knows zoe."))
    assert "zoe" not in later[1]
    assert asked == ("user", "go\n\nWho speaks next?")
    assert then == ("user", "go\n\nzoe: word\n\nWho speaks next?")
    assert {event.agent for event in await log_of(run) if isinstance(event, events.MessageFinished)} >= {"selector"}


@virtual
async def test_a_model_that_names_nobody_is_told_so_and_then_passed_over() -> None:
    """Twice told; then the next in order speaks, and an event says so."""
    model = Notes("I think ann", '{"value": "nobody"}', "ann!")
    run = Selector(three(), choose=model, until=MaxMessages(1)).run("go")
    result = await run
    assert result.state.turns == ("ann",)
    assert len(model.told) == 3
    (fallback,) = [event for event in await log_of(run) if isinstance(event, events.Custom) and "sel" in event.name]
    assert (fallback.name, fallback.data["chosen"]) == ("selector.fallback", "ann")
    model = Notes("I think ben", '{"value": "ben"}')
    assert (await Selector(three(), choose=model, until=MaxMessages(1)).run("go")).state.turns == ("ben",)


@virtual
async def test_where_one_is_left_nobody_is_asked() -> None:
    model = Notes('{"value": "ben"}')
    team = Selector(three()[:2], choose=model, until=MaxMessages(3))
    assert (await team.run("go")).state.turns == ("ben", "ann", "ben")
    assert len(model.told) == 1


@virtual
async def test_choosing_is_paid_for_and_may_be_stopped() -> None:
    """By a budget, by a stop, by the team's own end; no turn begins."""
    slow = Scripted('{"value": "ann"}', pace=1)
    team = Selector(three(), choose=slow, until=MaxMessages(9))
    result = await team.run("go", budget=Budget(model_calls=1)).finished()
    assert result.is_cancelled
    assert result.state.turns == ()
    assert result.usage.output > 0
    run = team.run("go").start()
    await asyncio.sleep(1.5)
    run.cancel()
    assert (await run.finished()).is_cancelled
    result = await team.until(Timeout(1.5)).run("go")
    assert (result.is_completed, result.state.turns, result.text) == (True, (), "")


@virtual
async def test_a_stop_that_waits_for_the_turn_asks_for_no_choice_after_it() -> None:
    model = Notes('{"value": "ann"}', '{"value": "ben"}')
    run = Selector(three(), choose=model, until=MaxMessages(9)).run("go").start()
    await asyncio.sleep(0.5)
    run.cancel(mode=CancelMode.AFTER_TURN)
    result = await run.finished()
    assert (result.is_cancelled, result.text, now()) == (True, "word", 1)
    assert len(model.told) == 1


def test_a_model_that_cannot_be_held_to_names_is_refused() -> None:
    class Plain(Notes):
        features = Features(settings=frozenset())

    with pytest.raises(ConfigurationError, match="cannot hold its answer to a schema"):
        Selector(three(), choose=Plain(""), until=MaxMessages(1))


@virtual
async def test_a_function_that_takes_its_time_is_stopped_by_the_teams_end() -> None:
    """And what it runs is under the team: its tokens count, and its model is stopped."""
    moderator = agent("moderator", "ann ann ann")

    async def moderated(messages: Any, names: tuple[str, ...]) -> str:
        return (await moderator.run("Who?")).text

    run = Selector([agent("ann", "one"), agent("ben", "two")], choose=moderated, until=Timeout(1.5)).run("go")
    result = await run
    assert (now(), result.state.stop_reason, result.state.turns) == (1.5, "1.5 seconds", ())
    assert result.state.usage.output > 0
    [cut] = [event for event in await log_of(run) if isinstance(event, events.Cancelled) and event.text]
    assert cut.text == "ann "
