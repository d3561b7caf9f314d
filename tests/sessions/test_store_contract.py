"""Every place where sessions are kept does what `contract.py` says."""

from __future__ import annotations

import asyncio

import pytest

from halter.sessions.port import Store

from .contract import CONTRACT, Check, Open
from .places import memory_store as memory_store
from .places import open_store as open_store


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
def test_it_keeps_the_contract(check: Check, open_store: Open) -> None:
    asyncio.run(_with_all_closed(check, open_store))


async def _with_all_closed(check: Check, open_store: Open) -> None:
    opened: list[Store] = []

    def open() -> Store:
        opened.append(open_store())
        return opened[-1]

    try:
        await check(open)
    finally:
        for store in opened:
            await store.aclose()
