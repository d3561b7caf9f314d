"""The text of a flow: whatever speaks in it, one voice at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from halter import Agent, Run, runnable
from halter.compose import Parallel, Sequential
from halter.flows import Flow, and_, listen, start
from halter.models.scripted import Scripted

from ..compose.parts import speaker

pytestmark = pytest.mark.virtual_time


async def read(run: Run[Any]) -> list[str]:
    return [text async for text in run.text_stream()]


class Two(Flow):
    def __init__(self, first: Any, second: Any) -> None:
        self.first = first
        self.second = second

    @start()
    async def a(self) -> Any:
        return (await self.first.run("hi")).output

    @listen(a)
    async def b(self) -> Any:
        return (await self.second.run("hi")).output


async def test_the_stream_has_each_speaker_in_turn_and_the_text_is_the_last_ones() -> None:
    run = Two(speaker("x", "one two"), speaker("y", "three four")).run("go")
    seen = []
    async for text in run.text_stream():
        seen.append((text, run.text))
    assert seen == [("one ", "one "), ("two", "one two"), ("three ", "three "), ("four", "three four")]
    assert (await run).text == "three four"


async def test_the_speaker_may_be_deep_down() -> None:
    """In a composition, in a flow; of an agent's tool only the agent itself speaks."""
    tool = speaker("tool", "not heard")

    @runnable
    async def asks(ctx: Any, input: Any) -> None:
        await ctx.start(tool, "hi")
        ctx.text("heard")

    deep = Two(Two(speaker("x", "one"), Sequential(speaker("silent", "aside"), speaker("y", "two"))), asks)
    run = deep.run("go")
    assert await read(run) == ["one", "two", "heard"]
    assert run.text == "heard"


async def test_a_step_that_says_nothing_leaves_the_last_word_to_the_one_before() -> None:
    @runnable
    async def silent(ctx: Any, input: Any) -> int:
        await asyncio.sleep(5)
        return 7

    run = Two(speaker("x", "one two"), silent).run("go").start()
    await asyncio.sleep(4)
    assert run.text == "one two"
    result = await run
    assert (result.text, result.output) == ("one two", 7)


async def test_a_step_speaks_for_itself_too() -> None:
    """Before and after those in it."""

    class Says(Flow):
        @start()
        async def step(self, ctx: Any) -> None:
            ctx.text("Now: ")
            ctx.close_reply()
            await speaker("x", "one two").run("hi")
            ctx.text("That was it.")

    run = Says().run()
    seen = []
    async for text in run.text_stream():
        seen.append((text, run.text))
    assert seen == [("Now: ", "Now: "), ("one ", "one "), ("two", "one two"), ("That was it.", "That was it.")]
    assert run.text == "That was it."


async def test_of_those_that_speak_at_once_the_first_is_heard_to_its_end() -> None:
    """Never two voices word by word: the others are in the events."""

    class Chorus(Flow):
        @start()
        async def a(self) -> None:
            await speaker("x", "one two three").run("hi")

        @start()
        async def b(self) -> None:
            await asyncio.sleep(0.5)
            await asyncio.gather(speaker("y", "uno").run("hi"), speaker("z", "un deux trois quatre").run("hi"))
            await speaker("y", "dos tres").run("hi")

        @listen(and_(a, b))
        async def last(self) -> None:
            await Parallel(speaker("x", "eins"), speaker("y", "zwei")).run("hi")

    run = Chorus().run()
    heard = await read(run)
    assert "".join(heard) == "one two threedos treseins\n\nzwei"
    assert run.text == "eins\n\nzwei"
    assert "quatre" in "".join([event.text async for event in run.events() if event.type == "text.delta"])  # pyright: ignore


async def test_of_a_text_that_nobody_has_shown_the_output_is_all() -> None:
    @runnable
    async def gives(ctx: Any, input: Any) -> str:
        return "given"

    run = Two(gives, gives).run("go")
    assert await read(run) == ["given"]
    assert run.text == "given"


async def test_a_turn_that_calls_a_tool_first_is_one_speaker() -> None:
    """The agent's text is that of its last answer, as anywhere."""
    from halter.models.scripted import calls

    async def look() -> str:
        """Looks."""
        return "seen"

    agent = Agent(Scripted(("let me look", calls("look")), "I see"), tools=[look], name="x")
    run = Two(agent, speaker("y", "ok")).run("go")
    assert await read(run) == ["let ", "me ", "look", "I ", "see", "ok"]
