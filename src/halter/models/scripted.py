"""`Scripted`: a model without a provider. It says what it was told to, word by word: for tests, demos and examples."""

from __future__ import annotations

import asyncio
import re

from halter import events
from halter.core.context import RunContext
from halter.core.ids import new_id
from halter.core.settings import seconds
from halter.errors import ConfigurationError
from halter.messages import Message, Usage
from halter.models.prices import FREE, Price
from halter.request import ModelRequest


class Scripted:
    """Answers with `answers` in turn: the n-th answer of a conversation is the n-th text, the last one repeats.

    `pace`: seconds between words. It keeps no state: which answer is due is seen from the conversation, so one object
    serves any number of runs. Raises `ConfigurationError` if there is no answer.
    """

    def __init__(self, *answers: str, pace: float = 0.0) -> None:
        if not answers or not all(isinstance(answer, str) for answer in answers):
            raise ConfigurationError("a scripted model needs one or more answers, as text")
        self._answers = answers
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
        words = _words(self._due(request))
        for word in words:
            await asyncio.sleep(self._pace)
            reply.text(word)
            await ctx.drain()
        reply.assembly.finish_reason = "stop"
        reply.assembly.usage = Usage(input=sum(len(_words(m.text)) for m in request.messages), output=len(words))
        return reply.finish()

    def _due(self, request: ModelRequest) -> str:
        given = sum(message.role == "assistant" for message in request.messages)
        return self._answers[min(given, len(self._answers) - 1)]

    def __repr__(self) -> str:
        return f"Scripted({', '.join(map(repr, self._answers))})"


def _words(text: str) -> list[str]:
    """The text in words, each with the space that follows it: joined again, it is the same."""
    return re.findall(r"\s*\S+\s*", text) or ([text] if text else [])
