"""The provider in memory: it keeps its script's time, records what happened, and is closed by a stop."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2 as httpx
import msgspec
import pytest
from openai import OpenAI

from halter import RunContext, RunFailed, RunResult, runnable
from halter.core.ports import HttpRequest
from halter.core.sse import FrameSplitter
from halter.errors import ConnectionFailed
from halter.outcome import Ended
from halter.testing import HANG, Answer, DeadlockError, MemorySource, SweepOutcome, cancel_sweep, run
from halter.testing.memory import (
    chat_stream,
    cut,
    eof,
    error_frame,
    error_status,
    no_head,
    no_slot,
    stalled,
)

REQUEST = HttpRequest(url="https://provider.test/v1/chat?key=1", headers={"x-a": "b"}, body=b'{"stream":true}')


class Phases:
    """A `Progress` that notes when it was told what."""

    def __init__(self) -> None:
        self.told: list[tuple[str, float]] = []

    def connecting(self) -> None:
        self.told.append(("connecting", now()))

    def sending(self) -> None:
        self.told.append(("sending", now()))


def now() -> float:
    return asyncio.get_running_loop().time()


async def read(source: MemorySource, ctx: RunContext, progress: Phases | None = None) -> list[tuple[float, bytes]]:
    """The reads of one whole answer, each with its time."""
    async with source.open(REQUEST, ctx, progress or Phases()) as stream:
        return [(now(), data) async for data in stream]


def inside(body: Callable[[RunContext], Awaitable[Any]]) -> Any:
    """What a run of `body` returns, in virtual time; or what its body raised."""

    async def execute(ctx: RunContext) -> Any:
        return await body(ctx)

    try:
        return run(lambda: result_of(runnable(execute).run()), timeout=10_000)
    except RunFailed as failed:
        raise (failed.__cause__ or failed) from None


async def result_of(handle: Awaitable[RunResult[Any]]) -> Any:
    return (await handle).output


def frames(answer: Answer) -> list[bytes]:
    splitter = FrameSplitter()
    return [bytes(frame) for frame in splitter.feed(answer.payload)]


# -- time and bytes


def test_each_phase_and_each_read_takes_the_time_of_the_script() -> None:
    answer = Answer(pool=1, connect=2, head=3, body=((0.0, b"a"), (0.5, b"b"), (0.0, b"c")))
    source, phases = MemorySource(answer), Phases()
    reads = inside(lambda ctx: read(source, ctx, phases))
    assert phases.told == [("connecting", 1.0), ("sending", 3.0)]
    assert reads == [(6.0, b"a"), (6.5, b"b"), (6.5, b"c")]


def test_the_head_tells_the_status_and_its_headers_in_lower_case() -> None:
    async def body(ctx: RunContext) -> tuple[int, dict[str, str]]:
        async with MemorySource(Answer(status=204, headers={"Retry-After": "3"})).open(REQUEST, ctx, Phases()) as head:
            return head.status, dict(head.headers)

    assert inside(body) == (204, {"retry-after": "3"})


def test_what_takes_no_time_does_not_give_up_control() -> None:
    async def body(ctx: RunContext) -> list[int]:
        ticks: list[int] = []
        asyncio.get_running_loop().call_soon(ticks.append, 1)
        await read(MemorySource(chat_stream(100, every=0)), ctx)
        return list(ticks)

    assert inside(body) == []


def test_a_body_that_was_read_stays_read() -> None:
    async def body(ctx: RunContext) -> tuple[list[bytes], list[bytes]]:
        async with MemorySource(Answer(body=((0, b"a"),))).open(REQUEST, ctx, Phases()) as stream:
            return [data async for data in stream], [data async for data in stream]

    assert inside(body) == ([b"a"], [])


# -- the record


def test_a_request_is_recorded_with_all_that_was_sent() -> None:
    source = MemorySource(chat_stream(2, every=1.0))

    async def body(ctx: RunContext) -> None:
        await asyncio.sleep(5)
        await read(source, ctx)

    inside(body)
    [record] = source.requests
    assert (record.at, record.url, record.headers, record.body) == (5.0, REQUEST.url, {"x-a": "b"}, REQUEST.body)
    assert record.json == {"stream": True}
    assert (record.ended, record.finished_at, record.aborted_at) == ("finished", 7.0, None)
    assert record.bytes_read == len(chat_stream(2).payload)
    assert repr(record) == "<MemoryRequest POST provider.test/v1/chat made at 5 s, finished at 7 s>"
    assert source.open_requests == []


def test_a_body_left_early_is_aborted_at_that_instant() -> None:
    source = MemorySource(chat_stream(10, every=1.0))

    async def body(ctx: RunContext) -> None:
        async with source.open(REQUEST, ctx, Phases()) as stream:
            async for _ in stream:
                if now() >= 3.0:
                    break

    inside(body)
    [record] = source.requests
    assert (record.ended, record.phase, record.aborted_at, record.finished_at) == ("aborted", "body", 3.0, None)


@pytest.mark.parametrize(
    ("answer", "phase"),
    [(no_slot(), "pool"), (Answer(connect=HANG), "connect"), (no_head(), "head"), (stalled(2), "body")],
)
def test_a_stop_ends_it_in_whatever_phase_it_hangs(answer: Answer, phase: str) -> None:
    source = MemorySource(answer)

    async def main() -> Any:
        async def execute(ctx: RunContext) -> None:
            await read(source, ctx)

        handle = runnable(execute).run().start()
        await asyncio.sleep(60)
        assert [(record.phase, record.is_open) for record in source.requests] == [(phase, True)]
        handle.cancel()
        return await handle.finished()

    result = run(main)
    [record] = source.requests
    assert (record.ended, record.aborted_at, record.phase) == ("aborted", 60.0, phase)
    sockets = [(line.label, line.ended) for line in result.receipt.resources if line.kind == "socket"]
    assert sockets == [("POST provider.test/v1/chat", Ended.CLOSED)]


def test_a_stop_leaves_nothing_at_any_step() -> None:
    sources: list[MemorySource] = []

    async def scenario(sweep: Any) -> Any:
        source = MemorySource(Answer(pool=1, connect=1, head=1, body=chat_stream(3, every=1).body))
        sources.append(source)

        async def execute(ctx: RunContext) -> None:
            await read(source, ctx)

        handle = runnable(execute).run()
        sweep.cancel = handle.cancel
        return await handle.finished()

    def check(outcome: SweepOutcome) -> None:
        assert outcome.stopped_after == 0.0
        assert sources[-1].open_requests == []
        lines = outcome.result.receipt.resources if outcome.result.receipt else ()
        assert all(line.ended is not Ended.ABANDONED for line in lines)

    assert cancel_sweep(scenario, check=check) > 10


def test_a_connection_that_a_body_left_open_is_closed_at_its_end() -> None:
    source = MemorySource(stalled())

    async def body(ctx: RunContext) -> None:
        await source.open(REQUEST, ctx, Phases()).__aenter__()

    inside(body)
    assert [record.ended for record in source.requests] == ["aborted"]
    gc.collect()


def test_closing_it_fails_whoever_reads_it_elsewhere() -> None:
    source = MemorySource(stalled(1, every=1.0))

    async def body(ctx: RunContext) -> str:
        async def reader() -> None:
            with pytest.raises(ConnectionFailed, match="the connection is closed"):
                await read(source, ctx)

        task = asyncio.ensure_future(reader())
        await asyncio.sleep(5)
        [resource] = [resource for resource in ctx._execution.resources.values() if resource.kind == "socket"]
        assert resource.close is not None
        resource.close()
        await task
        return "closed"

    assert inside(body) == "closed"


# -- what fails as scripted


@pytest.mark.parametrize("phase", ["pool", "connect", "head"])
def test_a_phase_may_fail(phase: str) -> None:
    source = MemorySource(Answer(**{phase: ConnectionFailed("refused")}))
    with pytest.raises(ConnectionFailed, match="refused"):
        inside(lambda ctx: read(source, ctx))
    assert [(record.ended, record.phase) for record in source.requests] == [("broken", phase)]


def test_a_body_may_break() -> None:
    source = MemorySource(cut(2, error=ConnectionFailed("reset by peer")))
    with pytest.raises(ConnectionFailed, match="reset by peer"):
        inside(lambda ctx: read(source, ctx))
    [record] = source.requests
    assert record.ended == "broken"
    assert record.aborted_at is None


def test_what_hangs_with_nobody_to_end_it_is_a_deadlock_and_not_a_hang() -> None:
    with pytest.raises(DeadlockError):
        inside(lambda ctx: read(MemorySource(no_head()), ctx))


# -- the script


def test_answers_are_given_in_turn_and_one_too_many_is_said_so() -> None:
    source = MemorySource(Answer(body=((0, b"1"),)), lambda request: Answer(body=((0, request.body),)))

    async def body(ctx: RunContext) -> list[bytes]:
        return [data for _ in range(2) for _, data in await read(source, ctx)]

    assert inside(body) == [b"1", REQUEST.body]
    with pytest.raises(AssertionError, match=r"nobody expected request 3, POST provider\.test/v1/chat"):
        inside(lambda ctx: read(source, ctx))


def test_a_script_may_repeat() -> None:
    source = MemorySource(Answer(body=((0, b"1"),)), Answer(body=((0, b"2"),)), repeat=True)

    async def body(ctx: RunContext) -> list[bytes]:
        return [data for _ in range(3) for _, data in await read(source, ctx)]

    assert inside(body) == [b"1", b"2", b"1"]
    assert repr(source) == "<MemorySource 3 requests, 0 open>"


@pytest.mark.parametrize("wrong", [{"pool": -1}, {"head": float("nan")}, {"body": ((-0.5, b""),)}])
def test_a_delay_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a delay is 0 seconds or more"):
        Answer(**wrong)


def test_a_source_needs_an_answer() -> None:
    with pytest.raises(ValueError, match="needs an answer"):
        MemorySource()


# -- the chat format


def content(answer: Answer) -> str:
    chunks = [msgspec.json.decode(frame) for frame in frames(answer) if frame != b"[DONE]"]
    return "".join(choice["delta"].get("content", "") for chunk in chunks for choice in chunk.get("choices", ()))


def test_a_chat_stream_is_a_role_its_tokens_a_reason_and_done() -> None:
    whole = frames(chat_stream(["Hel", "lo"], usage=(3, 2)))
    role, one, two, end, usage = (msgspec.json.decode(frame) for frame in whole[:-1])
    assert role["choices"][0]["delta"]["role"] == "assistant"
    assert [chunk["choices"][0]["delta"]["content"] for chunk in (one, two)] == ["Hel", "lo"]
    assert end["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 5)
    assert whole[-1] == b"[DONE]"


def test_tokens_are_counted_listed_or_the_words_of_a_text() -> None:
    assert content(chat_stream(3)) == "t0 t1 t2 "
    assert content(chat_stream("a river,\n and another")) == "a river,\n and another"
    assert len(chat_stream("a river").body) == 4
    assert content(chat_stream(())) == ""


def test_the_first_token_may_take_its_own_time() -> None:
    assert [delay for delay, _ in chat_stream(3, every=1.0, first=30.0).body] == [0.0, 30.0, 1.0, 1.0, 0.0]


def test_a_refusal_has_its_status_and_says_when_to_come_back() -> None:
    answer = error_status(429, retry_after=2.5, after=1.0)
    assert (answer.status, answer.head, answer.headers["retry-after"]) == (429, 1.0, "2.5")
    assert b"rate_limit_exceeded" in answer.payload
    assert "retry-after" not in error_status(500).headers
    assert error_status(429, retry_after="Wed, 21 Oct 2026 07:28:00 GMT").headers["retry-after"].startswith("Wed")


def test_the_bad_streams_are_bad_as_they_say() -> None:
    assert content(stalled(2)) == content(eof(2)) == content(error_frame(2)) == content(cut(2)) == "t0 t1 "
    assert stalled(2).body[-1] == (HANG, b"")
    assert not any(b"[DONE]" in answer.payload for answer in (stalled(2), eof(2), error_frame(2), cut(2)))
    assert b'"error"' in frames(error_frame(2))[-1]
    assert not cut(2).payload.endswith(b"\n")


def test_the_official_client_reads_it() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        scripted = chat_stream("a river runs", usage=(1, 3))
        return httpx.Response(200, headers=dict(scripted.headers), content=scripted.payload)

    with httpx.Client(transport=httpx.MockTransport(answer)) as http, OpenAI(api_key="any", http_client=http) as client:
        messages: Any = [{"role": "user", "content": "?"}]
        chunks = list(client.chat.completions.create(model="m", messages=messages, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "a river runs"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 3
