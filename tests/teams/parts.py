"""What the tests of teams are made of: members whose words are known, and a model that notes what it was told."""

from __future__ import annotations

import asyncio
from typing import Any

from halter import Agent, Message, Run, RunContext, events
from halter.models.prices import FREE
from halter.models.scripted import Answer, Scripted
from halter.request import ModelRequest


class Notes:
    """Says its answers in turn, however the conversation stands; `told`: each request's messages."""

    name = "notes"
    price = FREE

    def __init__(self, *answers: str) -> None:
        self.answers = answers
        self.told: list[list[tuple[str, str]]] = []

    async def respond(self, request: ModelRequest, ctx: RunContext) -> Message:
        self.told.append([(message.role, message.text) for message in request.messages])
        reply = ctx.reply(ctx.allowance(request, self.price))
        await asyncio.sleep(0)
        reply.text(self.answers[min(len(self.told), len(self.answers)) - 1])
        return reply.finish()


def agent(name: str, *answers: Answer, pace: float = 1.0, **options: Any) -> Agent:
    """Says these in turn, a word a second."""
    return Agent(Scripted(*answers, pace=pace), name=name, **options)


def now() -> float:
    return asyncio.get_running_loop().time()


async def log_of(run: Run[Any]) -> list[events.Event]:
    return [event async for event in run.events()]


def said(messages: Any) -> list[tuple[str | None, str]]:
    """Who has said what."""
    return [(message.name, message.text) for message in spoken(messages)]


def spoken(messages: Any) -> list[Message]:
    """Without those that only tell of a stop before anything was said."""
    return [message for message in messages if message.parts]
