"""Crews for these tests: scripted members, and a model that remembers what it was asked."""

from __future__ import annotations

from typing import Any

from halter.core.context import RunContext
from halter.core.ports import Model
from halter.crews import Crew, Member, Task
from halter.messages import Message, ToolCall
from halter.models.scripted import Answer, Scripted
from halter.request import ModelRequest


class Asked(Scripted):
    """A scripted model that keeps the requests it has had."""

    def __init__(self, *answers: Answer, pace: float = 0.0) -> None:
        super().__init__(*answers, pace=pace)
        self.requests: list[ModelRequest] = []

    async def respond(self, request: ModelRequest, ctx: RunContext) -> Message:
        self.requests.append(request)
        return await super().respond(request, ctx)

    @property
    def prompts(self) -> list[str]:
        """The last thing said in each request."""
        return [request.messages[-1].text for request in self.requests]


def member(name: str, *answers: Answer | Model, pace: float = 0.0, **options: Any) -> Member:
    """A member that says these, or has this model."""
    [*_, model] = answers
    if isinstance(model, str | ToolCall | tuple):
        model = Scripted(*answers, pace=pace)  # pyright: ignore[reportArgumentType]
    return Member(model, **{"role": name, "goal": "be tested", "name": name, **options})


def pair(pace: float = 0.0, **options: Any) -> Crew:
    """Two tasks of three words each, on a `{topic}`."""
    research = Task(description="Research {topic}.", name="research", agent=member("ann", "one two three", pace=pace))
    write = Task(description="Write on {topic}.", name="write", agent=member("bob", "four five six", pace=pace))
    return Crew([research, write], **options)
