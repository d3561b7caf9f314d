"""The live runs of a tenant as a stream of rows: all of them first, then those that change, and how each one ends.

1. A look costs what its live runs cost, however long their logs are. 2. A run that ends is shown once more, with its
final status. 3. What changes between two looks is shown once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec

from halter import events
from halter.messages import Usage
from halter.outcome import Cancellation, CancelReceipt, RunStatus
from halter.server.port import RunFilter, RunInfo, RunKey, RunStore

EVERY = 0.5  # seconds between two looks
PING_EVERY = 15.0  # seconds of silence
MOST = 10_000
TAIL = 160  # characters of the newest text


class LiveChild(msgspec.Struct, frozen=True, kw_only=True):
    """A run under a live run."""

    id: str
    parent_id: str | None
    name: str
    kind: str
    status: RunStatus
    started_at: float | None
    ended_at: float | None


class LiveRun(msgspec.Struct, frozen=True, kw_only=True):
    """A live run in short. `tail`: the end of its text. `questions`: how many wait for an answer.

    Times are seconds since the epoch.
    """

    id: str
    agent: str
    kind: str
    status: RunStatus
    session: str | None
    user: str | None
    tags: tuple[str, ...]
    created_at: float
    started_at: float | None
    ended_at: float | None
    usage: Usage
    tail: str
    questions: int
    children: tuple[LiveChild, ...]
    cancelling: Cancellation | None
    cancellation: Cancellation | None
    receipt: CancelReceipt | None


class LiveRuns:
    """What one reader knows of a tenant's live runs.

    Args:
        store: the runs.
        tenant: whose.
    """

    def __init__(self, store: RunStore, tenant: str) -> None:
        self._store = store
        self._which = RunFilter(tenant=tenant, is_live_only=True, limit=MOST)
        self._shown: dict[RunKey, tuple[int, RunStatus]] = {}

    async def changes(self) -> list[LiveRun]:
        """The runs that have changed since the last look, the oldest first; at the first look all."""
        live = {info.plan.key: info for info in reversed(await self._store.list(self._which))}
        ended = [await self._store.get(key) for key in self._shown.keys() - live.keys()]
        changed = [info for key, info in live.items() if self._shown.get(key) != (info.seq, info.status)]
        self._shown = {key: (info.seq, info.status) for key, info in live.items()}
        return [row_of(info) for info in (*changed, *ended) if info is not None]


def row_of(info: RunInfo) -> LiveRun:
    """The run in short."""
    plan = info.plan
    return LiveRun(
        id=plan.key.id,
        agent=plan.agent,
        kind=plan.kind,
        status=info.status,
        session=plan.session,
        user=plan.user,
        tags=plan.tags,
        created_at=plan.created_at,
        started_at=info.started_at,
        ended_at=info.ended_at,
        usage=info.usage,
        tail=info.text[-TAIL:],
        questions=len(info.inputs),
        children=tuple(_child(run) for run in info.runs if run.parent_id is not None),
        cancelling=info.cancelling,
        cancellation=info.cancellation,
        receipt=info.receipt,
    )


def _child(run: Any) -> LiveChild:
    return LiveChild(
        id=run.run_id,
        parent_id=run.parent_id,
        name=run.name,
        kind=run.kind,
        status=run.status,
        started_at=run.started_at,
        ended_at=run.ended_at,
    )


async def frames(runs: LiveRuns) -> AsyncGenerator[bytes]:
    """Frames of server-sent events, without end: the first one has all live runs, each later one those that changed."""
    loop = asyncio.get_running_loop()
    wrote_at = loop.time() - PING_EVERY
    is_first = True
    while True:
        found = await runs.changes()
        if found or is_first:
            yield _frame("live" if is_first else "changed", found)
            is_first, wrote_at = False, loop.time()
        elif loop.time() - wrote_at >= PING_EVERY:
            yield b": ping\n\n"
            wrote_at = loop.time()
        await asyncio.sleep(EVERY)


def _frame(type: str, runs: Sequence[LiveRun]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (type.encode(), events.encode_any({"type": type, "runs": runs}))
