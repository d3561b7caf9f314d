"""`Sequential`: the output of one is the input of the next."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from halter import Agent, Message, RunCancelled, RunFailed, runnable, runtime
from halter.compose import Parallel, Sequential
from halter.errors import ConfigurationError
from halter.models.scripted import Scripted
from halter.outcome import CancelReason

from .parts import Inputs, ends_of, fails, find, gives, log_of, speaker

pytestmark = pytest.mark.virtual_time


def prompts(log: list[Any], name: str) -> list[Any]:
    return [event.input for event in log if event.type == "run.started" and event.name == name]


async def test_each_part_gets_the_output_of_the_one_before_and_the_last_ones_is_the_whole_one() -> None:
    """In order, one after the other, each under its own name."""
    run = Sequential(speaker("a", "one two"), speaker("b", "three four five"), name="chain").run("go")
    result = await run
    assert asyncio.get_running_loop().time() == 5
    assert (result.output, result.text) == ("three four five", "three four five")
    log = await log_of(run)
    assert prompts(log, "b") == [(Message.user("one two"),)]
    assert [(event.agent, event.text) for event in log if event.type == "text.delta"] == [
        ("a", "one "), ("a", "two"), ("b", "three "), ("b", "four "), ("b", "five"),
    ]  # fmt: skip
    assert [(event.step, event.agent) for event in log if event.type == "step.started" and event.run_id == run.id] == [
        (1, "chain"),
        (2, "chain"),
    ]


async def test_its_text_is_the_last_parts_live() -> None:
    """What earlier parts say is theirs."""
    run = Sequential(speaker("a", "one two"), speaker("b", "three four five")).run("go")
    seen = []
    async for text in run.text_stream():
        seen.append((text, asyncio.get_running_loop().time(), run.text))
    assert seen == [("three ", 3, "three "), ("four ", 4, "three four "), ("five", 5, "three four five")]


@dataclass
class Point:
    x: int


AS_JSON = [
    ({"x": 1}, '{"x":1}'),
    ([1, 2], "[1,2]"),
    (Point(3), '{"x":3}'),
    (7, "7"),
    (("a", "b"), '["a","b"]'),
    (("a", ValueError("bad")), '["a",{"type":"ValueError","message":"bad","retryable":false}]'),
]


@pytest.mark.parametrize(("output", "text"), AS_JSON, ids=[text for _, text in AS_JSON])
async def test_what_an_agent_cannot_take_is_handed_to_it_as_json(output: Any, text: str) -> None:
    run = Sequential(gives(output), speaker("b", "thanks")).run("go")
    await run
    assert prompts(await log_of(run), "b") == [(Message.user(text),)]


@pytest.mark.parametrize("output", ["text", Message.user("a message"), [Message.user("one of a list")]], ids=repr)
async def test_text_and_messages_are_handed_to_an_agent_as_they_are(output: Any) -> None:
    run = Sequential(gives(output), speaker("b", "thanks")).run("go")
    await run
    (given,) = prompts(await log_of(run), "b")
    assert given[-1].text in ("text", "a message", "one of a list")


async def test_a_function_gets_the_very_object() -> None:
    """Nothing is turned into text for whom takes anything."""
    thing, inputs = object(), Inputs()
    await Sequential(gives(thing), inputs.part).run("go")
    assert inputs.given[0] is thing


@pytest.mark.parametrize(("output", "why"), [(None, "needs an input"), ("", "empty"), (object(), "no form in it")])
async def test_what_cannot_be_handed_over_fails_it(output: Any, why: str) -> None:
    """Clearly, and the next part never starts."""
    run = Sequential(gives(output), speaker("b", "never")).run("go")
    result = await run.finished()
    assert isinstance(result.error, ConfigurationError)
    assert why in str(result.error)
    assert "b" not in await ends_of(run)


async def test_a_part_that_fails_fails_it_with_its_own_error_and_the_rest_never_starts() -> None:
    """The very exception, also through compositions in compositions."""
    error = ValueError("bad")
    run = Sequential(Sequential(Parallel(fails(error)), speaker("b", "never")), speaker("c", "never")).run("go")
    with pytest.raises(RunFailed) as caught:
        await run
    assert caught.value.__cause__ is error
    assert run.outcome is not None
    assert run.outcome.error is error
    assert set(await ends_of(run)) == {"sequential", "parallel", "fails"}


@pytest.mark.scenario("C35")
async def test_a_part_that_is_stopped_alone_fails_it() -> None:
    """Its stop is the error, with all that the part had produced."""
    run = Sequential(speaker("a", "one two three"), speaker("b", "never")).run("go").start()
    await asyncio.sleep(1.5)
    await runtime().cancel(find(run, "a"), "you alone", wait=True)
    result = await run.finished()
    assert result.is_failed
    assert isinstance(result.error, RunCancelled)
    assert result.error.result is not None
    assert result.error.result.text == "one "
    assert result.error.cancellation is not None
    assert result.error.cancellation.message == "you alone"
    assert await ends_of(run) == {"a": CancelReason.USER_STOP, "sequential": "run.failed"}


async def test_a_stop_in_its_last_part_keeps_what_that_has_said() -> None:
    """In `text`, and in the conversation, marked interrupted."""
    run = Sequential(speaker("a", "one"), speaker("b", "two three four")).run("go").start()
    await asyncio.sleep(2.5)
    run.cancel()
    result = await run.finished()
    assert result.text == "two "
    assert [(m.role, m.text, m.interrupted) for m in result.messages] == [
        ("user", "go", False),
        ("assistant", "two ", True),
    ]


async def test_its_conversation_can_be_carried_on() -> None:
    """`result.messages` is the history of the next run: its first part gets it."""
    chain = Sequential(speaker("a", "first", "second"), speaker("b", "answer"))
    first = await chain.run("hi")
    assert [(m.role, m.text) for m in first.messages] == [("user", "hi"), ("assistant", "answer")]
    run = chain.run("and again", history=first.messages)
    second = await run
    said = [event.text for event in await log_of(run) if event.type == "run.completed"]
    assert said[0] == "second", "the first part has seen an answer before"
    assert [m.text for m in second.messages] == ["hi", "answer", "and again", "answer"]


async def test_the_callers_context_reaches_every_part() -> None:
    """Also through compositions in compositions."""
    seen: list[Any] = []

    @runnable
    async def looks(ctx: Any, input: Any) -> str:
        seen.append(ctx.context)
        return "x"

    mine = object()
    await Sequential(looks, Parallel(looks, Sequential(looks))).run("go", context=mine)
    assert [context is mine for context in seen] == [True] * 3


async def test_one_part_alone_is_a_chain_too() -> None:
    assert (await Sequential(Agent(Scripted("hello"))).run("hi")).output == "hello"
