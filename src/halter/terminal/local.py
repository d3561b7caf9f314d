"""Agents in this process, on conversations that are kept in a database.

Runs live on Halter's background loop: a tool that blocks its loop cannot keep a key from being read.
"""

from __future__ import annotations

import asyncio
import getpass
import hashlib
import os
import platform
from collections.abc import Coroutine
from copy import copy
from pathlib import Path
from typing import Any, TypeVar

from halter.agent import Agent
from halter.compaction.settings import Compaction
from halter.core.held import held
from halter.core.ids import new_id
from halter.core.run import Run
from halter.core.runnable import Runnable
from halter.core.threads import background_loop
from halter.errors import SessionNotFound, UsageError
from halter.messages import Message
from halter.models.names import as_model
from halter.sessions import Sessions
from halter.sessions.records import Session
from halter.terminal.config import Config, data_directory
from halter.terminal.models import model_for
from halter.terminal.turn import Turn
from halter.tools.jobs import Jobs

T = TypeVar("T")
# Above two tokens everything but the last turn is summarised: that is what /compact asks for.
NOW = {"threshold": 2, "target": 1, "keep_turns": 1}


class LocalDesk:
    """See `Desk`. `runnable`: what answers."""

    def __init__(self, runnable: Runnable[Any], sessions: Sessions, config: Config) -> None:
        self.session = new_id()
        self._runnable = runnable
        self._sessions = sessions
        self._config = config
        self._user = _user()
        self._tag = directory_tag()
        self._compacts_next = False
        self._is_made = False

    @property
    def title(self) -> str:
        model = self.model
        return f"{self._runnable.name} · {model}" if model else self._runnable.name

    @property
    def model(self) -> str | None:
        return self._runnable.model_name

    # --- turns ----------------------------------------------------------------------------------------------

    async def start(self, turn: Turn) -> None:
        await self._make()
        runnable = self._compacting() if self._compacts_next else self._runnable
        self._compacts_next = False
        run = runnable.run(
            turn.message, session=self._sessions.session(self.session), user=self._user, cancellation=turn.token
        )
        turn.run = run
        await _in_background(_started(run))

    def _compacting(self) -> Runnable[Any]:
        if not isinstance(self._runnable, Agent):
            return self._runnable
        agent: Agent[Any] = copy(self._runnable)
        mine = agent.compaction
        agent.compaction = Compaction(mine.model if mine is not None else None, **NOW)  # type: ignore[arg-type]
        return agent

    async def _make(self) -> None:
        """The conversation is there with its first turn, and can be found by this directory."""
        if self._is_made:
            return
        try:
            await self._sessions.get(self.session)
        except SessionNotFound:
            await self._sessions.create(self.session, user=self._user, tags=(self._tag,))
        self._is_made = True

    async def answer(self, turn: Turn, request_id: str, value: Any, reason: str | None) -> None:
        if isinstance(turn.run, Run):
            turn.run.answer(request_id, value, reason=reason, by=self._user)

    async def steer(self, turn: Turn, text: str) -> bool:
        return isinstance(turn.run, Run) and turn.run.send(text)

    # --- what answers ---------------------------------------------------------------------------------------

    def use_model(self, name: str) -> None:
        if not isinstance(self._runnable, Agent):
            raise UsageError(f"{self._runnable.name!r} is a {self._runnable.kind}: its models are its own")
        agent: Agent[Any] = copy(self._runnable)
        agent.model = as_model(model_for(self._config, name))
        self._runnable = agent

    def tools(self) -> list[tuple[str, str]]:
        if not isinstance(self._runnable, Agent):
            return []
        return [(spec.name, spec.description) for spec in self._runnable.toolbox.specs]

    async def programs(self) -> list[str]:
        async def listed() -> list[str]:
            key = self._sessions.session(self.session).key
            return [f"{job.id}: {job.state}: {job.command}" for job in held(key, Jobs)]

        return await _in_background(listed())

    # --- conversations --------------------------------------------------------------------------------------

    async def history(self) -> tuple[Message, ...]:
        try:
            return await self._sessions.history(self.session, full=True)
        except SessionNotFound:
            return ()

    async def sessions(self, limit: int = 20) -> list[Session]:
        return await self._sessions.list(tag=self._tag, limit=limit)

    async def rewind(self, to: int) -> None:
        await self._sessions.rewind(self.session, to)

    async def fork(self) -> str:
        return (await self._sessions.fork(self.session)).id

    async def export(self) -> Any:
        return await self._sessions.export(self.session)

    async def facts(self) -> list[str]:
        return [fact.text for fact in await self._sessions.facts.list(self._user)]

    def open(self, id: str) -> None:
        """Goes on with another conversation."""
        self.session, self._is_made = id, False

    def compact_next(self) -> bool:
        """Compacts the conversation before the next request."""
        self._compacts_next = isinstance(self._runnable, Agent)
        return self._compacts_next

    async def aclose(self) -> None:
        await _in_background(self._sessions.end(self.session))


def sessions_for(config: Config) -> Sessions:
    """Where conversations are kept: as the settings say, else in the user's data directory."""
    if config.sessions:
        return Sessions(config.sessions)
    directory = data_directory()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Sessions(directory / "sessions.db")


def directory_tag() -> str:
    """How conversations of the current directory are marked."""
    place = os.fsencode(f"{platform.node()}:{Path.cwd()}")
    return f"dir:{hashlib.sha256(place).hexdigest()[:32]}"  # short, and a server learns no names of directories


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        return str(os.getuid())


async def _started(run: Run[Any]) -> None:
    run.start()


async def _in_background(coroutine: Coroutine[Any, Any, T]) -> T:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, background_loop()))
