"""What a stop must end, and the receipt that tells how it went: measured, complete, never assumed."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from halter import CancelMode, RunCancelled, runnable
from halter.core.resources import Resource, receipt
from halter.errors import UsageError
from halter.outcome import CancelReceipt, Ended, ReceiptLine
from halter.testing import Sweep, cancel_sweep

virtual = pytest.mark.virtual_time


class Stream:
    """Somebody else's stream. `takes`: seconds that its closing takes."""

    def __init__(self, name: str = "stream", takes: float = 0.0, error: Exception | None = None) -> None:
        self.name, self.takes, self.error = name, takes, error
        self.closings = 0
        self.is_closed = False

    async def aclose(self) -> None:
        self.closings += 1
        await asyncio.sleep(self.takes)
        if self.error is not None:
            raise self.error
        self.is_closed = True


class Client:
    """One with a plain `close`."""

    closings = 0

    def close(self) -> None:
        self.closings += 1


# -- one resource


def test_the_first_word_on_how_it_ended_counts() -> None:
    """`end()` again changes nothing; its repr tells the truth."""
    ended: list[Resource] = []
    resource = Resource("socket", "a", "r", None, ended.append)
    assert repr(resource) == "<Resource socket 'a' open>"
    resource.is_closing = True
    assert repr(resource) == "<Resource socket 'a' closing>"
    resource.end(Ended.CLOSED)
    at = resource.ended_at
    resource.end(Ended.ABANDONED)
    assert (resource.ended, resource.ended_at, ended) == (Ended.CLOSED, at, [resource])
    assert repr(resource) == "<Resource socket 'a' closed>"


def test_a_receipt_says_confirmed_only_if_nothing_was_abandoned() -> None:
    """And what has not ended by then counts as abandoned, without a time."""
    done, left = (Resource("socket", name, "r", None, lambda _: None) for name in ("done", "left"))
    done.end(Ended.CLOSED)
    assert receipt(1.0, done.ended_at - 0.005, [done], True).confirmed
    assert not receipt(1.0, done.ended_at, [done], False).confirmed
    told = receipt(1.0, done.ended_at - 0.005, [done, left], True)
    assert not told.confirmed
    assert [(line.label, line.ended) for line in told.resources] == [("done", "closed"), ("left", "abandoned")]
    assert told.resources[0].ended_after_ms == pytest.approx(5.0)
    assert told.resources[1].ended_after_ms is None


def test_a_printed_receipt_is_a_few_aligned_lines() -> None:
    """One for each resource, the words under each other."""
    lines = (
        ReceiptLine(kind="socket", label="POST api", run_id="r", ended=Ended.CLOSED, ended_after_ms=1.234),
        ReceiptLine(kind="task", label="a", run_id="r", ended=Ended.ABANDONED, ended_after_ms=None),
    )
    told = CancelReceipt(requested_at=0.0, stopped_after_ms=2.5, confirmed=False, resources=lines)
    assert str(told).splitlines() == [
        "NOT confirmed after 2.50 ms, 2 open at the stop",
        "  socket  POST api  closed after 1.23 ms",
        "  task    a         abandoned",
    ]


# -- in a run


@virtual
async def test_ctx_use_closes_at_the_end_of_the_block_and_is_in_no_receipt_then() -> None:
    """Once, whether the block ends well or badly."""
    streams = Stream(), Stream(), Client()

    @runnable
    async def body(ctx: Any) -> None:
        async with ctx.use(streams[0]) as entered:
            assert entered is streams[0]
        with pytest.raises(ValueError):
            async with ctx.use(streams[1]):
                raise ValueError
        async with ctx.use(streams[2]):
            pass
        assert [stream.closings for stream in streams] == [1, 1, 1]
        await asyncio.sleep(100)

    handle = body.run().start()
    await asyncio.sleep(1)
    await handle.aclose()
    assert handle.outcome is not None
    assert handle.outcome.receipt is not None
    assert [line.kind for line in handle.outcome.receipt.resources] == ["task"]
    assert [stream.closings for stream in streams] == [1, 1, 1]


@pytest.mark.parametrize("takes", [0.0, 1.0])
@virtual
async def test_ctx_use_is_closed_once_by_a_stop_and_the_receipt_says_so(takes: float) -> None:
    """The stop and the end of the block share one closing; the run's end waits for it."""
    stream = Stream(takes=takes)

    @runnable
    async def body(ctx: Any) -> None:
        async with ctx.use(stream, kind="socket", label="mine"):
            await asyncio.sleep(100)

    handle = body.run().start()
    await asyncio.sleep(1)
    await handle.aclose()
    assert (stream.closings, stream.is_closed) == (1, True)
    assert asyncio.get_running_loop().time() == 1 + takes
    assert handle.outcome is not None
    assert handle.outcome.receipt is not None
    lines = {line.kind: line for line in handle.outcome.receipt.resources}
    assert (lines["socket"].label, lines["socket"].ended, lines["socket"].run_id) == ("mine", "closed", handle.id)
    assert handle.outcome.receipt.confirmed


@virtual
async def test_ctx_use_of_what_cannot_be_closed_is_a_usage_error() -> None:
    """Before the block is entered."""

    @runnable
    async def body(ctx: Any) -> None:
        with pytest.raises(UsageError, match="neither aclose"):
            async with ctx.use(object()):
                raise AssertionError("not reached")

    assert (await body.run()).is_completed


@pytest.mark.parametrize("how", ["raises", "fails later", "hangs"])
@virtual
async def test_a_resource_whose_closing_fails_counts_as_abandoned_and_is_logged(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are closed all the same, and the run ends: at once, or when the grace is over."""
    other = Stream()

    async def later() -> None:
        await asyncio.sleep(0.5)
        raise OSError("it would not close")

    def close() -> Any:
        if how == "raises":
            raise OSError("it would not close")
        return later() if how == "fails later" else asyncio.get_running_loop().create_future()

    @runnable
    async def body(ctx: Any) -> None:
        ctx.resource("thing", "bad", close)
        async with ctx.use(other, label="good"):
            await asyncio.sleep(100)

    handle = body.run(grace=3).start()
    await asyncio.sleep(1)
    await handle.aclose()
    assert asyncio.get_running_loop().time() == {"raises": 1, "fails later": 1.5, "hangs": 4}[how]
    assert handle.outcome is not None
    assert handle.outcome.receipt is not None
    ended = {line.label: str(line.ended) for line in handle.outcome.receipt.resources if line.kind != "task"}
    assert ended == {"bad": "abandoned", "good": "closed"}
    assert not handle.outcome.receipt.confirmed
    assert "bad" in caplog.text
    if how != "hangs":
        assert "it would not close" in caplog.text


@virtual
async def test_a_resource_that_the_body_leaves_open_is_closed_when_it_ends() -> None:
    """Completed or failed: newest first, before the terminal event."""
    closed: list[str] = []

    @runnable
    async def body(ctx: Any, fails: bool) -> str:
        for name in "abc":
            ctx.resource("thing", name, lambda name=name: closed.append(name))
        if fails:
            raise ValueError
        return "done"

    assert (await body.run(False)).output == "done"
    assert closed == ["c", "b", "a"]
    assert (await body.run(True).finished()).is_failed
    assert closed == ["c", "b", "a"] * 2


@pytest.mark.parametrize("mode", [CancelMode.IMMEDIATE, CancelMode.KILL])
@virtual
async def test_a_resource_opened_after_the_cut_is_closed_all_the_same(mode: CancelMode) -> None:
    """By a clean-up that opens a connection and leaves it: nothing of a stopped run stays open."""
    closed: list[str] = []

    @runnable
    async def body(ctx: Any, how: str) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ctx.resource("thing", how, lambda: closed.append(how))
            while how == "stubborn":
                try:
                    await asyncio.sleep(30)
                    break
                except asyncio.CancelledError:
                    pass

    logging.getLogger("halter").setLevel(logging.CRITICAL)
    try:
        for how in ("returns", "stubborn"):
            handle = body.run(how, grace=2).start()
            await asyncio.sleep(1)
            handle.cancel(mode=mode)
            began = asyncio.get_running_loop().time()
            await handle.finished()
            assert closed.pop() == how
            waits = how == "stubborn" and mode is CancelMode.IMMEDIATE
            assert asyncio.get_running_loop().time() - began == (2 if waits else 0)
        await asyncio.sleep(100)
    finally:
        logging.getLogger("halter").setLevel(logging.NOTSET)


@virtual
async def test_a_resource_that_ended_by_itself_before_the_stop_is_in_no_receipt() -> None:
    """And one that ends by itself during it is `finished`, not `closed`."""

    @runnable
    async def body(ctx: Any) -> None:
        ctx.resource("thing", "before", lambda: None).end()
        during = ctx.resource("thing", "during", lambda: asyncio.sleep(50))
        try:
            await asyncio.sleep(100)
        finally:
            during.end()

    handle = body.run().start()
    await asyncio.sleep(1)
    handle.cancel()
    with pytest.raises(RunCancelled) as caught:
        await handle
    assert caught.value.result is not None
    assert caught.value.result.receipt is not None
    lines = {line.label: str(line.ended) for line in caught.value.result.receipt.resources}
    assert lines == {"during": "finished", "body": "cancelled"}
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()  # the closing that nobody needed any more


@virtual
async def test_the_root_s_receipt_covers_the_tree_and_a_child_s_its_own_part() -> None:
    """Every line says whose it is."""

    @runnable
    async def leaf(ctx: Any) -> None:
        async with ctx.use(Stream(), label="leaf's"):
            await asyncio.sleep(100)

    children: list[Any] = []

    @runnable
    async def body(ctx: Any) -> None:
        children.append(ctx.start(leaf))
        async with ctx.use(Stream(), label="root's"):
            await asyncio.sleep(100)

    handle = body.run().start()
    await asyncio.sleep(1)
    await handle.aclose()
    (child,) = children
    whole, part = handle.outcome.receipt, child.outcome.receipt  # pyright: ignore
    assert {line.label for line in part.resources} == {"leaf", "leaf's"}
    assert {line.label: line.run_id for line in whole.resources} == {
        "body": handle.id,
        "root's": handle.id,
        "leaf": child.id,
        "leaf's": child.id,
    }


@pytest.mark.scenario("I82")
@pytest.mark.parametrize("takes", [0.0, 1.0])
def test_ctx_use_is_closed_exactly_once_wherever_the_stop_comes(takes: float) -> None:
    """Swept over every step, with the run's stop and with a cancel of the user's own task."""
    streams: list[Stream] = []

    @runnable
    async def body(ctx: Any) -> str:
        streams.append(Stream(takes=takes))
        async with ctx.use(streams[-1]):
            await asyncio.sleep(1)
        return "done"

    def check(_: Any) -> None:
        assert all((stream.closings, stream.is_closed) == (1, True) for stream in streams)
        streams.clear()

    async def stopped(sweep: Sweep) -> None:
        handle = body.run()
        sweep.cancel = handle.cancel
        result = await handle.finished()
        assert result.receipt is None or result.receipt.confirmed

    async def cancelled() -> None:
        handle = body.run()
        try:
            await handle
        finally:
            await handle.finished()

    streams.clear()
    assert cancel_sweep(stopped, check=check) > 3
    streams.clear()
    assert cancel_sweep(cancelled, check=check) > 3


# -- what its close returns


@virtual
@pytest.mark.parametrize("returned", [True, False, 0, "closed", ("a", "pair")], ids=str)
async def test_a_close_that_returns_anything_but_an_awaitable_has_closed(returned: object) -> None:
    """`task.cancel` returns True: that is a result, nothing to wait for."""

    @runnable
    async def body(ctx: Any) -> None:
        ctx.resource("task", "pump", lambda: returned)
        await asyncio.sleep(10)

    run = body.run().start()
    await asyncio.sleep(1)
    run.cancel()
    receipt = (await run.finished()).receipt
    assert receipt is not None
    assert [line.ended for line in receipt.resources if line.label == "pump"] == [Ended.CLOSED]
    assert receipt.confirmed


@virtual
async def test_a_tasks_cancel_can_be_the_close_of_a_resource() -> None:
    pumps: list[asyncio.Task[None]] = []

    @runnable
    async def body(ctx: Any) -> None:
        pumps.append(asyncio.create_task(asyncio.sleep(100)))
        ctx.resource("task", "pump", pumps[0].cancel)
        await asyncio.sleep(10)

    run = body.run().start()
    await asyncio.sleep(1)
    run.cancel()
    receipt = (await run.finished()).receipt
    assert receipt is not None
    assert receipt.confirmed
    assert pumps[0].cancelled()


# -- what a receipt must not forget


@virtual
async def test_a_stop_made_stronger_keeps_the_lines_of_what_the_first_one_has_ended() -> None:
    @runnable
    async def body(ctx: Any) -> None:
        ctx.resource("door", "front", lambda: None)
        ctx.resource("door", "back", lambda: asyncio.sleep(100))
        await asyncio.sleep(1_000)

    run = body.run(grace=10).start()
    await asyncio.sleep(1)
    run.cancel()
    await asyncio.sleep(1)
    run.cancel(mode=CancelMode.KILL)
    receipt = (await run.finished()).receipt
    assert receipt is not None
    assert {(line.label, line.ended) for line in receipt.resources} == {
        ("body", "cancelled"),
        ("front", "closed"),
        ("back", "abandoned"),
    }


@virtual
async def test_what_was_opened_after_the_cut_and_never_ends_is_named() -> None:
    """In the clean-up of a body; the receipts of the runs above name it as well."""

    @runnable
    async def child(ctx: Any) -> None:
        try:
            await asyncio.sleep(1_000)
        finally:
            ctx.resource("door", "late", None)

    @runnable
    async def parent(ctx: Any) -> None:
        await child.run()

    run = parent.run(grace=1).start()
    await asyncio.sleep(1)
    run.cancel()
    receipt = (await run.finished()).receipt
    assert receipt is not None
    assert [line.ended for line in receipt.resources if line.label == "late"] == ["abandoned"]
    assert not receipt.confirmed


async def _stopped_child_takes(seconds: float) -> CancelReceipt:
    taken: list[Any] = []

    @runnable
    async def child(ctx: Any) -> None:
        ctx.on_cancel(lambda: asyncio.sleep(seconds))
        await asyncio.sleep(1_000)

    @runnable
    async def parent(ctx: Any) -> None:
        taken.append(ctx.start(child))
        await asyncio.sleep(1_000)

    run = parent.run().start()
    await asyncio.sleep(0.01)
    run.cancel()
    await run.finished()
    return taken[0].outcome.receipt


def test_the_receipt_of_a_child_counts_from_the_stop_that_has_reached_it() -> None:
    receipt = asyncio.run(_stopped_child_takes(0.05))
    assert receipt.stopped_after_ms >= 45
    assert max(line.ended_after_ms or 0 for line in receipt.resources) >= 45
