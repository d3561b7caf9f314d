"""Agents over providers in memory, whose conversations are too long."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from halter import Agent, Run, RunResult, events
from halter.compaction import Compaction
from halter.core.ports import HttpRequest
from halter.messages import Message
from halter.models import OpenAIChat
from halter.testing import Answer, MemorySource
from halter.testing.memory import chat_stream

from .talk import long_talk

ASKED = "And what now?"
SUMMARY = "They talked about questions and answers."
HISTORY = long_talk(10)  # 4,800 tokens
WINDOW = 5_500


def model(source: MemorySource, name: str = "m", **options: Any) -> OpenAIChat:
    return OpenAIChat(name, base_url="https://provider.test/v1", api_key="sk-1234", source=source, **options)


def summarising(*answers: Answer) -> MemorySource:
    """Gives a summary whenever it is asked for one, and else these answers in turn."""
    left = list(answers)

    def answer(request: HttpRequest) -> Answer:
        return summary() if b"<conversation>" in request.body else left.pop(0)

    return MemorySource(answer, repeat=True)


def agent(source: MemorySource, compaction: Compaction | None = None, **options: Any) -> Agent[Any]:
    return Agent(model(source), compaction=compaction or Compaction(window=WINDOW), **options)


def summary(text: str = SUMMARY, **options: Any) -> Answer:
    return chat_stream(text, **options)


def too_long(message: str = "Please reduce the length of the messages or completion.") -> Answer:
    body = json.dumps({"error": {"message": message, "type": "invalid_request_error"}}).encode()
    return Answer(status=400, headers={"content-type": "application/json"}, body=((0.0, body),))


async def log_of(run: Run[Any]) -> list[events.Event]:
    return [event async for event in run.events()]


def compactions(log: Sequence[events.Event]) -> list[events.Event]:
    return [event for event in log if isinstance(event, events.CompactionStarted | events.CompactionFinished)]


def finished(log: Sequence[events.Event]) -> events.CompactionFinished:
    (event,) = (event for event in log if isinstance(event, events.CompactionFinished))
    return event


def said_in(request: HttpRequest | Any) -> list[str]:
    """What stands in the messages of a request."""
    return [str(message["content"]) for message in request.json["messages"]]


def is_for_a_summary(request: Any) -> bool:
    (said, *more) = said_in(request)
    return not more and "<conversation>" in said


def unchanged(result: RunResult[Any], history: Sequence[Message] = HISTORY) -> bool:
    """Whether the conversation is what was said, word for word."""
    return list(result.messages[: len(history) + 1]) == [*history, Message.user(ASKED)]
