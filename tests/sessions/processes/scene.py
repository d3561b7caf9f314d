"""A session, and processes that each have a run on it, one after the other or at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from halter.messages import Message, ToolResult
from halter.sessions import RunRecord, Sessions
from halter.testing.wire_probe import WireProbe

from ...agents.conversations import bodies_of, check_by_sdk, check_history
from .children import Child, Mother
from .mother import Job
from .recordings import ANSWERS

SESSION = "alice-42"


class Scene:
    """Who is on stage has a name: that of its run, and of what it says."""

    def __init__(self, where: str, wire: WireProbe, mother: Mother, session: str = SESSION) -> None:
        self.where = where
        self._session = session
        self.wire = wire
        self._mother = mother

    def start(self, name: str, *modes: str, **options: Any) -> Child:
        """A process with a run of this name, whose requests are answered by these modes in turn."""
        urls = tuple(self.wire.wire.url(how, tag=f"{self.wire.tag}.{name}") for how in modes)
        return self._mother.start(
            Job(where=self.where, session=self._session, run_id=name, input=f"I am {name}.", urls=urls, **options)
        )

    def requests(self, name: str) -> int:
        return len(self.wire.wire.requests(f"{self.wire.tag}.{name}"))

    def history(self) -> tuple[Message, ...]:
        """As the next process finds it; it is valid for every provider."""
        said = asyncio.run(self._history())
        check_history(said)
        check_by_sdk(bodies_of(said))
        return said

    async def _history(self) -> tuple[Message, ...]:
        async with Sessions(self.where) as chats:
            return await chats.history(self._session, full=True)

    def record(self, name: str) -> RunRecord:
        found = asyncio.run(self._record(name))
        assert found is not None
        return found

    async def _record(self, name: str) -> RunRecord | None:
        async with Sessions(self.where) as chats:
            return await chats.run(name)


def users_in(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages if message.role == "user"]


def results_in(messages: Sequence[Message]) -> list[str]:
    return [part.content for message in messages for part in message.parts if isinstance(part, ToolResult)]


def said_by(name: str) -> str:
    return "".join(f"{word} " for word in ANSWERS[name].text.split())
