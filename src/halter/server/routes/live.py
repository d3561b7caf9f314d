"""A run over a WebSocket: its events come down, and stops, answers and messages go up.

A frame that cannot be read is answered with an error and changes nothing; the next one is read as always.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec
from fastapi import APIRouter, WebSocket
from pydantic import ValidationError
from starlette.websockets import WebSocketDisconnect, WebSocketState

from halter import events
from halter.errors import UsageError
from halter.messages import Message
from halter.server.bodies import AnswerBody, CancelBody, MessageBody
from halter.server.port import EventFeed, RunKey
from halter.server.presence import connection_to
from halter.server.principal import Principal
from halter.server.problems import Problem, problem_of
from halter.server.run_stream import no_run
from halter.server.server import Server
from halter.server.stream import cursor_of, opened_at

NORMAL, POLICY, BUSY = 1000, 1008, 1013


def live_router(server: Server) -> APIRouter:
    """`/v1/runs/{id}/live`."""
    router = APIRouter()

    @router.websocket("/v1/runs/{id}/live")
    async def live(socket: WebSocket, id: str) -> None:
        await socket.accept()
        try:
            who = await server.principal(socket, "read")
            key = RunKey(who.tenant, id)
            feed = await server.store.feed(key)
            if feed is None:
                raise no_run(id)
            server.usage.check_streams(who.tenant)
        except Problem as problem:
            await _refuse(socket, problem)
            return
        with (
            connection_to(server.store.presence(key)),
            server.usage.stream(who.tenant),
            server.metrics.stream(),
        ):
            await _Conversation(server, who, key, feed, socket).run()

    return router


async def _refuse(socket: WebSocket, problem: Problem) -> None:
    await socket.send_text(_error(problem))
    await socket.close(BUSY if problem.status == 429 else POLICY, problem.detail[:100])


class _Frame(msgspec.Struct):
    """What a client sends: its type, and the fields of the body of the route that does the same."""

    type: Literal["cancel", "input", "message", "ping"]


class _Conversation:
    """One client's connection to one run."""

    def __init__(self, server: Server, who: Principal, key: RunKey, feed: EventFeed, socket: WebSocket) -> None:
        self._server = server
        self._who = who
        self._key = key
        self._feed = feed
        self._socket = socket

    async def run(self) -> None:
        """Until the run is over or the client has gone."""
        down = asyncio.ensure_future(self._send_events())
        up = asyncio.ensure_future(self._read_frames())
        try:
            await asyncio.wait((down, up), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (down, up):
                task.cancel()
            self._feed.close()
            await asyncio.wait((down, up))
        if self._socket.client_state is WebSocketState.CONNECTED and down.done() and not down.cancelled():
            await self._socket.close(NORMAL)

    async def _send_events(self) -> None:
        opening = await opened_at(self._feed, cursor_of(self._socket))
        cursor = f"{self._feed.epoch}.{opening.snapshot.seq}"
        names = self._server.names(self._who.tenant)
        state = {"type": "snapshot", "cursor": cursor, **msgspec.structs.asdict(names.in_snapshot(opening.snapshot))}
        if opening.gap is not None:
            await self._send(events.encode_any({"type": "gap", "from": opening.gap[0], "to": opening.gap[1]}))
        await self._send(events.encode_any(state))
        while not opening.at_end and (found := await self._feed.next_batch()):
            for event in found:
                await self._send(events.encode(names.in_event(event)))

    async def _send(self, data: bytes) -> None:
        await self._socket.send_text(data.decode())

    async def _read_frames(self) -> None:
        while True:
            try:
                message = await self._socket.receive()
            except WebSocketDisconnect:
                return
            if message["type"] == "websocket.disconnect":
                return
            data = message.get("text") or message.get("bytes") or b""
            try:
                await self._act(data.encode() if isinstance(data, str) else data)
            except Exception as error:  # every frame has an answer
                await self._socket.send_text(_error(problem_of(_readable(error))))

    async def _act(self, data: bytes) -> None:
        kind = msgspec.json.decode(data, type=_Frame).type
        fields: dict[str, Any] = msgspec.json.decode(data)
        del fields["type"]
        act: Callable[[dict[str, Any]], Awaitable[None]] = getattr(self, f"_{kind}")
        await act(fields)

    async def _ping(self, _: dict[str, Any]) -> None:
        await self._send(b'{"type":"pong"}')

    async def _cancel(self, fields: dict[str, Any]) -> None:
        self._must("stop")
        body = CancelBody.model_validate(fields)
        stop = self._server.cancellation(self._who, mode=body.mode, reason=body.reason, message=body.message)
        answer = await self._server.store.cancel(self._key, stop, if_epoch=body.if_epoch)
        self._server.record_stop(self._who, self._key, stop, answer)
        if answer is not None and answer.wrong_epoch:
            raise Problem(412, f"run {self._key.id!r} is of epoch {answer.info.epoch}", code="wrong_epoch")

    async def _input(self, fields: dict[str, Any]) -> None:
        self._must("run")
        body = AnswerBody.model_validate(fields)
        by = self._who.actor
        if not await self._server.store.answer(self._key, body.request_id, body.answer, reason=body.reason, by=by):
            raise Problem(409, f"there is no open question {body.request_id!r}", code="no_such_question")
        self._server.record(self._who, "run.input", self._key.id, "answered", message=body.request_id)

    async def _message(self, fields: dict[str, Any]) -> None:
        self._must("run")
        body = MessageBody.model_validate(fields)
        if not await self._server.store.send(self._key, Message.user(body.text)):
            raise Problem(409, f"run {self._key.id!r} is over or being stopped", code="not_live")
        self._server.record(self._who, "run.message", self._key.id, "accepted")

    def _must(self, scope: str) -> None:
        if scope not in self._who.scopes:
            raise Problem(403, f"this key lacks the scope {scope!r}", code="forbidden")


def _readable(error: Exception) -> Exception:
    """What a client's frame did wrong, as a usage error."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return UsageError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
    return UsageError(f"the frame cannot be read: {error}") if isinstance(error, msgspec.DecodeError) else error


def _error(problem: Problem) -> str:
    """The problem as a frame."""
    fields = {"type": "error", "status": problem.status, "code": problem.code, "detail": problem.detail}
    return msgspec.json.encode(fields).decode()
