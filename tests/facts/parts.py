"""What the tests of facts share: facts, and models that learn."""

from __future__ import annotations

import json
from typing import Any

from halter import RunResult, runtime
from halter.core.context import RunContext
from halter.facts import Learned
from halter.messages import Message
from halter.models.scripted import Answer, Scripted
from halter.request import ModelRequest
from halter.sessions import Sessions
from halter.sessions.memory import MemoryStore
from halter.sessions.place import SessionRef
from halter.sessions.records import Fact, FactScope

ANN = FactScope("session", "ann")


def fact(text: str, id: str = "", **more: Any) -> Fact:
    return Fact(id=id or text, text=text, scope=ANN, **more)


def changes(*add: str, replace: list[Any] | None = None, forget: list[int] | None = None) -> str:
    """What a model answers that learns. `replace`: pairs of numbers and a text."""
    replaced = [{"facts": numbers, "by": by} for numbers, by in replace or []]
    return json.dumps({"add": add, "replace": replaced, "forget": forget or []}, ensure_ascii=False)


class Asked(Scripted):
    """A scripted model that keeps the requests it has had, and says its answers in turn, over all conversations."""

    def __init__(self, *answers: Answer, pace: float = 0.0) -> None:
        super().__init__(*answers, pace=pace)
        self.requests: list[ModelRequest] = []

    async def respond(self, request: ModelRequest, ctx: RunContext) -> Message:
        self.requests.append(request)
        return await super().respond(request, ctx)

    def _due(self, request: ModelRequest) -> Any:
        return self._answers[min(len(self.requests), len(self._answers)) - 1]

    @property
    def data(self) -> list[Any]:
        """What each request was about: the known facts by number, and what was said."""
        asked = [json.loads(request.messages[1].text) for request in self.requests]
        return [
            (
                [each["fact"] for each in one["known"]],
                [(each["by"], each["text"]) for each in one["conversation"]],
            )
            for one in asked
        ]


class Kept:
    """Sessions in memory, and what is known by them."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.chats = Sessions(self.store)

    def session(self, id: str) -> SessionRef:
        return self.chats.session(id)

    async def known(self, scope: FactScope = ANN) -> list[str]:
        """By text, the newest last."""
        return [fact.text for fact in reversed(await self.store.facts(scope))]

    async def put(self, *facts: Fact) -> None:
        await self.store.change_facts(ANN, put=facts)

    async def said(self, session_id: str = "ann") -> list[Message]:
        found = await self.store.load(session_id, full=True)
        return [] if found is None else list(found.messages)


async def learned() -> list[RunResult[Learned]]:
    """Waits for those that learn."""
    return [await run.finished() for run in runtime().runs(tag="memory")]
