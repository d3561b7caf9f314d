"""The one interface between the chat and what answers in it: agents in this process, or on a server."""

from __future__ import annotations

from typing import Any, Protocol

from halter.messages import Message
from halter.sessions.records import Session
from halter.terminal.turn import Turn


class Desk(Protocol):
    """What answers. Called on the terminal's own loop; `session` is the id of the conversation that is open."""

    session: str

    @property
    def title(self) -> str:
        """Who answers, with its model."""
        ...

    @property
    def model(self) -> str | None: ...

    async def start(self, turn: Turn) -> None:
        """Makes the turn's run, and starts it. Raises `HalterError`."""
        ...

    async def answer(self, turn: Turn, request_id: str, value: Any, reason: str | None) -> None:
        """Answers a question; `reason`: why not. Raises `HalterError`."""
        ...

    async def steer(self, turn: Turn, text: str) -> bool:
        """Has the run take this in at its next step. False if it is over."""
        ...

    def use_model(self, name: str) -> None:
        """Another model answers from now on. Raises `HalterError`."""
        ...

    def tools(self) -> list[tuple[str, str]]:
        """The tools' names and descriptions."""
        ...

    async def programs(self) -> list[str]:
        """What runs in the background of this conversation."""
        ...

    async def history(self) -> tuple[Message, ...]:
        """What was said, all of it; empty for a conversation that has not begun."""
        ...

    async def sessions(self, limit: int = 20) -> list[Session]:
        """Conversations of this directory, the one that was used last first."""
        ...

    async def rewind(self, to: int) -> None:
        """Takes back all but the first messages."""
        ...

    async def fork(self) -> str:
        """Another conversation that begins as this one did; its id."""
        ...

    async def export(self) -> Any:
        """The conversation as data."""
        ...

    async def facts(self) -> list[str]:
        """What is known of you."""
        ...

    def open(self, id: str) -> None:
        """Goes on with another conversation."""
        ...

    def compact_next(self) -> bool:
        """Compacts the conversation before the next request. False where that cannot be asked for."""
        ...

    async def aclose(self) -> None:
        """Ends what the conversation holds in this process."""
        ...
