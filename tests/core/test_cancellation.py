"""The token tree: a parent's stop reaches its children, never the other way, and nothing is retained."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
import time
import weakref
from typing import Any

import pytest

from halter import CancellationToken, CancelMode, CancelReason, RunCancelled, runnable
from halter.testing import run

from ..bounds import T, assert_within


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "halter")


# -- the tree


def test_a_new_token_is_live() -> None:
    """Nothing is cancelled by being made; `raise_if_cancelled` does nothing."""
    token = CancellationToken()
    assert not token.is_cancelled
    assert token.cancellation is None
    token.raise_if_cancelled()
    assert repr(token) == "<CancellationToken live, 0 listening>"


def test_a_parents_cancel_is_seen_by_all_its_children_at_once() -> None:
    """Also by a grandchild that nobody listens to: visibility is by pull."""
    root = CancellationToken()
    grandchild = root.child().child()
    assert root.cancel("enough", actor="me") is True
    assert grandchild.is_cancelled
    assert grandchild.cancellation is not None
    assert (grandchild.cancellation.message, grandchild.cancellation.actor) == ("enough", "me")
    with pytest.raises(RunCancelled, match="enough") as caught:
        grandchild.raise_if_cancelled()
    assert caught.value.cancellation == grandchild.cancellation


def test_a_childs_cancel_does_not_reach_its_parent_or_siblings() -> None:
    """Never the other way."""
    root = CancellationToken()
    one, other = root.child(), root.child()
    one.cancel()
    assert one.is_cancelled
    assert not root.is_cancelled
    assert not other.is_cancelled


def test_a_child_born_under_a_cancelled_parent_is_born_cancelled() -> None:
    """And a callback that is registered on it is called soon."""

    async def main() -> None:
        root, called = CancellationToken(), []
        root.cancel()
        child = root.child()
        assert child.is_cancelled
        child.on_cancel(lambda: called.append(1))
        assert not called  # never in the frame that registers
        await asyncio.sleep(0)
        assert called == [1]

    run(main)


def test_any_is_cancelled_by_each_of_its_tokens_and_can_be_cancelled_alone() -> None:
    """`any(a, b)`: the first of them, or itself."""
    for which in range(3):
        a, b = CancellationToken(), CancellationToken()
        both = CancellationToken.any(a, b)
        (a, b, both)[which].cancel()
        assert both.is_cancelled
        assert [a.is_cancelled, b.is_cancelled] == [which == 0, which == 1]


def test_the_first_reason_stays_and_the_mode_only_escalates() -> None:
    """Also when the second request came from a parent."""
    root = CancellationToken()
    child = root.child()
    child.cancel("first", reason=CancelReason.ADMIN, mode=CancelMode.DRAIN_TOOLS)
    root.cancel("second", mode=CancelMode.KILL)
    root.cancel("third", mode=CancelMode.AFTER_TURN)
    assert child.cancellation is not None
    assert (child.cancellation.message, child.cancellation.reason) == ("first", CancelReason.ADMIN)
    assert child.cancellation.mode is CancelMode.KILL
    assert root.cancellation is not None
    assert (root.cancellation.message, root.cancellation.mode) == ("second", CancelMode.KILL)


# -- listening


@pytest.mark.virtual_time
async def test_callbacks_are_called_once_in_the_order_of_registration() -> None:
    """Two requests are one call; none runs in the canceller's frame."""
    token, called = CancellationToken(), []
    for name in "abc":
        token.on_cancel(lambda name=name: called.append(name))
    token.cancel()
    token.cancel(mode=CancelMode.KILL)
    assert called == []
    await asyncio.sleep(0)
    assert called == ["a", "b", "c"]


@pytest.mark.virtual_time
async def test_a_callback_that_was_taken_off_is_not_called() -> None:
    """`close()` may be called twice; leaving the registration's block does the same."""
    token, called = CancellationToken(), []
    registration = token.on_cancel(lambda: called.append("closed"))
    registration.close()
    registration.close()
    with token.on_cancel(lambda: called.append("left")):
        pass
    token.on_cancel(lambda: called.append("kept"))
    token.cancel()
    await asyncio.sleep(0)
    assert called == ["kept"]


@pytest.mark.scenario("B19", "J90")
@pytest.mark.virtual_time
async def test_a_callback_that_raises_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged; so it is when the callback calls back into the token, or cancels another one."""
    caplog.set_level(logging.ERROR, "halter")
    token, other, called = CancellationToken(), CancellationToken(), []

    def raises() -> None:
        raise ValueError("a bug in a callback")

    def reenters() -> None:
        token.cancel("again")
        token.on_cancel(lambda: called.append("registered while cancelled"))
        registrations[0].close()
        assert token.is_cancelled
        other.cancel()
        called.append("re-entrant")

    other.on_cancel(lambda: called.append("other"))
    registrations = [token.on_cancel(raises), token.on_cancel(reenters), token.on_cancel(lambda: called.append("last"))]
    token.cancel("first")
    await asyncio.sleep(1)
    assert called == ["re-entrant", "last", "registered while cancelled", "other"]
    assert "a bug in a callback" in caplog.text
    assert token.cancellation is not None
    assert token.cancellation.message == "first"


@pytest.mark.scenario("B19")
def test_a_callback_that_blocks_50_ms_delays_neither_the_canceller_nor_callbacks_elsewhere() -> None:
    """The canceller returns at once; a callback of another loop is not behind it."""
    token, called = CancellationToken(), {}
    registered, called_back = threading.Event(), asyncio.Event()

    def slow() -> None:
        time.sleep(0.05)
        called["slow"] = time.monotonic()

    def quick() -> None:
        called["quick"] = time.monotonic()
        called_back.set()

    async def other_loop() -> None:
        token.on_cancel(quick)
        registered.set()
        await called_back.wait()

    thread = threading.Thread(target=asyncio.run, args=(other_loop(),))
    thread.start()
    registered.wait(5)
    token.on_cancel(slow)  # no loop runs here: on the background loop
    asked = time.monotonic()
    token.cancel()
    returned = time.monotonic()
    thread.join(5)
    while "slow" not in called and time.monotonic() < asked + 5:
        time.sleep(0.001)
    assert_within(0.05, returned - asked)  # the callback alone takes that long
    assert_within(0.05, called["quick"] - asked)


@pytest.mark.scenario("J90")
@pytest.mark.virtual_time
async def test_a_callback_that_raises_or_re_enters_does_not_hold_up_a_runs_stop() -> None:
    """`on_cancel` on a run's own token: the stop ends all the same, confirmed."""
    called: list[str] = []

    @runnable
    async def body(ctx: Any) -> None:
        def raises() -> None:
            called.append("raises")
            raise ValueError("a bug")

        def reenters() -> None:
            ctx.token.cancel(mode=CancelMode.KILL)
            called.append(f"re-enters: {ctx.token.is_cancelled}")

        ctx.token.on_cancel(raises)
        ctx.token.on_cancel(reenters)
        await asyncio.sleep(100)

    handle = body.run().start()
    await asyncio.sleep(1)
    handle.cancel("first")
    result = await handle.finished()
    await asyncio.sleep(1)
    assert called == ["raises", "re-enters: True"]
    assert result.receipt is not None
    assert result.receipt.confirmed
    assert result.cancellation is not None
    assert result.cancellation.message == "first"


@pytest.mark.scenario("J90")
def test_a_callback_that_never_ends_leaves_the_stop_to_others() -> None:
    """One that blocks its loop for long (here the background loop) holds up no run that lives elsewhere."""
    release, entered = threading.Event(), threading.Event()
    token = CancellationToken()

    def never_ends() -> None:
        entered.set()
        release.wait(5)

    token.on_cancel(never_ends)

    @runnable
    async def body(ctx: Any) -> None:
        await asyncio.sleep(100)

    async def main() -> float:
        handle = body.run(cancellation=token).start()
        await asyncio.sleep(0.005)
        asked = time.monotonic()
        token.cancel()
        await handle.finished()
        return time.monotonic() - asked

    try:
        assert_within(T, asyncio.run(main()))
        assert entered.wait(5)
    finally:
        release.set()


@pytest.mark.virtual_time
async def test_waiting_returns_the_request_and_leaves_nothing_registered() -> None:
    """Also when the wait is cancelled."""
    root = CancellationToken()
    child = root.child()
    waits = [asyncio.ensure_future(token.wait()) for token in (root, child, child)]
    await asyncio.sleep(1)
    waits[2].cancel()
    await asyncio.wait([waits[2]])
    assert not waits[0].done()
    root.cancel("now")
    assert [(await wait).message for wait in waits[:2]] == ["now", "now"]
    assert (await child.wait()).message == "now"  # at once
    assert not root._listeners
    assert not child._listeners
    assert not child._relays
    assert not root._waiting.waiting
    assert not child._waiting.waiting


def test_registering_where_no_loop_runs_calls_back_on_the_background_loop() -> None:
    """Never in the canceller's frame."""
    token, done, where = CancellationToken(), threading.Event(), []

    def note() -> None:
        where.append(threading.current_thread().name)
        done.set()

    token.on_cancel(note)
    token.cancel()
    assert done.wait(5)
    assert where == ["halter-background-loop"]


def test_a_callback_whose_loop_is_closed_is_called_all_the_same() -> None:
    """In a thread of its own: a registration is never lost."""
    token, done = CancellationToken(), threading.Event()

    async def register() -> None:
        token.on_cancel(done.set)

    asyncio.run(register())
    token.cancel()
    assert done.wait(5)


# -- what it retains


@pytest.mark.scenario("I81")
@pytest.mark.virtual_time
async def test_a_token_does_not_know_children_that_nobody_listens_to() -> None:
    """10,000 children made and dropped under one token: it holds none, and no registration."""
    root = CancellationToken()
    gone = [weakref.ref(root.child()) for _ in range(10_000)]
    for _ in range(1_000):
        root.child().on_cancel(lambda: None).close()
    gc.collect()
    assert all(child() is None for child in gone)
    assert not root._listeners
    assert sys.getsizeof(root._listeners) < 1_000


@pytest.mark.scenario("I81", "E58")
@pytest.mark.virtual_time
async def test_a_thousand_runs_under_one_token_leave_no_registration() -> None:
    """Each run takes its own registration off at its end."""
    token = CancellationToken()

    @runnable
    async def body(ctx: Any) -> None:
        assert len(token._listeners) == 1
        await asyncio.sleep(0)

    for _ in range(1_000):
        await body.run(cancellation=token)
    assert not token._listeners


@pytest.mark.virtual_time
async def test_a_cancelled_token_stops_the_runs_it_governs_and_outlives_them() -> None:
    """One token, many runs: each is stopped with the token's own reason, mode and actor."""
    token = CancellationToken()

    @runnable
    async def body(ctx: Any) -> None:
        await asyncio.sleep(100)

    runs = [body.run(cancellation=token).start() for _ in range(5)]
    free = body.run().start()
    await asyncio.sleep(1)
    token.cancel("all of you", reason=CancelReason.ADMIN, mode=CancelMode.KILL, actor="root")
    assert all(handle.is_cancelling for handle in runs)  # at once
    results = [await handle.finished() for handle in runs]
    assert not free.is_cancelling
    await free.aclose()
    for result in results:
        assert result.cancellation is not None
        assert str(result.cancellation) == "admin by root (all of you)"
        assert result.cancellation.mode is CancelMode.KILL
    late = body.run(cancellation=token)
    assert (await late.finished()).is_cancelled


@pytest.mark.virtual_time
async def test_a_runs_own_token_is_cancelled_with_it_and_cancelling_it_cancels_the_run() -> None:
    """`ctx.token` and the run are one; a child made of it follows."""
    tokens: list[CancellationToken] = []

    @runnable
    async def body(ctx: Any) -> None:
        tokens.extend((ctx.token, ctx.token.child()))
        await asyncio.sleep(100)

    one = body.run().start()
    await asyncio.sleep(1)
    assert [token.is_cancelled for token in tokens] == [False, False]
    one.cancel("by handle")
    assert [token.is_cancelled for token in tokens] == [True, True]
    await one.finished()
    tokens.clear()
    other = body.run().start()
    await asyncio.sleep(1)
    tokens[1].cancel()
    assert not other.is_cancelling
    tokens[0].cancel("by token")
    assert other.is_cancelling
    result = await other.finished()
    assert result.cancellation is not None
    assert result.cancellation.message == "by token"
