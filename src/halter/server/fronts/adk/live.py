"""`/run_live`: a session over a WebSocket, in text. Each message of the client starts a run; a new one interrupts it.

1. A frame that cannot be read is answered with an event that has an `errorCode`, and changes nothing. 2. When the
client has gone, all runs that its messages have started are stopped. 3. Sound and pictures that are streamed are not
supported, and said to be.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from typing import Annotated, NamedTuple

import msgspec
from fastapi import APIRouter, Query, WebSocket
from pydantic import ValidationError
from starlette.websockets import WebSocketDisconnect, WebSocketState

from halter.core.ids import new_id
from halter.errors import UsageError
from halter.server.fronts.adk.bodies import ContentBody, LiveBody, PartBody
from halter.server.fronts.adk.contents import answers_in
from halter.server.fronts.adk.errors import shown
from halter.server.fronts.adk.format import NO_ACTIONS, Wrapping
from halter.server.fronts.adk.runs import AdkRuns, Turn
from halter.server.fronts.adk.session_ids import AdkSession
from halter.server.fronts.adk.sessions import AdkSessions
from halter.server.guard import LARGEST_BODY
from halter.server.port import EventFeed
from halter.server.presence import connection_to
from halter.server.principal import Principal
from halter.server.problems import Problem, problem_of
from halter.server.server import Server
from halter.server.stream import opened_at

NORMAL, PROTOCOL = 1000, 1002
BARE = Wrapping(b"", b"")
_STREAMED = ("blob", "activity_start", "activity_end", "audio_stream_end")


def add_live(router: APIRouter, server: Server, sessions: AdkSessions, runs: AdkRuns) -> None:
    """Adds the route."""

    @router.websocket("/run_live")
    async def run_live(
        socket: WebSocket,
        user_id: str,
        session_id: str,
        app_name: str = "",
        modalities: Annotated[list[str] | None, Query()] = None,
    ) -> None:
        try:
            who = await server.principal(socket, "run")
            session = AdkSession(runs.app(app_name), user_id, session_id)
            _refuse_sound(modalities)
            server.usage.check_streams(who.tenant)
        except Problem as problem:
            await socket.send_denial_response(shown(problem))
            return
        await socket.accept()
        try:
            sessions.check_app(session.app)
            await sessions.find(who, session)
        except Problem as problem:
            await socket.close(PROTOCOL, problem.detail[:100])
            return
        with server.usage.stream(who.tenant), server.metrics.stream():
            await _Conversation(server, sessions, runs, who, session, socket).run()


def _refuse_sound(modalities: list[str] | None) -> None:
    asked = {each.upper() for each in modalities or ()}
    if asked - {"TEXT"}:
        raise Problem(501, f"{sorted(asked)} is not supported: connect with modalities=TEXT", code="unsupported")


class _Showing(NamedTuple):
    """A turn that is shown, or will be. `held`: the client's connection to its run, and the feed."""

    turn: Turn
    feed: EventFeed
    held: ExitStack


class _Conversation:
    """One client's connection to one session."""

    def __init__(
        self,
        server: Server,
        sessions: AdkSessions,
        runs: AdkRuns,
        who: Principal,
        session: AdkSession,
        socket: WebSocket,
    ) -> None:
        self._server = server
        self._sessions = sessions
        self._runs = runs
        self._who = who
        self._session = session
        self._socket = socket
        self._said: list[PartBody] = []  # of a message whose end has not come
        self._size = 0  # of its frames, in bytes
        self._showings: asyncio.Queue[_Showing] = asyncio.Queue()

    async def run(self) -> None:
        """Until the client has gone, or says that it goes."""
        down = asyncio.ensure_future(self._send_turns())
        up = asyncio.ensure_future(self._read_frames())
        try:
            await asyncio.wait((down, up), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (down, up):
                task.cancel()
            await asyncio.wait((down, up))
            while not self._showings.empty():
                self._showings.get_nowait().held.close()
        if self._socket.client_state is WebSocketState.CONNECTED:
            await self._socket.close(NORMAL)

    # --- down -----------------------------------------------------------------------------------------------

    async def _send_turns(self) -> None:
        while True:
            showing = await self._showings.get()
            with showing.held:
                try:
                    await self._send_turn(showing.turn, showing.feed)
                except WebSocketDisconnect:
                    return

    async def _send_turn(self, turn: Turn, feed: EventFeed) -> None:
        format = self._runs.format(turn, streaming=True, is_live=True, wrapping=BARE)
        opening = await opened_at(feed, turn.cursor)
        format.snapshot(opening.snapshot, gap=opening.gap)
        while found := await feed.next_batch():
            for event in found:
                if data := format.batch((event,)):
                    await self._socket.send_text(data.decode())

    # --- up -------------------------------------------------------------------------------------------------

    async def _read_frames(self) -> None:
        while True:
            try:
                message = await self._socket.receive()
            except WebSocketDisconnect:
                return
            if message["type"] == "websocket.disconnect":
                return
            try:
                data = message.get("text") or message.get("bytes") or b""
                body = LiveBody.model_validate_json(data)
                if body.close:
                    return
                await self._act(body, len(data))
            except Exception as error:  # every frame that cannot be used has an answer
                await self._socket.send_text(self._error(problem_of(_readable(error))))

    async def _act(self, body: LiveBody, size: int) -> None:
        if streamed := [name for name in _STREAMED if getattr(body, name) not in (None, False)]:
            raise Problem(501, f"{streamed[0]} is not supported: send text as content", code="unsupported")
        if body.content is None:
            await self._sessions.change_state(self._who, self._session, body.state_delta or {})
            return
        self._keep(body.content.parts, size)
        if body.partial:
            return
        content = ContentBody(role=body.content.role, parts=self._said)
        self._forget()
        turn = await self._runs.say(self._who, self._session, content, state_delta=body.state_delta, interrupts=True)
        if not answers_in(content):
            await self._show(turn)

    def _keep(self, parts: list[PartBody], size: int) -> None:
        """Adds to the message that is being said. Raises `Problem` 413 if it grows larger than a body may be."""
        self._size += size
        if self._size > LARGEST_BODY:
            self._forget()
            raise Problem(413, f"the message is larger than {LARGEST_BODY} bytes", code="too_large")
        self._said += parts

    def _forget(self) -> None:
        self._said, self._size = [], 0

    async def _show(self, turn: Turn) -> None:
        """Has the turn shown after those before it; from here on the client's leaving stops its run."""
        held = ExitStack()
        held.enter_context(connection_to(self._server.store.presence(turn.key)))
        feed = await self._server.feed(turn.key)
        if feed is not None:
            held.callback(feed.close)
            self._showings.put_nowait(_Showing(turn, feed, held))

    def _error(self, problem: Problem) -> str:
        names = self._session.names(self._server.names(self._who.tenant))
        event = {
            "errorCode": problem.code,
            "errorMessage": names.in_text(problem.detail),
            "author": self._session.app,
            "actions": NO_ACTIONS,
            "id": new_id(),
            "timestamp": time.time(),
        }
        return msgspec.json.encode(event).decode()


def _readable(error: Exception) -> Exception:
    """What a client's frame did wrong, as a usage error."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return UsageError(f"the frame cannot be read: {'.'.join(map(str, first['loc']))}: {first['msg']}")
    return error
