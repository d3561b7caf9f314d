"""`MemoryRunStore`: the runs of this process.

1. What is decided, is decided between two awaits: no lock. 2. Logs of ended runs are kept for `retain` seconds and up
to `retain_bytes` in all, the oldest go first; records for `keep_records` seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from halter.core.run import Run
from halter.core.runtime import runtime
from halter.messages import Message
from halter.outcome import Cancellation, RunStatus
from halter.server.memory.entry import Entry
from halter.server.port import Begun, CancelAnswer, EventFeed, RunFilter, RunInfo, RunKey, RunPlan
from halter.server.presence import Presence

MOST_RECORDS = 10_000
KEEP_RECORDS = 86_400.0
TOMBSTONE = 900.0
MOST_TOMBSTONES = 10_000


class MemoryRunStore:
    """The `RunStore` of one process.

    Args:
        retain: seconds for which the log of an ended run is kept.
        retain_bytes: how many bytes of such logs are kept in all, about.
    """

    def __init__(self, *, retain: float = 900.0, retain_bytes: int = 256 * 1024 * 1024) -> None:
        self.epoch = int(time.time())
        self.on_ended: Callable[[RunInfo], None] = lambda _: None
        self._retain = retain
        self._retain_bytes = retain_bytes
        self._entries: dict[RunKey, Entry] = {}
        self._tombstones: dict[RunKey, tuple[float, Cancellation]] = {}
        self._ended: dict[RunKey, int] = {}  # whose logs are kept, the oldest first, and how large they are
        self._watches: set[asyncio.Task[None]] = set()
        self._timers: set[asyncio.TimerHandle] = set()

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
        kept_until, stop = self._tombstones.pop(key, (0.0, None))
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
        self._ended[entry.plan.key] = entry.size()
        self._forget_oldest_records()
        self._let_go_of_large()
        self._later(self._retain, lambda: self._let_go(entry.plan.key))

    # --- letting go -----------------------------------------------------------------------------------------

    def _later(self, delay: float, act: Callable[[], None]) -> None:
        def fire() -> None:
            self._timers.discard(timer)
            act()

        timer = asyncio.get_running_loop().call_later(delay, fire)
        self._timers.add(timer)

    def _let_go(self, key: RunKey) -> None:
        if self._ended.pop(key, None) is not None and key in self._entries:
            self._entries[key].let_go()

    def _let_go_of_large(self) -> None:
        while self._ended and sum(self._ended.values()) > self._retain_bytes:
            self._let_go(next(iter(self._ended)))

    def _forget_oldest_records(self) -> None:
        """Ended runs are forgotten a day later, or when there are too many: the oldest first."""
        now = time.time()
        over = [key for key, entry in self._entries.items() if entry.ended_at is not None]
        for place, key in enumerate(over):
            ended_at = self._entries[key].ended_at or now
            if now - ended_at < KEEP_RECORDS and len(over) - place <= MOST_RECORDS:
                break
            self._ended.pop(key, None)
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
            self._ended.pop(key, None)
            del self._entries[key]

    # --- looking --------------------------------------------------------------------------------------------

    async def get(self, key: RunKey) -> RunInfo | None:
        """See `RunStore.get`."""
        entry = self._entries.get(key)
        return entry.info() if entry else None

    async def list(self, which: RunFilter) -> Sequence[RunInfo]:
        """See `RunStore.list`."""
        found: list[RunInfo] = []
        for entry in self._newest_first(which.before):
            if len(found) >= which.limit:
                break
            if _may_fit(entry.plan, which):
                info = entry.info()
                if which.status is None or info.status is which.status:
                    found.append(info)
        return found

    def _newest_first(self, before: str | None) -> Iterator[Entry]:
        entries = reversed(list(self._entries.values()))
        if before is not None:
            entries = iter(list(entries))
            for entry in entries:
                if entry.plan.key.id == before:
                    break
        return iter(entries)

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
        while len(self._tombstones) >= MOST_TOMBSTONES:
            del self._tombstones[next(iter(self._tombstones))]
        self._tombstones[key] = time.time() + TOMBSTONE, cancellation

    async def answer(self, key: RunKey, request_id: str, value: Any) -> bool:
        """See `RunStore.answer`."""
        entry = self._entries.get(key)
        run = entry.run if entry else None
        if entry is None or run is None or all(each.request_id != request_id for each in entry.fold.inputs):
            return False
        run.answer(request_id, value)
        return True

    async def send(self, key: RunKey, message: Message) -> bool:
        """See `RunStore.send`."""
        entry = self._entries.get(key)
        return entry is not None and entry.run is not None and entry.run.send(message)

    async def aclose(self) -> None:
        """See `RunStore.aclose`."""
        for timer in self._timers:
            timer.cancel()
        for watch in list(self._watches):
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)

    def __repr__(self) -> str:
        return f"<MemoryRunStore of {len(self._entries)} runs>"


def _may_fit(plan: RunPlan, which: RunFilter) -> bool:
    return (
        plan.key.tenant == which.tenant
        and (which.session is None or plan.session == which.session)
        and (which.user is None or plan.user == which.user)
        and (which.tag is None or which.tag in plan.tags)
        and (which.agent is None or plan.agent == which.agent)
    )
