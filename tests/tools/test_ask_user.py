"""`ask_user`: the model's question reaches the person, and the answer the model; a stop takes it back."""

from __future__ import annotations

from typing import Any

import pytest

from halter import Agent, events
from halter.core.run import Run
from halter.errors import ConfigurationError, UsageError
from halter.messages import ToolResult
from halter.models.scripted import Scripted, calls
from halter.outcome import RunResult
from halter.testing import Sweep, SweepOutcome, cancel_sweep
from halter.tools.asking import ask_user


def asking(timeout: float | None = 600.0, **arguments: Any) -> Run[str]:
    """A run whose model asks once, then is done."""
    return Agent(Scripted(calls("ask_user", **arguments), "done"), tools=[ask_user(timeout=timeout)]).run("Go on")


def told(result: RunResult[Any]) -> list[str]:
    return [part.content for message in result.messages for part in message.parts if isinstance(part, ToolResult)]


def answers(log: list[events.Event]) -> list[tuple[str, Any]]:
    return [(event.outcome, event.answer) for event in log if isinstance(event, events.InputReceived)]


@pytest.mark.virtual_time
async def test_the_question_is_shown_and_the_answer_goes_to_the_model() -> None:
    run = asking(question="Which colour?")
    log: list[events.Event] = []
    async for event in run:
        log.append(event)
        if isinstance(event, events.InputRequested):
            assert (event.prompt, event.kind, event.options) == ("Which colour?", "text", ())
            assert event.call_id == next(one.call_id for one in log if isinstance(one, events.ToolCalled))
            run.answer(event.request_id, "blue")
    assert told(await run) == ["blue"]
    assert answers(log) == [("answered", "blue")]


@pytest.mark.virtual_time
async def test_where_there_are_options_one_of_them_is_the_answer() -> None:
    run = asking(question="Which colour?", options=["red", "blue"])
    async for event in run:
        if isinstance(event, events.InputRequested):
            assert event.options == ("red", "blue")
            with pytest.raises(UsageError, match="must be one of 'red', 'blue'"):
                run.answer(event.request_id, "green")
            run.answer(event.request_id, "red")
    assert told(await run) == ["red"]


@pytest.mark.virtual_time
@pytest.mark.parametrize(("answer", "shown"), [({"n": 1}, '{"n":1}'), (None, ""), (True, "true")])
async def test_an_answer_may_be_anything(answer: Any, shown: str) -> None:
    run = asking(question="What?")
    async for event in run:
        if isinstance(event, events.InputRequested):
            run.answer(event.request_id, answer)
    assert told(await run) == [shown]


@pytest.mark.virtual_time(timeout=700)
async def test_without_an_answer_the_model_is_told_that_nobody_answered() -> None:
    run = asking(question="Anybody?", timeout=60)
    log = [event async for event in run]
    assert told(await run) == ["Nobody answered within 60 seconds. Go on without an answer, or say what you need."]
    assert answers(log) == [("expired", None)]
    assert run.text == "done"


@pytest.mark.virtual_time
async def test_too_many_options_are_an_error_that_asks_nobody() -> None:
    run = asking(question="Which?", options=[str(number) for number in range(21)])
    log = [event async for event in run]
    assert told(await run) == ["give 20 options at most"]
    assert not [event for event in log if isinstance(event, events.InputRequested)]


@pytest.mark.scenario(36)
@pytest.mark.virtual_time
async def test_a_stop_resolves_the_question_as_cancelled() -> None:
    run = asking(question="Still there?")
    log: list[events.Event] = []
    async for event in run.events():
        log.append(event)
        if isinstance(event, events.InputRequested):
            run.cancel()
    assert answers(log) == [("cancelled", None)]
    assert (await run.finished()).is_cancelled


def test_wherever_a_stop_comes_the_question_is_resolved_once() -> None:
    async def scenario(sweep: Sweep) -> list[events.Event]:
        run = asking(question="Still there?")
        sweep.cancel = run.cancel
        log: list[events.Event] = []
        async for event in run.events():
            log.append(event)
            if isinstance(event, events.InputRequested):
                run.answer(event.request_id, "yes")
        return log

    def check(outcome: SweepOutcome) -> None:
        asked = [event for event in outcome.result if isinstance(event, events.InputRequested)]
        resolved = answers(outcome.result)
        assert len(resolved) == len(asked)
        assert set(resolved) <= {("cancelled", None), ("answered", "yes")}
        assert isinstance(outcome.result[-1], events.Cancelled | events.Completed)

    assert cancel_sweep(scenario, check=check) > 5


def test_a_wrong_time_out_is_refused_when_the_tool_is_made() -> None:
    for wrong in (0, -1, "soon"):
        with pytest.raises(ConfigurationError, match="timeout"):
            ask_user(timeout=wrong)  # pyright: ignore
