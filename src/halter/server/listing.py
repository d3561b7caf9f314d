"""The list of a tenant's runs: those that the store knows, and those of which only the record is left."""

from __future__ import annotations

from halter.server.ended import info_of
from halter.server.names import Names
from halter.server.port import Position, RunFilter, RunKey, RunStore
from halter.server.tags import ServerTags
from halter.server.views import RunView, run_view
from halter.sessions.records import RunRecord
from halter.sessions.sessions import Sessions

PAGE = 200  # records that are read at once


async def list_runs(store: RunStore, sessions: Sessions, which: RunFilter) -> list[RunView]:
    """The runs that fit, the newest first.

    Args:
        store: of the runs of this process.
        sessions: where records of earlier runs are.
        which: the runs that are asked for.
    """
    found = {info.plan.position: run_view(info) for info in await store.list(which)}
    if sessions.is_durable and not which.is_live_only and (which.status is None or which.status.is_final):
        last = min(found) if len(found) >= which.limit else None
        for record in await _earlier(store, sessions, which, last):
            found[_place(record)] = run_view(info_of(record, which.tenant))
    return [found[position] for position in sorted(found, reverse=True)[: which.limit]]


async def _earlier(store: RunStore, sessions: Sessions, which: RunFilter, last: Position | None) -> list[RunRecord]:
    """Records of runs that the store does not know; none behind `last`, where the page is full already."""
    found: list[RunRecord] = []
    before = which.before
    names = Names.of(which.tenant)
    while True:
        page = await sessions.runs(
            session=names.stored(which.session) if which.session else None,
            user=names.stored(which.user) if which.user else None,
            status=which.status,
            tag=[*ServerTags(tenant=which.tenant, agent=which.agent).added(), *([which.tag] if which.tag else [])],
            before=before,
            limit=PAGE,
        )
        for record in page:
            before = _place(record)
            if (last is not None and before < last) or len(found) >= which.limit:
                return found
            if await _is_only_a_record(store, record, which.tenant):
                found.append(record)
        if len(page) < PAGE:
            return found


async def _is_only_a_record(store: RunStore, record: RunRecord, tenant: str) -> bool:
    tags = ServerTags.read(record.tags)
    was_served = record.status.is_final and tags.tenant == tenant and tags.agent is not None
    return was_served and await store.get(RunKey(tenant, record.run_id)) is None


def _place(record: RunRecord) -> Position:
    return Position(record.started_at, record.run_id)
