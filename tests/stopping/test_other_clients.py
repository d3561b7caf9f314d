"""`ctx.use`: a stream of the official SDK inside a run of ours is closed by its stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from halter import RunContext, runnable
from halter.outcome import Ended
from halter.testing.wire_probe import WireProbe

from ..bounds import T, assert_within
from .adapters import KEY


async def opened(client: openai.AsyncOpenAI) -> Any:
    return await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "count"}], stream=True)


async def reads_on(stream: AsyncIterator[Any]) -> None:
    async for _ in stream:
        pass


async def waits_elsewhere(stream: AsyncIterator[Any]) -> None:
    await anext(stream)
    await asyncio.sleep(60)


async def holds_a_thread(stream: AsyncIterator[Any]) -> None:
    await anext(stream)
    await asyncio.to_thread(time.sleep, 0.01)
    await asyncio.Event().wait()


@pytest.mark.scenario("A3", "C34")
@pytest.mark.loops
@pytest.mark.parametrize("consume", [reads_on, waits_elsewhere, holds_a_thread])
async def test_a_stream_of_the_official_sdk_is_closed_by_the_runs_stop(wire: WireProbe, consume: Any) -> None:
    """Without `async with` on the SDK's side, and wherever the body waits: the provider sees the close in time."""
    async with openai.AsyncOpenAI(base_url=wire.url("stall(2)"), api_key=KEY, max_retries=0) as client:

        @runnable
        async def body(ctx: RunContext) -> None:
            async with ctx.use(await opened(client), label="sdk") as stream:
                await consume(stream)

        run = body.run().start()
        await wire.awaited("token")
        await asyncio.sleep(0.05)
        asked = time.monotonic()
        run.cancel()
        result = await run.finished()
        assert_within(T, time.monotonic() - asked)
        assert result.is_cancelled
        assert result.receipt is not None
        assert ("sdk", Ended.CLOSED) in [(line.label, line.ended) for line in result.receipt.resources]
        wire.assert_closed(T, since=asked)


@pytest.mark.loops
async def test_a_stream_that_ends_by_itself_is_closed_and_no_more(wire: WireProbe) -> None:
    """Read to its end inside `ctx.use`: the run completes, and the client's connection may be used again."""
    async with openai.AsyncOpenAI(base_url=wire.url("steady(5,1)"), api_key=KEY, max_retries=0) as client:

        @runnable
        async def body(ctx: RunContext) -> str:
            said: list[str] = []
            async with ctx.use(await opened(client)) as stream:
                async for chunk in stream:
                    said += [choice.delta.content or "" for choice in chunk.choices]
            return "".join(said)

        for _ in range(2):
            assert (await body.run()).output == "t0 t1 t2 t3 t4 "
        assert len({record.connection for record in wire.requests()}) == 1
