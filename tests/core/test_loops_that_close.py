"""Runs that are given to a loop which closes before it looks at them, or whose parent is over by then."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from halter import CancelReason, RunCancelled, runnable, runtime
from halter.core import stopping


@runnable
async def patient(ctx: Any) -> None:
    await asyncio.sleep(1_000)


@runnable
async def brief(ctx: Any) -> str:
    return "done"


@pytest.mark.scenario("A12", "I91")
@pytest.mark.parametrize("form", ["result", "events"])
def test_whoever_waits_in_a_thread_for_a_run_that_its_loop_never_looked_at_hears_of_its_end(form: str) -> None:
    """A thread of a run starts a child as the loop comes to its end."""
    loop = asyncio.new_event_loop()
    root = patient.run(parent=None)

    async def start() -> None:
        root.start()
        await asyncio.sleep(0)

    loop.run_until_complete(start())
    child = brief.run(parent=root)
    left = root._execution.task
    assert left is not None
    heard: list[Any] = []
    waits = threading.Event()

    def wait() -> None:
        child.start()
        waits.set()
        try:
            heard.extend(child.result() if form == "result" else child)
        except RunCancelled as error:
            heard.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    assert waits.wait(5)
    loop.close()
    thread.join(5)
    assert not thread.is_alive(), "it waits for ever"
    assert child.outcome is not None
    assert child.outcome.cancellation is not None
    assert child.outcome.cancellation.reason is CancelReason.OWNER_LOST
    assert [event.type for event in child.events()] == ["run.cancelled"]
    assert root.is_cancelled
    assert [event.run_id for event in root.events() if event.run_id == child.id] == [], "that log has ended"
    assert not runtime().runs()
    forget(left)


def forget(task: asyncio.Task[Any]) -> None:
    """Ends a task whose loop was closed under it, on purpose: else asyncio complains of it as it is collected."""
    task.get_coro().close()  # pyright: ignore[reportOptionalMemberAccess]
    task._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue]


def test_the_reader_of_a_run_that_was_born_dead_gets_its_one_event_however_long_the_trees_log_is() -> None:
    """It began to read before the run was looked at: nothing of the tree's log is its own."""
    loop = asyncio.new_event_loop()

    @runnable
    async def talks(ctx: Any) -> None:
        for _ in range(10):
            ctx.emit("more")

    root = talks.run(parent=None)
    loop.run_until_complete(root.finished())
    child = brief.run(parent=root)
    read: list[str] = []
    thread = threading.Thread(target=lambda: read.extend(event.type for event in child), daemon=True)
    tree = root._execution.log
    try:
        starts = threading.Thread(target=child.start)
        starts.start()
        starts.join()
        thread.start()
        while not tree.arrived.waiting and thread.is_alive():
            thread.join(0.001)
        loop.run_until_complete(asyncio.sleep(0))
        thread.join(5)
        assert read == ["run.cancelled"]
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def test_a_run_that_was_lost_before_its_loop_looked_at_it_never_begins(caplog: pytest.LogCaptureFixture) -> None:
    """Its loop did not answer for longer than the grace; it does now, and finds the run in its inbox."""
    loop = asyncio.new_event_loop()
    root = patient.run(parent=None)

    async def start() -> None:
        root.start()
        await asyncio.sleep(0)

    loop.run_until_complete(start())
    child = brief.run(parent=root)
    thread = threading.Thread(target=child.start)
    thread.start()
    thread.join()
    stopping.lose(child._execution)
    loop.run_until_complete(asyncio.sleep(0.01))
    assert child.is_cancelled
    assert [event.type for event in child.events().ready()] == ["run.cancelled"]
    assert not caplog.records, "it was taken up, and its end was written a second time"
    root.cancel()
    loop.run_until_complete(root.finished())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


@pytest.mark.virtual_time
async def test_a_child_that_is_stopped_in_a_thread_before_it_begins_leaves_its_parents_account_alone() -> None:
    """The account is the loop's own: what a thread adds to it could be lost, and what the loop adds meanwhile."""

    @runnable
    async def body(ctx: Any) -> bool:
        child = brief.run(parent=ctx.run)
        before = ctx.run._execution.usage
        await ctx.in_thread(child.cancel)
        return ctx.run._execution.usage is before and child.is_cancelled

    assert (await body.run()).output


def test_ctrl_c_while_a_thread_wakes_the_loop_leaves_the_loop_to_be_woken_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An answer that was given in vain must not swallow those that come after it."""

    @runnable
    async def asks(ctx: Any) -> Any:
        return await ctx.ask("Well?")

    run = asks.run(parent=None)
    for event in run:
        if event.type == "input.requested":
            home = run._execution.home
            assert home is not None
            with monkeypatch.context() as patched:
                patched.setattr(home, "wake", _interrupted)
                with pytest.raises(KeyboardInterrupt):
                    run.answer(event.request_id, "lost?")
            other = asks.run(parent=None)
            for asked in other:
                if asked.type == "input.requested":
                    other.answer(asked.request_id, "heard")
            assert other.result(5).output == "heard"
    assert run.result(5).output == "lost?"


def _interrupted(fn: object) -> bool:
    raise KeyboardInterrupt
