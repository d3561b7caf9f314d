"""`ctx.at_end`: what a body has to add once all under it is over, however it ended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from halter import CancelMode, Message, RunContext, RunStatus, runnable

virtual = pytest.mark.virtual_time


@runnable
async def child(ctx: RunContext, fails: bool) -> str:
    try:
        await asyncio.sleep(1)
        if fails:
            raise LookupError("the child's own")
        return "done"
    finally:
        ctx.keep("as far as it came")


@runnable
async def parent(ctx: RunContext, fails: bool) -> str:
    run = ctx.start(child, fails)

    def add() -> None:
        assert run.outcome is not None
        ctx.keep((run.outcome.status, run.outcome.state))
        ctx.say(Message.assistant("said at the end"))

    ctx.at_end(add)
    return (await run).output or ""


@pytest.mark.parametrize("mode", [None, CancelMode.IMMEDIATE, CancelMode.KILL])
@pytest.mark.parametrize("fails", [False, True])
@virtual
async def test_it_is_called_when_the_children_are_over_however_the_run_ends(
    mode: CancelMode | None, fails: bool
) -> None:
    """Also under a stop that leaves the body no time to wait for them."""
    run = parent.run(fails, grace=0).start()
    await asyncio.sleep(0.5)
    if mode is not None:
        run.cancel(mode=mode)
    result = await run.finished()
    expected = RunStatus.FAILED if fails else RunStatus.COMPLETED
    assert result.status == (expected if mode is None else RunStatus.CANCELLED)
    assert result.state == (result.status, "as far as it came")
    assert [message.text for message in result.messages] == ["said at the end"]
    if mode is not None:
        assert result.receipt is not None
        assert result.receipt.confirmed, str(result.receipt)


@virtual
async def test_the_last_one_given_counts_and_none_is_nothing() -> None:
    called: list[str] = []

    @runnable
    async def body(ctx: RunContext, last: str | None) -> None:
        ctx.at_end(lambda: called.append("first"))
        ctx.at_end(None if last is None else lambda: called.append(last))

    await body.run("second")
    await body.run(None)
    assert called == ["second"]


@pytest.mark.parametrize("error", [LookupError("lost"), SystemExit(3)], ids=repr)
@virtual
async def test_one_that_raises_is_logged_and_changes_nothing(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    @runnable
    async def body(ctx: RunContext) -> Any:
        def add() -> None:
            raise error

        ctx.keep("kept before")
        ctx.at_end(add)
        return 7

    result = await body.run()
    assert (result.output, result.state) == (7, "kept before")
    assert "has left to its end failed" in caplog.text
