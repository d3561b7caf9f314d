"""Where sessions are kept, as runs see it: the store, what is on this event loop, and who waits."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Hashable
from weakref import WeakValueDictionary

from halter.children.orphans import look_once
from halter.core import elsewhere, held
from halter.core.home import home_here
from halter.core.lasting import whole
from halter.core.lockfree import Wakers
from halter.core.ports import SessionTurn
from halter.errors import BusyError, SessionsUnavailable
from halter.outcome import Cancellation, RunStatus
from halter.sessions.leases import LEASE, LOOKED_EVERY, Leases
from halter.sessions.port import Store
from halter.sessions.records import RunRecord
from halter.sessions.repair import recover
from halter.sessions.turn import Turn

AT_ONCE = 100  # sessions that are deleted in one transaction
PRUNED_EVERY = 3600.0  # seconds
_logger = logging.getLogger("halter")


class Place:
    """What all runs on the sessions of one store share in this process.

    `open_store`: called at the first use. `store_content`: whether records hold what was said. `is_shared`: whether
    other processes may use the store. `keep_runs`: seconds for which records are kept, once their runs have ended.
    `keep_sessions_for`: seconds for which sessions are kept, once they were last used.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        *,
        store_content: bool,
        is_shared: bool,
        keep_runs: float | None = None,
        keep_sessions_for: float | None = None,
    ) -> None:
        self.store_content = store_content
        self.is_shared = is_shared
        self._keep_runs = keep_runs
        self._keep_sessions_for = keep_sessions_for
        self._pruned_at = time.monotonic()
        self._open_store = open_store
        self._store: Store | None = None
        self._is_ready = False
        self._is_known = False  # to the runtime
        self._waiting: dict[str, Bell] = {}

    @property
    def store(self) -> Store:
        """The store, opened if it was not. Raises `ConfigurationError`."""
        if self._store is None:
            if self.is_shared:
                look_once()  # what was killed may have left programs running, as well as turns open
            self._store = self._open_store()
        return self._store

    @property
    def lease_for(self) -> float:
        """Seconds for which a turn is kept for an owner of which nothing is heard. In this process all is known."""
        return LEASE if self.is_shared else math.inf

    @property
    def leases(self) -> Leases:
        """Those of the runs on the event loop that runs here."""
        kept = home_here().kept
        key = (Leases, id(self))
        if key not in kept:
            kept[key] = Leases(self)
        return kept[key]

    def let_go(self) -> None:
        """Nothing of it is kept on this event loop, unless runs have or wait for turns here."""
        self._is_known = False
        elsewhere.leave(self)
        kept, leases, doors = home_here().kept, (Leases, id(self)), (asyncio.Lock, id(self))
        if leases in kept and not kept[leases].is_used:
            del kept[leases]
        if doors in kept and not kept[doors]:
            del kept[doors]

    async def ready(self, owner: str) -> None:
        """At the first use in this process: what lost owners have left is brought to an end by `owner`, and old records
        are deleted. All who come meanwhile on this event loop wait for it, and go on in their order."""
        self.in_use()
        if not self.is_shared or self._is_ready:
            return
        home, key = home_here(), (Place, id(self))
        if key not in home.kept:
            getting_ready = home.kept[key] = home.work(self._make_ready(owner), "sessions")

            def over(_: object) -> None:
                home.kept.pop(key, None)

            getting_ready.add_done_callback(over)
        await whole(home.kept[key])

    async def _make_ready(self, owner: str) -> None:
        await recover(self.store, owner)
        await self.store.sweep()
        await self.prune()
        self._is_ready = True
        self.in_use()

    def in_use(self) -> None:
        """The runtime stops runs of other processes through it from now on; what is too old is deleted now and then."""
        if self.is_shared and self._is_ready and not self._is_known:
            self._is_known = True
            elsewhere.enter(self)
        if (self._is_ready or not self.is_shared) and time.monotonic() - self._pruned_at >= PRUNED_EVERY:
            self._pruned_at = time.monotonic()
            home_here().work(self._prune_quietly(), "sessions")

    async def _prune_quietly(self) -> None:
        try:
            await self.prune()
        except SessionsUnavailable as error:
            _logger.warning("what is too old could not be deleted: %s", error)

    async def admit(self, record: RunRecord) -> None:
        """Raises `BusyError` if another process carries a run of this id: its record would be replaced by this one."""
        if not self.is_shared:
            return
        if await self._is_elsewhere(record):
            await recover(self.store, record.owner)
            if await self._is_elsewhere(record):
                raise BusyError(f"a run with the id {record.run_id!r} is live in another process")

    async def _is_elsewhere(self, record: RunRecord) -> bool:
        """True if there is a record that is not final. One on the same session is looked at where its turn is taken."""
        found = await self.store.run(record.run_id)
        if found is None or found.status.is_final:
            return False
        return found.session_id is None or found.session_id != record.session_id

    async def prune(self) -> int:
        """Deletes the records and sessions that were kept long enough; how many it were."""
        gone = 0
        if self._keep_runs is not None:
            gone = await self.store.forget_runs(time.time() - self._keep_runs)
        return gone if self._keep_sessions_for is None else gone + await self._prune_sessions(self._keep_sessions_for)

    async def _prune_sessions(self, keep_for: float) -> int:
        before, gone, number = time.time() - keep_for, AT_ONCE, 0
        while gone == AT_ONCE:
            ids = await self.store.forget_sessions(before, limit=AT_ONCE)
            for id in ids:
                await held.end(SessionRef(self, id).key)
            gone = len(ids)
            number += gone
        return number

    async def stop(self, run_id: str, cancellation: Cancellation, *, wait: bool) -> bool:
        """Asks the process that carries this run, or waits for its turn, to stop it; False if none does, or, with
        `wait`, if it ended otherwise."""
        if not await whole(home_here().work(self.store.ask_to_stop(run_id, cancellation), "sessions")):
            return False
        has_waited = wait and await self.store.waits(run_id)
        while wait:
            if not (has_waited and await self.store.waits(run_id)):
                record = await self.store.run(run_id)
                if record is None:
                    return has_waited  # it has left the queue, and never began
                if record.status.is_final:
                    return record.status is RunStatus.CANCELLED
                if any(lost.run_id == run_id for lost in await self.store.lost()):
                    return False
            await asyncio.sleep(LOOKED_EVERY)
        return True

    def in_order(self, session_id: str) -> asyncio.Lock:
        """Whoever comes to the session on this event loop: those who have come later must not overtake him on another
        connection to the database."""
        kept = home_here().kept
        doors: WeakValueDictionary[str, asyncio.Lock] = kept.setdefault((asyncio.Lock, id(self)), WeakValueDictionary())
        door = doors.get(session_id)
        if door is None:
            door = doors[session_id] = asyncio.Lock()
        return door

    def freed(self, session_id: str | None) -> None:
        """It is free, or somebody has left its queue: whoever waits for it in this process looks. From any thread."""
        bell = self._waiting.get(session_id or "")
        if bell is not None:
            bell.ring()

    async def until_freed(self, session_id: str, patience: float) -> None:
        """Waits until the session is freed by this process, `patience` seconds at most."""
        bell = self._waiting.setdefault(session_id, Bell())
        bell.listeners += 1
        try:
            await bell.heard(patience)
        finally:
            bell.listeners -= 1
            if not bell.listeners:
                self._waiting.pop(session_id, None)


class Bell:
    """Rung when a session is freed. `listeners`: how many wait."""

    def __init__(self) -> None:
        self.listeners = 0
        self._times = 0
        self._wakers = Wakers()

    def ring(self) -> None:
        self._times += 1
        self._wakers.wake(threadsafe=True)

    async def heard(self, patience: float) -> None:
        """Returns when it is rung, after `patience` seconds at the latest: another process rings no bell here."""
        before = self._times
        try:
            async with asyncio.timeout(patience):
                await self._wakers.wait_until(lambda: self._times != before)
        except TimeoutError:
            pass


class SessionRef:
    """A session, named: what `run(session=…)` takes. `id`: `None` for a run that only has a record."""

    def __init__(self, place: Place, id: str | None) -> None:
        self._place = place
        self._id = id

    @property
    def id(self) -> str | None:
        return self._id

    @property
    def key(self) -> Hashable:
        """What no session of another place has, even one of the same id."""
        return self._place, self._id

    def turn(self) -> SessionTurn:
        """For one run."""
        return Turn(self._place, self._id)

    def __repr__(self) -> str:
        return f"<session {self._id!r}>"
