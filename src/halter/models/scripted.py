"""`Scripted`: a model without a provider. It says what it was told to, word by word: for tests, demos and examples."""

from __future__ import annotations

import asyncio
import re
from typing import Any, TypeAlias

import msgspec

from halter import events
from halter.core.context import RunContext
from halter.core.ids import new_id
from halter.core.reply import Reply
from halter.core.settings import seconds
from halter.errors import ConfigurationError
from halter.messages import Message, ToolCall, Usage
from halter.models.prices import FREE, Price
from halter.request import ModelRequest

SHORTEST = 0.001  # seconds that every event loop can wait: uvloop takes less for nothing
Answer: TypeAlias = str | ToolCall | tuple[str | ToolCall, ...]


def calls(name: str, /, **arguments: Any) -> ToolCall:
    """A call of a tool, as a part of a scripted answer; it gets an id of its own each time."""
    return ToolCall("", name, msgspec.json.encode(arguments).decode())


class Scripted:
    """Answers with `answers` in turn: the n-th answer of a conversation is the n-th of them, the last one repeats.

    An answer is a text, a call of a tool (`calls("weather", city="Paris")`), or several of them. `pace`: seconds
    between words. It keeps no state: which answer is due is seen from the conversation, so one object serves any number
    of runs. Raises `ConfigurationError` if there is no answer.
    """

    def __init__(self, *answers: Answer, pace: float = 0.0) -> None:
        scripts = tuple(answer if isinstance(answer, tuple) else (answer,) for answer in answers)
        if not scripts or not all(isinstance(part, str | ToolCall) for script in scripts for part in script):
            raise ConfigurationError("a scripted model needs one or more answers: texts, and calls of tools")
        self._answers = scripts
        self._pace = seconds("pace", pace) or 0.0

    @property
    def name(self) -> str:
        return "scripted"

    @property
    def price(self) -> Price:
        return FREE

    async def respond(self, request: ModelRequest, ctx: RunContext) -> Message:
        """Streams the answer that is due. Cancellation-safe: stops at the word it is at."""
        ctx.token.raise_if_cancelled()
        reply = ctx.reply(ctx.allowance(request, self.price))
        ctx.write(
            events.ModelRequested,
            model=self.name,
            attempt=1,
            request_id=new_id(),
            message_id=reply.message_id,
        )
        said = 0
        reply.assembly.finish_reason = "stop"
        for at, part in enumerate(self._due(request)):
            if isinstance(part, ToolCall):
                await asyncio.sleep(self._pace)
                reply.tool_fragment(at, part.id or new_id(), part.name, part.arguments)
                reply.assembly.finish_reason = "tool_calls"
            else:
                said += await self._say(part, reply, ctx)
        reply.assembly.usage = Usage(input=sum(len(_words(m.text)) for m in request.messages), output=said)
        return reply.finish()

    async def _say(self, text: str, reply: Reply, ctx: RunContext) -> int:
        """Word by word; how many there were."""
        words = _words(text)
        owed = 0.0
        for word in words:
            owed += self._pace
            slept = owed if owed >= SHORTEST else 0.0
            await asyncio.sleep(slept)
            owed -= slept
            reply.text(word)
            await ctx.drain()
        return len(words)

    def _due(self, request: ModelRequest) -> tuple[str | ToolCall, ...]:
        given = sum(message.role == "assistant" for message in request.messages)
        return self._answers[min(given, len(self._answers) - 1)]

    def __repr__(self) -> str:
        shown = (repr(script[0] if len(script) == 1 else script) for script in self._answers)
        return f"Scripted({', '.join(shown)})"


def _words(text: str) -> list[str]:
    """The text in words, each with the space that follows it: joined again, it is the same."""
    return re.findall(r"\s*\S+\s*", text) or ([text] if text else [])
