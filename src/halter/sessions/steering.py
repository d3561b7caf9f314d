"""`on_busy="steer"`: what a run was to say goes to the one that has the turn, at its next step, and both end alike."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from halter.core.context import RunContext
from halter.core.execution import Execution
from halter.core.home import LIVE
from halter.core.run import Run
from halter.errors import HalterError
from halter.messages import as_messages
from halter.outcome import RunResult, RunStatus
from halter.sessions.records import RunRecord

if TYPE_CHECKING:
    from halter.sessions.place import Place

LOOKED_EVERY = 0.25  # seconds; at a run of another process


def live_on(session_id: str | None, holder: str) -> Execution | None:
    """The run that has the session's turn, if it is in this process; its id may be that of another run here."""
    live = LIVE.get(holder)
    return live if live is not None and live.session_id == session_id else None


class Steering:
    """What one run has to say, given to another."""

    def __init__(self, place: Place, execution: Execution) -> None:
        self._store = place.store
        self._execution = execution
        self._said = as_messages(execution.options.input)

    async def into(self, holder: str, session_id: str) -> RunResult[Any] | None:
        """How that run has ended; `None` if it ended without having taken it: then nothing was said."""
        live = live_on(session_id, holder)
        if live is not None:
            return await self._here(live)
        return await self._there(holder, session_id)

    # --- in this process ------------------------------------------------------------------------------------

    async def _here(self, live: Execution) -> RunResult[Any] | None:
        run = Run.observing(live)
        if not all(run.send(message) for message in self._said):
            return None
        self._tell(run.id)
        try:
            result = await run.finished()
        except asyncio.CancelledError:
            if live.home is not None:
                live.home.wake(lambda: self._take_back(live))
            raise
        returned = {id(message) for message in result.undelivered}
        return None if any(id(message) in returned for message in self._said) else result

    def _take_back(self, live: Execution) -> None:
        """On the loop of that run. Others may have sent the same words: only its own are meant."""
        for message in self._said:
            at = next((at for at, waiting in enumerate(live.steering) if waiting is message), None)
            if at is not None:
                del live.steering[at]

    # --- in another one -------------------------------------------------------------------------------------

    async def _there(self, holder: str, session_id: str) -> RunResult[Any] | None:
        sending = self._execution.work(self._store.send(holder, self._said))
        try:
            mail = await asyncio.shield(sending)
            self._tell(holder)
            return await self._answer_to(mail, holder, session_id)
        except asyncio.CancelledError:
            self._execution.work(self._return(sending))
            raise

    async def _return(self, sending: asyncio.Task[int]) -> None:
        """What was to be said and is no more, also where it was on its way at that moment."""
        await self._store.sort_mail(returned=[await sending])

    async def _answer_to(self, mail: int, holder: str, session_id: str) -> RunResult[Any] | None:
        while True:
            record = await self._execution.whole(self._store.run(holder))
            state = await self._execution.whole(self._store.mail_state(mail))
            if state == "taken" and record is not None and record.status.is_final:
                return await self._result_of(record, session_id)
            if (
                state == "returned"
                or record is None
                or record.status.is_final
                or await self._is_lost(holder, session_id)
            ):
                await self._execution.whole(self._store.sort_mail(returned=[mail]))
                return None
            await asyncio.sleep(LOOKED_EVERY)

    async def _is_lost(self, holder: str, session_id: str) -> bool:
        """True if nobody carries it any more: then nobody will end its record before this run's turn."""
        lost = await self._execution.whole(self._store.lost(session_id))
        return any(record.run_id == holder for record in lost)

    async def _result_of(self, record: RunRecord, session_id: str) -> RunResult[Any]:
        """A run of another process, as its record and its session tell of it."""
        text = record.text or await self._last_words(session_id)
        error = record.error
        failed = f"the run that was steered has failed: {error.type}: {error.message}" if error is not None else ""
        return RunResult(
            run_id=record.run_id,
            status=record.status,
            output=text if record.status is RunStatus.COMPLETED else None,
            text=text,
            error=HalterError(failed) if record.status is RunStatus.FAILED else None,
            cancellation=record.cancellation,
            receipt=record.receipt,
        )

    async def _last_words(self, session_id: str) -> str:
        """Where records are without words."""
        found = await self._execution.whole(self._store.load(session_id))
        said = [message.text for message in found.messages if message.role == "assistant"] if found is not None else []
        return said[-1] if said else ""

    def _tell(self, holder: str) -> None:
        """Which run answers in this one's place."""
        RunContext(self._execution).emit("session.steered", {"run_id": holder})
