"""A PostgreSQL that is really stopped, and started again, while sessions are written."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator

import pytest

from halter.errors import SessionsUnavailable
from halter.messages import Message
from halter.sessions.sql import open_sql

from ..bounds import assert_within
from ..services.postgres import Postgres, started
from .contract import HI, a_run, ended, said, taken

AWAY = 5.0  # seconds


@pytest.fixture(scope="module")
def its_own(require: Callable[[str, bool], None]) -> Generator[Postgres]:
    """A server that nobody else uses."""
    server = started(require)
    yield server
    server.close()


def test_a_database_that_is_gone_for_five_seconds_is_waited_for_and_nothing_is_lost_or_doubled(
    its_own: Postgres,
) -> None:
    async def talk(url: str, number: int, done: list[int]) -> None:
        store = open_sql(url, patience=30.0)
        record = a_run(f"run-{number}", f"s-{number}")
        turn = await taken(store, record)
        at = 0
        while not is_back.is_set() or at < 5:
            await store.write(turn.lease, at, [Message.user(f"{at}")])
            at += 1
            await asyncio.sleep(0.01)
        last = ended(record)
        await store.close(turn.lease, last, at, [HI])
        expected = [*(Message.user(f"{number}") for number in range(at)), HI]
        assert await said(store, f"s-{number}") == expected
        assert await store.run(record.run_id) == last
        done.append(number)

    async def scenario() -> None:
        done: list[int] = []
        await asyncio.gather(*(talk(url, number, done) for number in range(8)))
        assert sorted(done) == list(range(8))

    url, is_back = its_own.new_place(), threading.Event()

    def restart() -> None:
        time.sleep(0.5)
        its_own.stop()
        time.sleep(AWAY)
        its_own.start()
        is_back.set()

    thread = threading.Thread(target=restart)
    thread.start()
    began = time.monotonic()
    asyncio.run(scenario())
    thread.join()
    assert time.monotonic() - began > AWAY


def test_one_that_stays_away_is_told_after_the_patience_and_used_again_when_it_is_back(its_own: Postgres) -> None:
    async def scenario() -> None:
        store = open_sql(url, patience=0.5)
        turn = await taken(store, a_run())
        await store.write(turn.lease, 0, [HI])
        its_own.stop()
        began = time.monotonic()
        with pytest.raises(SessionsUnavailable) as raised:
            await store.write(turn.lease, 1, [HI])
        assert raised.value.retryable
        took = time.monotonic() - began
        await asyncio.to_thread(its_own.start)
        await store.write(turn.lease, 1, [HI])
        assert await said(store) == [HI, HI]
        assert_within(5.0, took)

    url = its_own.new_place()
    asyncio.run(scenario())
