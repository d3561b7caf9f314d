"""Sessions in memory: for all threads of one process, and for as long as it lives."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import time
from typing import Any

import pytest

from halter import CancelReason, Message, RunContext, runnable
from halter.errors import SessionBusy
from halter.sessions import MemoryStore, Sessions
from halter.sessions.port import Busy, RunQuery, Taken

from .contract import GONE, HI, LONG, a_run, ended, said, taken


class Elsewhere:
    """A store that other processes may use too, as far as anybody can tell."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_threads_never_have_a_turn_at_once_and_lose_nothing() -> None:
    store = MemoryStore()
    inside: list[str] = []

    async def talk(name: str) -> None:
        for number in range(25):
            record = a_run(f"{name}-{number}")
            got: Taken | Busy = Busy(holder=None)
            while not isinstance(got, Taken):
                got = await store.take(record, lease_for=LONG)
            inside.append(name)
            at = got.conversation.session.messages
            await store.write(got.lease, at, [Message.user(f"{name} {number}")])
            assert inside == [name]
            inside.clear()
            await store.close(got.lease, ended(record), at + 1, [])

    async def main() -> list[str]:
        names = [f"t{number}" for number in range(4)]
        await asyncio.gather(*(asyncio.to_thread(asyncio.run, talk(name)) for name in names))
        assert len(await store.runs(RunQuery(limit=1000))) == 100
        return [message.text for message in await said(store)]

    texts = asyncio.run(main())
    assert sorted(texts) == sorted(f"t{thread} {number}" for thread in range(4) for number in range(25))


def test_a_run_has_its_turn_for_as_long_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody renews what only this process can see."""

    @runnable
    async def waits(ctx: RunContext, _: str) -> None:
        ctx.emit("begun")
        await asyncio.Event().wait()

    async def main() -> None:
        chats = Sessions()
        async with waits.run("x", session=chats.session("s")) as run:
            async for event in run.events():
                if event.type == "custom":
                    break
            now = time.monotonic
            with monkeypatch.context() as patched:
                patched.setattr("halter.sessions.memory.store.time.monotonic", lambda: now() + 86_400)
                with pytest.raises(SessionBusy):
                    await waits.run("y", session=chats.session("s"))

    asyncio.run(main())


def test_in_a_forked_child_what_was_said_is_a_copy_and_turns_are_free() -> None:
    script = """
        import asyncio, os
        from halter import Message
        from halter.core.owner import Owner
        from halter.sessions import MemoryStore
        from halter.sessions.port import Taken
        from halter.sessions.records import RunRecord

        async def main():
            store = MemoryStore()
            def record(id):
                return RunRecord(run_id=id, session_id="s", owner=f"{Owner.here()}/1")
            turn = await store.take(record("run-1"), lease_for=float("inf"))
            await store.write(turn.lease, 0, [Message.user("hi")])
            await store.queue("s", "waits", f"{Owner.here()}/1", lease_for=float("inf"), first=True)
            child = os.fork()
            if child == 0:
                got = await store.take(record("run-2"), lease_for=60)
                assert isinstance(got, Taken), got
                assert [lost.run_id for lost in got.lost] == ["run-1"]
                assert [message.text for message in got.conversation.messages] == ["hi"]
                os._exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            await store.write(turn.lease, 1, [Message.user("still mine")])
            assert not isinstance(await store.take(record("run-3"), lease_for=60), Taken)

        asyncio.run(main())
    """
    subprocess.run([sys.executable, "-W", "error", "-c", textwrap.dedent(script)], check=True, timeout=30)


@pytest.mark.parametrize(("first", "given"), [("list", ()), ("runs", ()), ("run", ("x",)), ("search", ("x",))])
def test_the_first_use_ends_what_lost_processes_have_left_and_deletes_old_records(
    first: str, given: tuple[str, ...]
) -> None:
    async def main() -> None:
        store = MemoryStore()
        turn = await taken(store, a_run("lost", owner=GONE))
        await store.write(turn.lease, 0, [HI])
        await store.record(ended(a_run("old", None), ended_at=time.time() - 100))
        await store.record(ended(a_run("new", None), ended_at=time.time() - 20))
        chats = Sessions(Elsewhere(store), keep_runs=60)
        await getattr(chats, first)(*given)
        found = {record.run_id: record for record in await chats.runs()}
        assert found.keys() == {"lost", "new"}
        cancellation = found["lost"].cancellation
        assert cancellation is not None
        assert cancellation.reason is CancelReason.OWNER_LOST
        assert isinstance(await store.take(a_run("next"), lease_for=LONG), Taken)
        *_, last = await chats.history("s")
        assert last.interrupted

    asyncio.run(main())
