"""The contract of `RunStore`, for each implementation; and what only the memory store does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from halter.outcome import Cancellation
from halter.server.memory.store import MemoryRunStore
from halter.server.port import RunKey, RunStore

from .contract import CONTRACT, QUICK, begin

Clause = Callable[[RunStore], Coroutine[Any, Any, None]]
STORES: dict[str, Callable[[], RunStore]] = {"memory": MemoryRunStore}


@pytest.mark.parametrize("make", STORES.values(), ids=STORES.keys())
@pytest.mark.parametrize("clause", CONTRACT, ids=lambda clause: clause.__name__)
def test_the_contract(clause: Clause, make: Callable[[], RunStore]) -> None:
    asyncio.run(_keep(clause, make()))


async def _keep(clause: Clause, store: RunStore) -> None:
    try:
        await clause(store)
    finally:
        await store.cancel_all(Cancellation(message="its test is over"))
        await store.until_quiet(5)
        await store.aclose()


def test_logs_are_let_go_of_when_they_are_too_many_bytes_and_their_records_stay() -> None:
    async def main() -> None:
        store = MemoryRunStore(retain_bytes=3_000)
        for number in range(8):
            await begin(store, f"r{number}", QUICK)
            await store.wait(RunKey("", f"r{number}"), 5)
        await store.until_quiet(5)
        infos = [await store.get(RunKey("", f"r{number}")) for number in range(8)]
        assert [info is not None and info.text for info in infos] == ["done"] * 8
        kept = [info.has_log for info in infos if info is not None]
        assert kept == sorted(kept)
        assert 0 < sum(kept) < 8
        await store.aclose()

    asyncio.run(main())
