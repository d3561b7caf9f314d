"""Random runs: agents that think, speak, call tools, ask, hand work to others, fail, and are stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from halter import Agent, RunContext, events, tool
from halter.events import Event
from halter.messages import Message
from halter.models.scripted import FREE
from halter.request import ModelRequest
from halter.testing import VirtualTimeLoop

TEXTS = st.text(max_size=6)
STEPS = st.one_of(
    st.tuples(st.just("text"), TEXTS),
    st.tuples(st.just("thought"), TEXTS),
    st.tuples(st.just("call"), st.sampled_from(("work", "break_down", "confirm", "delegate", "unknown"))),
    st.tuples(st.just("fail"), st.just("")),
    st.tuples(st.just("pause"), st.just("")),
)
PLANS = st.fixed_dictionaries(
    {
        "answers": st.lists(st.lists(STEPS, max_size=5), min_size=1, max_size=3),
        "stop_after": st.none() | st.integers(1, 40),
    }
)


class Planned:
    """A model that says what a plan says; its n-th answer in a conversation is the n-th of the plan."""

    name = "planned"
    price = FREE

    def __init__(self, answers: Sequence[Sequence[tuple[str, str]]]) -> None:
        self._answers = answers

    async def respond(self, request: ModelRequest, ctx: RunContext) -> Message:
        given = sum(message.role == "assistant" for message in request.messages)
        reply = ctx.reply(ctx.allowance(request, self.price))
        steps = self._answers[given] if given < len(self._answers) else [("text", "Done.")]
        for place, (kind, what) in enumerate(steps):
            await asyncio.sleep(1 if kind == "pause" else 0)
            if kind == "fail":
                raise RuntimeError("the model has failed")
            if kind == "text":
                reply.text(what)
            elif kind == "thought":
                reply.reasoning(what)
            elif kind == "call":
                reply.tool_fragment(place, f"call-{given}-{place}", what, "{}")
        reply.assembly.finish_reason = "stop"
        return reply.finish()


@tool
async def work() -> dict[str, Any]:
    """Works."""
    await asyncio.sleep(1)
    return {"done": True}


@tool
async def break_down() -> str:
    """Fails."""
    raise ValueError("broken")


@tool(approval="always")
async def confirm() -> str:
    """Asks first."""
    return "confirmed"


def events_of(plan: dict[str, Any]) -> list[Event]:
    """All events of the run that the plan describes."""
    helper = Agent(Planned([[("text", "I "), ("text", "help.")]]), name="helper")
    agent = Agent(
        Planned(plan["answers"]), name="agent", tools=[work, break_down, confirm, helper.as_tool(name="delegate")]
    )

    async def main() -> list[Event]:
        found: list[Event] = []
        run = agent.run("Go.")
        async for event in run:
            found.append(event)
            if isinstance(event, events.InputRequested):
                run.answer(event.request_id, len(found) % 2 == 0)
            if len(found) == plan["stop_after"]:
                run.cancel("enough")
        return found

    loop = VirtualTimeLoop()
    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()


def batches(found: Sequence[Event], sizes: Sequence[int]) -> list[Sequence[Event]]:
    """The events as a reader gets them: so many at once, in turn."""
    pieces: list[Sequence[Event]] = []
    at = 0
    while at < len(found):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(found[at : at + size])
        at += size
    return pieces
