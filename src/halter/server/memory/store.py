"""`MemoryRunStore`: the runs of this process.

1. What is decided, is decided between two awaits: no lock. 2. An ended run keeps its log for a time (`logs.py`), then
a small record (`kept.py`) for a day, and only so many of them: then the database alone knows it, if there is one.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from halter.children.work import Program, programs_of
from halter.core.run import Run
from halter.core.runtime import runtime
from halter.errors import AlreadyAnswered
from halter.messages import Message
from halter.outcome import Cancellation, RunStatus
from halter.server.memory.entry import Entry
from halter.server.memory.logs import KeptLogs
from halter.server.port import Begun, CancelAnswer, EventFeed, RunFilter, RunInfo, RunKey, RunPlan
from halter.server.presence import Presence

RETAIN = 900.0  # seconds
RETAIN_BYTES = 256 * 1024 * 1024
KEEP_RUNS = 10_000
KEEP_RECORDS = 86_400.0  # seconds
TOMBSTONE = 900.0
MOST_TOMBSTONES = 1_000  # of one tenant: nobody can push out another's


class MemoryRunStore:
    """The `RunStore` of one process.

    Args:
        retain: seconds for which the log of an ended run is kept.
        retain_bytes: how many bytes of such logs are kept in all, about.
        keep_runs: how many ended runs are known, with or without their logs.
    """

    def __init__(self, *, retain: float = RETAIN, retain_bytes: int = RETAIN_BYTES, keep_runs: int = KEEP_RUNS) -> None:
        self.epoch = int(time.time())
        self.on_ended: Callable[[RunInfo], None] = lambda _: None
        self._keep_runs = keep_runs
        self._entries: dict[RunKey, Entry] = {}  # in the order in which they began
        self._over: dict[RunKey, Entry] = {}  # in the order in which they ended
        self._logs = KeptLogs(retain, retain_bytes)
        self._tombstones: defaultdict[str, dict[str, tuple[float, Cancellation]]] = defaultdict(dict)
        self._watches: set[asyncio.Task[None]] = set()

    @property
    def live(self) -> int:
        """See `RunStore.live`."""
        return len(self._watches)

    @property
    def queued(self) -> int:
        """See `RunStore.queued`."""
        runs = (entry.run for entry in self._entries.values())
        return sum(run is not None and run.status is RunStatus.QUEUED for run in runs)

    # --- starting -------------------------------------------------------------------------------------------

    async def begin(self, plan: RunPlan, make: Callable[[], Run[Any]]) -> Begun:
        """See `RunStore.begin`."""
        known = self._entries.get(plan.key)
        if known is not None:
            return Begun("same" if known.plan.fingerprint == plan.fingerprint else "conflict", known.info())
        run = make()
        entry = self._entries[plan.key] = Entry(plan, run, self.epoch)
        stop = self._stop_for(plan.key)
        if stop is not None:
            run.cancel(stop.message, reason=stop.reason, mode=stop.mode, actor=stop.actor)
        else:
            run.detach()
        self._watch(entry)
        return Begun("new" if stop is None else "stopped", entry.info())

    def _stop_for(self, key: RunKey) -> Cancellation | None:
        if key.tenant not in self._tombstones:
            return None
        kept_until, stop = self._tombstones[key.tenant].pop(key.id, (0.0, None))
        return stop if time.time() < kept_until else None

    def _watch(self, entry: Entry) -> None:
        watch = asyncio.ensure_future(self._until_over(entry))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)

    async def _until_over(self, entry: Entry) -> None:
        assert entry.run is not None
        await entry.run.finished()
        entry.end()
        self.on_ended(entry.info())
        if self._entries.get(entry.plan.key) is not entry:
            return  # it was forgotten
        self._over[entry.plan.key] = entry
        self._logs.add(entry)
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Ended runs are forgotten a day later, or when there are too many: those first that ended first."""
        now = time.time()
        while self._over:
            key, oldest = next(iter(self._over.items()))
            if len(self._over) <= self._keep_runs and now - (oldest.ended_at or now) < KEEP_RECORDS:
                break
            self._forget(key)

    def _forget(self, key: RunKey) -> None:
        entry = self._over.pop(key, None)
        if entry is not None:
            self._logs.discard(entry)
        del self._entries[key]

    async def cancel_all(self, cancellation: Cancellation) -> None:
        """See `RunStore.cancel_all`."""
        for key in [key for key, entry in self._entries.items() if not entry.is_over]:
            await self.cancel(key, cancellation)

    async def until_quiet(self, seconds: float | None) -> None:
        """See `RunStore.until_quiet`."""
        if self._watches:
            await asyncio.wait(self._watches, timeout=seconds)

    async def forget(self, key: RunKey) -> None:
        """See `RunStore.forget`."""
        entry = self._entries.get(key)
        if entry is not None and entry.is_over:
            self._forget(key)

    # --- looking --------------------------------------------------------------------------------------------

    async def get(self, key: RunKey) -> RunInfo | None:
        """See `RunStore.get`."""
        entry = self._entries.get(key)
        return entry.info() if entry else None

    async def list(self, which: RunFilter) -> Sequence[RunInfo]:
        """See `RunStore.list`."""
        found: list[RunInfo] = []
        for entry in reversed(self._entries.values()):
            if len(found) >= which.limit:
                break
            if _fits(entry, which):
                found.append(entry.info())
        return found

    async def wait(self, key: RunKey, seconds: float) -> RunInfo | None:
        """See `RunStore.wait`."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.run is not None and not entry.is_over and seconds > 0:
            try:
                async with asyncio.timeout(seconds):
                    await entry.run.finished()
            except TimeoutError:
                pass
        return entry.info()

    async def programs(self, key: RunKey) -> Sequence[Program] | None:
        """See `RunStore.programs`."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        return [] if entry.is_over else programs_of({key.id, *(run.run_id for run in entry.info().runs)})

    async def feed(self, key: RunKey) -> EventFeed | None:
        """See `RunStore.feed`."""
        entry = self._entries.get(key)
        return entry.feed() if entry else None

    def presence(self, key: RunKey) -> Presence | None:
        """See `RunStore.presence`."""
        entry = self._entries.get(key)
        return entry.presence if entry else None

    # --- changing -------------------------------------------------------------------------------------------

    async def cancel(
        self, key: RunKey, cancellation: Cancellation, *, if_epoch: int | None = None, tombstone: bool = False
    ) -> CancelAnswer | None:
        """See `RunStore.cancel`."""
        entry, run = self._entries.get(key), None
        if entry is None:
            entry, run = self._with_child(key)
        if entry is None:
            if tombstone:
                self._bury(key, cancellation)
            return None
        if if_epoch is not None and if_epoch != self.epoch:
            return CancelAnswer(entry.info(), False, wrong_epoch=True)
        run = run or entry.run
        if run is not None:
            run.cancel(
                cancellation.message, reason=cancellation.reason, mode=cancellation.mode, actor=cancellation.actor
            )
        info = entry.info()
        return CancelAnswer(info, info.status in (RunStatus.CANCELLED, RunStatus.CANCELLING))

    def _with_child(self, key: RunKey) -> tuple[Entry | None, Run[Any] | None]:
        """The run of this tenant in whose tree a live run has this id."""
        child = runtime().find(key.id)
        entry = self._entries.get(RunKey(key.tenant, child.root_id)) if child is not None else None
        return entry, child if entry is not None else None

    def _bury(self, key: RunKey, cancellation: Cancellation) -> None:
        tombstones = self._tombstones[key.tenant]
        tombstones.pop(key.id, None)
        while len(tombstones) >= MOST_TOMBSTONES:
            del tombstones[next(iter(tombstones))]
        tombstones[key.id] = time.time() + TOMBSTONE, cancellation

    async def answer(
        self, key: RunKey, request_id: str, value: Any, *, reason: str | None = None, by: str | None = None
    ) -> bool:
        """See `RunStore.answer`."""
        entry = self._entries.get(key)
        run = entry.run if entry else None
        if entry is None or run is None or all(each.request_id != request_id for each in entry.inputs):
            return False
        try:
            run.answer(request_id, value, reason=reason, by=by)
        except AlreadyAnswered:
            return False
        return True

    async def send(self, key: RunKey, message: Message) -> bool:
        """See `RunStore.send`."""
        entry = self._entries.get(key)
        return entry is not None and entry.run is not None and entry.run.send(message)

    async def aclose(self) -> None:
        """See `RunStore.aclose`."""
        self._logs.close()
        for watch in list(self._watches):
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)

    def __repr__(self) -> str:
        return f"<MemoryRunStore of {len(self._entries)} runs>"


def _fits(entry: Entry, which: RunFilter) -> bool:
    plan = entry.plan
    return (
        plan.key.tenant == which.tenant
        and (which.session is None or plan.session == which.session)
        and (which.user is None or plan.user == which.user)
        and (which.tag is None or which.tag in plan.tags)
        and (which.agent is None or plan.agent == which.agent)
        and (which.before is None or plan.position < which.before)
        and (which.status is None or entry.status is which.status)
        and not (which.is_live_only and entry.is_over)
    )
