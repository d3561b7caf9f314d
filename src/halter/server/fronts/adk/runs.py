"""ADK's requests as runs: started, continued with an answer, streamed, collected and cancelled."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary

from starlette.requests import Request
from starlette.responses import Response

from halter import events
from halter.events import Event
from halter.outcome import RunStatus
from halter.server.bodies import StartBody
from halter.server.fronts.adk.bodies import ContentBody, ResponseBody, RunBody
from halter.server.fronts.adk.contents import Json, answers_in, user_message
from halter.server.fronts.adk.format import AdkFormat
from halter.server.fronts.adk.session_ids import AdkSession, user_id
from halter.server.fronts.adk.sessions import AdkSessions
from halter.server.fronts.front import asked_of
from halter.server.port import EventFeed, Opening, RunFilter, RunInfo, RunKey
from halter.server.presence import Presence
from halter.server.principal import Principal
from halter.server.problems import Problem
from halter.server.run_stream import CountedStream, no_run
from halter.server.server import MOST_AT_ONCE, Server
from halter.server.starting import start, while_connected
from halter.server.stream import ANSWERED_WITHIN, Cursor, opened_at

STOP_IS_WAITED_FOR = 5.0  # seconds
START = Cursor(0)


class Turn(NamedTuple):
    """A run that a request has started or continued.

    `cursor`: what its client has seen of it already. `still_asked`: questions that it has left open: they are all that
    it is shown.
    """

    key: RunKey
    session: AdkSession
    cursor: Cursor
    still_asked: tuple[events.InputRequested, ...] = ()


class AdkRuns:
    """What the routes of ADK do with the runs of a server."""

    def __init__(self, server: Server, sessions: AdkSessions) -> None:
        self._server = server
        self._sessions = sessions
        self._shown: WeakKeyDictionary[Presence, int] = WeakKeyDictionary()  # the last event before a pause

    # --- begun ----------------------------------------------------------------------------------------------

    async def begin(self, who: Principal, body: RunBody) -> Turn:
        """The run that the request starts, or answers. Raises `Problem`; then nothing was started."""
        if body.invocation_id is not None:
            raise Problem(501, "resuming an invocation is not supported: send a new message", code="unsupported")
        if body.new_message is None:
            raise Problem(400, "newMessage is missing", code="invalid")
        session = AdkSession(self.app(body.app_name), body.user_id, body.session_id)
        return await self.say(who, session, body.new_message, state_delta=body.state_delta)

    async def say(
        self,
        who: Principal,
        session: AdkSession,
        content: ContentBody,
        *,
        state_delta: Mapping[str, Any] | None = None,
        interrupts: bool = False,
    ) -> Turn:
        """Gives the message to a run of the session: an answer to the one that asked for it, any other to a new one.

        `interrupts`: a live run on the session is stopped for it; else it is waited for, unless it waits for an answer
        itself. Raises `Problem`; then nothing was started.
        """
        self._sessions.check_app(session.app)
        found = await self._sessions.find(who, session)
        holder = await self._server.store.get(RunKey(who.tenant, found.holder)) if found.holder else None
        if answers := answers_in(content):
            return await self._answer(who, session, holder, answers)
        _, input = asked_of(self._server.runnable(session.app), [user_message(content)])
        if state_delta:
            await self._sessions.change_state(who, session, state_delta)
        is_asking = holder is not None and holder.status is RunStatus.WAITING
        body = StartBody.model_validate(
            {
                "agent": session.app,
                "input": input,
                "session": session.stored,
                "user": user_id(session.user),
                "on_disconnect": "cancel",
                "on_busy": "interrupt" if interrupts or is_asking else "enqueue",
            }
        )
        begun = await start(self._server, body, who, is_waiting=True)
        return Turn(begun.info.plan.key, session, START)

    def app(self, name: str | None) -> str:
        """The app of a request; one that names none means the only one. Raises `Problem` 400 if there are several."""
        if name:
            return name
        if len(self._server.runnables) > 1:
            raise Problem(400, "appName is missing, and more than one app is served", code="invalid")
        return next(iter(self._server.runnables))

    async def _answer(
        self, who: Principal, session: AdkSession, holder: RunInfo | None, answers: Sequence[ResponseBody]
    ) -> Turn:
        asked = {each.request_id for each in holder.inputs} if holder is not None else set[str]()
        unknown = [answer.id for answer in answers if answer.id not in asked]
        if holder is None or unknown:
            detail = f"session {session.id!r} has no open question {unknown[0]!r}"
            raise Problem(400, detail, code="no_such_question")
        key = holder.plan.key
        questions = await self._questions(key, asked)
        shown = self._shown_of(key)
        for answer in answers:
            if not await self._server.store.answer(key, str(answer.id), _value_of(answer), by=who.actor):
                raise Problem(400, f"question {answer.id!r} was answered already", code="no_such_question")
            self._server.record(who, "run.input", key.id, "answered", message=answer.id)
        answered = {answer.id for answer in answers}
        first = min(event.seq for event in questions if event.request_id in answered)
        left = tuple(event for event in questions if event.request_id not in answered)
        return Turn(key, session, Cursor(first if shown is None else shown), left)

    async def _questions(self, key: RunKey, ids: set[str]) -> list[events.InputRequested]:
        """The events by which these questions were asked."""
        feed = await self._server.feed(key)
        if feed is None:
            raise no_run(key.id)
        asked: list[events.InputRequested] = []
        try:
            await feed.open(0)
            while len(asked) < len(ids) and (found := await feed.next_batch()):
                asked += [each for each in found if isinstance(each, events.InputRequested) and each.request_id in ids]
        finally:
            feed.close()
        return asked

    def _shown_of(self, key: RunKey) -> int | None:
        """The last event of the run that was shown before its client was asked, if it is known."""
        presence = self._server.store.presence(key)
        return None if presence is None else self._shown.get(presence)

    # --- shown ----------------------------------------------------------------------------------------------

    async def stream(self, turn: Turn, format: AdkFormat) -> Response:
        """The events of the turn as a stream, until it is over or asks something."""
        feed = await self._feed(turn)
        presence = self._server.store.presence(turn.key)
        return CountedStream(
            self._server, turn.key.tenant, feed, presence, format, run_id=turn.key.id, cursor=turn.cursor
        )

    async def collect(self, turn: Turn, format: AdkFormat, request: Request) -> Response:
        """The events of the turn as a list, once it is over or asks something. Raises `Problem` 500 if it failed."""
        feed = await self._feed(turn)
        reading = _lines(feed, turn.cursor, format)
        lines = await while_connected(
            self._server,
            turn.key,
            request.receive,
            reading,
            expected_within=lambda: ANSWERED_WITHIN if format.is_paused else None,
        )
        if lines is None:
            return Response(status_code=499)  # nobody is there to read it
        info = await self._server.store.get(turn.key)
        if info is not None and info.error is not None:
            raise Problem(500, f"{info.error.type}: {info.error.message}", code=info.error.type)
        headers = {"Halter-Run-Id": turn.key.id, "Cache-Control": "no-store"}
        return Response(b"[%s]" % b",".join(lines.splitlines()), 200, headers, "application/json")

    async def _feed(self, turn: Turn) -> EventFeed:
        feed = await self._server.feed(turn.key)
        if feed is None:
            raise no_run(turn.key.id)
        return OnlyThese(feed, turn.still_asked) if turn.still_asked else feed

    def format(self, turn: Turn, *, streaming: bool, **options: Any) -> AdkFormat:
        """How the turn is shown to its client. `options`: those of `AdkFormat`."""
        names = turn.session.names(self._server.names(turn.key.tenant))
        presence = self._server.store.presence(turn.key)

        def note(seq: int) -> None:
            if presence is not None:
                self._shown[presence] = max(seq, self._shown.get(presence, 0))

        return AdkFormat(names, app=turn.session.app, streaming=streaming, on_paused=note, **options)

    # --- stopped --------------------------------------------------------------------------------------------

    async def cancel(self, who: Principal, session: AdkSession) -> Json:
        """Stops the live runs of the session. Raises `Problem` 404 if it is unknown or has none."""
        self._sessions.check_app(session.app)
        await self._sessions.find(who, session)
        stop = self._server.cancellation(who, mode="immediate", reason="user_stop", message=None)
        which = RunFilter(tenant=who.tenant, session=session.stored, limit=MOST_AT_ONCE)
        stopped: list[RunKey] = []
        for info in await self._server.store.list(which):
            if info.is_live:
                answer = await self._server.store.cancel(info.plan.key, stop)
                self._server.record_stop(who, info.plan.key, stop, answer)
                stopped += [info.plan.key] if answer is not None and answer.in_force else []
        if not stopped:
            raise Problem(404, f"Session {session.id} has no active run", code="not_live")
        ends = [await self._server.store.wait(key, STOP_IS_WAITED_FOR) for key in stopped]
        is_over = all(info is None or info.status.is_final for info in ends)
        return {"status": "cancelled" if is_over else "cancelling", "runIds": [key.id for key in stopped]}


class OnlyThese:
    """A feed of events that are known, in the state of another feed."""

    def __init__(self, feed: EventFeed, found: Sequence[Event]) -> None:
        self.epoch = feed.epoch
        self._feed = feed
        self._found = found

    async def open(self, after: int | None) -> Opening:
        """See `EventFeed.open`."""
        return await self._feed.open(after)

    async def next_batch(self) -> Sequence[Event]:
        """See `EventFeed.next_batch`."""
        found, self._found = self._found, ()
        return found

    def close(self) -> None:
        """See `EventFeed.close`."""
        self._feed.close()


async def _lines(feed: EventFeed, cursor: Cursor, format: AdkFormat) -> bytes:
    """The events, each in a line. `format`: with `LINES`."""
    try:
        opening = await opened_at(feed, cursor)
        pieces = [format.snapshot(opening.snapshot, gap=opening.gap)]
        while not (opening.at_end or format.is_paused) and (found := await feed.next_batch()):
            pieces.append(format.batch(found))
        return b"".join(pieces)
    finally:
        feed.close()


def _value_of(answer: ResponseBody) -> Any:
    """What a client's functionResponse answers: `{confirmed}`, `{result}`, or a mapping of its own."""
    response = answer.response
    if response.keys() == {"response"} and isinstance(response["response"], str):  # as some of ADK's clients wrap it
        response = _read(response["response"])
    if isinstance(response.get("confirmed"), bool):
        return response["confirmed"]
    return response["result"] if response.keys() == {"result"} else response


def _read(text: str) -> Json:
    try:
        found = json.loads(text)
    except ValueError:
        return {"result": text}
    return cast("Json", found) if isinstance(found, dict) else {"result": found}
