"""One crew for many inputs, in one run: each is attributable, and a stop ends all."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from halter import CancelMode, RunContext, RunFailed, events, runnable
from halter.crews import Crew, CrewState, Task
from halter.errors import ConfigurationError

from ..core.conftest import check_log as check_log
from .people import Asked, member, pair

virtual = pytest.mark.virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


def echo(fails_on: str = "", pace: float = 1.0) -> Crew:
    """Says each of three words after a second; fails on one of them at the first."""

    @runnable(name="echo")
    async def echo(ctx: RunContext, input: str) -> str:
        for _ in range(3):
            await asyncio.sleep(pace)
            if input == fails_on:
                raise LookupError(input)
            ctx.text(f"<{input}> ")
        return input

    return Crew([Task(description="{word}", agent=echo, name="say")])


@pytest.mark.scenario("E54")
@virtual
async def test_each_input_has_a_crew_of_its_own_and_every_event_says_which() -> None:
    run = echo().run_each([{"word": "a"}, {"word": "b"}, "c"])
    log = [event async for event in run]
    assert run.outcome is not None
    assert (run.outcome.output, now()) == (("a", "b", "c"), 3)
    said = {(event.task, event.text) for event in log if isinstance(event, events.TextDelta) and event.task}
    assert said == {("0/say", "<a> "), ("1/say", "<b> "), ("2/say", "<c> ")}
    crews = [event for event in log if isinstance(event, events.Started) and event.kind == "crew"]
    assert [(event.tags, event.input) for event in crews] == [
        (("input:0",), {"word": "a"}),
        (("input:1",), {"word": "b"}),
        (("input:2",), {"word": "c"}),
    ]
    assert run.text == "<a> <a> <a> \n\n<b> <b> <b> \n\n<c> <c> <c> "


@virtual
async def test_so_many_at_once_and_the_outputs_in_their_order() -> None:
    running, most = [0], [0]

    @runnable
    async def work(ctx: RunContext, input: str) -> str:
        running[0] += 1
        most[0] = max(most[0], running[0])
        await asyncio.sleep(10 - int(input))
        running[0] -= 1
        return input

    crew = Crew([Task(description="{n}", agent=work)])
    result = await crew.run_each([str(n) for n in range(10)], max_concurrency=3)
    assert result.output == tuple(str(n) for n in range(10))
    assert most == [3]


@virtual
async def test_twenty_at_once_see_nothing_of_each_other() -> None:
    words = [f"word{n}" for n in range(20)]
    run = echo().run_each(words)
    log = [event async for event in run]
    for number, word in enumerate(words):
        mine = [e.text for e in log if isinstance(e, events.TextDelta) and e.task == f"{number}/say"]
        assert mine == [f"<{word}> "] * 3


# --- inputs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "there are no inputs"),
        ("abc", "a list is needed"),
        ({"word": "a"}, "a list is needed"),
        ([{"word": "a"}, {"wort": "b"}], "input 1: the inputs lack word"),
    ],
)
def test_inputs_that_cannot_work_fail_before_any_request(inputs: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        echo().run_each(inputs)


def test_options_that_cannot_work_fail_before_any_request() -> None:
    for options in ({"max_concurrency": 0}, {"on_failure": "ignore"}, {"state": [CrewState()] * 2}, {"timeout": -1}):
        with pytest.raises(ConfigurationError):
            echo().run_each(["a"], **options)  # pyright: ignore


# --- one that fails -----------------------------------------------------------------------------------------


@virtual
async def test_one_that_fails_stops_the_others_and_begins_no_other() -> None:
    run = echo(fails_on="b").run_each(["a", "b", "c"], max_concurrency=2)
    with pytest.raises(RunFailed) as caught:
        await run
    assert repr(caught.value.__cause__) == "LookupError('b')"
    assert now() == 1
    ends = [event.reason async for event in run.events() if isinstance(event, events.Cancelled)]
    assert ends == ["parent_cancelled", "parent_cancelled", "sibling_failed"]


@virtual
async def test_the_others_may_finish_first_or_the_failure_be_collected() -> None:
    waited = echo(fails_on="b").run_each(["a", "b", "c"], max_concurrency=2, on_failure="wait")
    result = await waited.finished()
    assert (repr(result.error), now()) == ("LookupError('b')", 4)
    assert [state.outputs for state in result.state] == [{"say": "a"}, {}, {"say": "c"}]
    collected = await echo(fails_on="b").run_each(["a", "b", "c"], on_failure="collect")
    first, failed, last = collected.output or ()
    assert (first, repr(failed), last) == ("a", "LookupError('b')", "c")
    assert collected.text == "<a> <a> <a> \n\n<c> <c> <c> "


# --- stopped ------------------------------------------------------------------------------------------------


@pytest.mark.scenario("A10", "C34", "J89")
@virtual
async def test_a_stop_ends_all_and_a_next_run_does_the_rest(check_log: Any) -> None:
    models = Asked("one two three", pace=1), Asked("four five six", pace=1)
    crew = Crew([Task(description="{n}", agent=member("ab"[at], model)) for at, model in enumerate(models)])
    run = crew.run_each(["0", "1", "2", "3"], max_concurrency=2).start()
    await asyncio.sleep(10.5)  # two are through, and two in their second task
    await run.aclose()
    assert now() == 10.5
    assert [len(model.requests) for model in models] == [4, 4]
    assert run.outcome is not None
    states = run.outcome.state
    assert [list(state.outputs) for state in states] == [["task 1", "task 2"]] * 2 + [["task 1"]] * 2
    check_log([event async for event in run.events()])
    stored = msgspec.json.decode(msgspec.json.encode(states))
    result = await crew.run_each(["0", "1", "2", "3"], state=stored)
    assert result.output == ("four five six",) * 4
    assert [len(model.requests) for model in models] == [4, 6]


@virtual
async def test_stopped_before_some_had_begun_the_rest_is_still_to_do() -> None:
    crew = pair(pace=1)
    run = crew.run_each(["a", "b", "c"], max_concurrency=1).start()
    await asyncio.sleep(7.5)
    await run.aclose()
    assert run.outcome is not None
    first, second, third = run.outcome.state
    assert list(first.outputs) == ["research", "write"]
    assert (second.outputs, list(second.open)) == ({}, ["research"])
    assert third == CrewState()


@pytest.mark.scenario("B25")
@pytest.mark.parametrize("at_once", [1, 2, None])
@virtual
async def test_after_turn_lets_those_that_run_end_their_turn_and_begins_no_other(at_once: int | None) -> None:
    model = Asked("one two three", pace=1)
    crew = Crew([Task(description="{n}", agent=member("ann", model))])
    run = crew.run_each(["0", "1", "2"], max_concurrency=at_once).start()
    await asyncio.sleep(0.5)
    run.cancel(mode=CancelMode.AFTER_TURN)
    result = await run.finished()
    assert now() == 3
    assert len(model.requests) == (at_once or 3)
    assert result.is_completed == (at_once is None)
    assert [bool(state.outputs) for state in result.state] == [place < (at_once or 3) for place in range(3)]
