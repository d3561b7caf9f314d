"""Agents of a server: the same chat over `halter.client`, whose streams are resumed after a lost connection."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from halter.client import Client, RemoteRun
from halter.core.ids import new_id
from halter.errors import ServerRefused, UsageError
from halter.messages import Message, Text
from halter.sessions.records import Session
from halter.terminal.local import directory_tag
from halter.terminal.turn import Turn

NOT_THERE = 404
TAKEN = 409


class RemoteDesk:
    """See `Desk`. `agent`: its name on the server."""

    def __init__(self, client: Client, agent: dict[str, Any]) -> None:
        self.session = new_id()
        self._client = client
        self._agent = str(agent["name"])
        self._model: str | None = agent.get("model")
        self._tag = directory_tag()
        self._is_made = False

    @property
    def title(self) -> str:
        named = f"{self._agent} · {self._model}" if self._model else self._agent
        return f"{named} · {self._client.url}"

    @property
    def model(self) -> str | None:
        return self._model

    # --- turns ----------------------------------------------------------------------------------------------

    async def start(self, turn: Turn) -> None:
        await self._make()
        if not all(isinstance(part, Text) for part in turn.message.parts):
            raise UsageError("pictures and documents cannot be sent to a server from here: mention text files only")
        text = "".join(part.text for part in turn.message.parts if isinstance(part, Text))
        run = turn.run = self._client.run(self._agent, text, session=self.session)
        stop = turn.token.cancellation
        if stop is not None:
            run.cancel(stop.message, reason=stop.reason, mode=stop.mode)
        run.start()

    async def _make(self) -> None:
        """The conversation is there with its first turn, and can be found by this directory."""
        if self._is_made:
            return
        try:
            await self._client.request("POST", "/v1/sessions", body={"id": self.session, "tags": [self._tag]})
        except ServerRefused as error:
            if error.status != TAKEN:
                raise
        self._is_made = True

    async def answer(self, turn: Turn, request_id: str, value: Any, reason: str | None) -> None:
        if isinstance(turn.run, RemoteRun):
            await turn.run.answer(request_id, value, reason=reason)

    async def steer(self, turn: Turn, text: str) -> bool:
        return isinstance(turn.run, RemoteRun) and await turn.run.send(text)

    # --- what answers ---------------------------------------------------------------------------------------

    def use_model(self, name: str) -> None:
        raise UsageError("the server's agents have models of their own")

    def tools(self) -> list[tuple[str, str]]:
        return []

    async def programs(self) -> list[str]:
        return []

    def compact_next(self) -> bool:
        return False

    # --- conversations --------------------------------------------------------------------------------------

    async def history(self) -> tuple[Message, ...]:
        try:
            found = await self._client.request("GET", f"/v1/sessions/{self.session}/messages", query={"full": "true"})
        except ServerRefused as error:
            if error.status == NOT_THERE:
                return ()
            raise
        return msgspec.convert(found["messages"], tuple[Message, ...])

    async def sessions(self, limit: int = 20) -> list[Session]:
        found = await self._client.request("GET", "/v1/sessions", query={"tag": self._tag, "limit": limit})
        fields = set(Session.__struct_fields__)
        known = [{name: value for name, value in each.items() if name in fields} for each in found["sessions"]]
        return msgspec.convert(known, list[Session])

    async def rewind(self, to: int) -> None:
        await self._client.request("POST", f"/v1/sessions/{self.session}/rewind", body={"to": to})

    async def fork(self) -> str:
        return str((await self._client.request("POST", f"/v1/sessions/{self.session}/fork", body={}))["id"])

    async def export(self) -> Any:
        return await self._client.request("GET", f"/v1/sessions/{self.session}/export")

    async def facts(self) -> list[str]:
        raise UsageError("the server knows its users' facts: GET /v1/users/{user}/facts")

    def open(self, id: str) -> None:
        self.session, self._is_made = id, False

    async def aclose(self) -> None:
        await self._client.aclose()


async def desk_at(url: str, agent: str) -> RemoteDesk:
    """The desk of one agent of a server; of its only one, if none is named. Raises `HalterError`."""
    client = Client(url, key=os.environ.get("HALTER_KEY"))
    found = (await client.agents())["agents"]
    named = [each for each in found if not agent or each["name"] == agent]
    if len(named) != 1:
        await client.aclose()
        there = ", ".join(each["name"] for each in found) or "none"
        raise UsageError(f"say which agent of {url} with --agent: there are {there}")
    return RemoteDesk(client, named[0])
