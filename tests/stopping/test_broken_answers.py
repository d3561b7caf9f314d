"""A7, A8, J87, retries and time-outs: what the provider does wrong, told as what it is."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from halter import Agent, Run, RunFailed, RunResult, RunStatus, RunTimedOut, events
from halter.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    ContextTooLong,
    IncompleteStream,
    ModelNotFound,
    ProviderError,
    RateLimited,
    RequestRejected,
    ServerFailed,
    StreamTimeout,
)
from halter.models import answer_body, http
from halter.models.http import Timeouts
from halter.testing.wire_probe import WireProbe

from ..bounds import Late, T, assert_within
from .adapters import KEY, Adapter
from .descriptors import sockets_to
from .forms import AsyncForm, BlockingForm

Form = AsyncForm | BlockingForm
Reach = Callable[[str], tuple[str, dict[str, Any], int]]
WHOLE = "".join(f"t{index} " for index in range(20))
PAUSE = 0.05  # seconds between attempts, in place of half a second


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long the policy's own waits are is proven in virtual time; that they are kept, here."""
    monkeypatch.setattr(http, "_backoff", lambda attempt: PAUSE)
    monkeypatch.setattr(answer_body, "TAIL_PATIENCE", 0.25)


Ended = tuple[RunResult[Any], list[events.Event]]


def result_of(form: Form, agent: Agent, **options: Any) -> Ended:
    """The result of one run, whatever it is, and its log."""
    return results_of(form, [agent], **options)[0]


def results_of(form: Form, agents: list[Agent], **options: Any) -> list[Ended]:
    """The results and logs of one run for each, all at once."""
    if isinstance(form, BlockingForm):
        runs = [agent.run("count", **options).start() for agent in agents]
        logs = [list(run.events()) for run in runs]
        return [(_outcome(run), log) for run, log in zip(runs, logs, strict=True)]

    async def one(agent: Agent) -> Ended:
        run = agent.run("count", **options)
        return await run.finished(), [event async for event in run.events()]

    async def main() -> list[Ended]:
        return await asyncio.gather(*map(one, agents))

    return form.drive(main())


def _outcome(run: Run[Any]) -> RunResult[Any]:
    assert run.outcome is not None
    return run.outcome


def retries_in(log: list[events.Event]) -> list[float]:
    return [event.delay for event in log if isinstance(event, events.ModelRetry)]


def causes_in(log: list[events.Event]) -> list[events.Failure]:
    """Why it was asked again: what a failed assertion should show."""
    return [event.cause for event in log if isinstance(event, events.ModelRetry)]


# --- A7, A8 -------------------------------------------------------------------------------------------------


@pytest.mark.scenario("A7")
@pytest.mark.parametrize(
    ("mode", "kind"),
    [("error-frame(3)", ServerFailed), ("cut(3)", ProviderError), ("reset(3)", ConnectionFailed)],
)
def test_an_answer_that_breaks_after_it_was_shown_is_failed_with_its_partial_text(
    wire: WireProbe, adapter: Adapter, form: Form, reach: Reach, mode: str, kind: type[Exception]
) -> None:
    """An error frame, a cut, a reset within the answer: failed, what came is kept, and nothing is asked again."""
    url, options, _ = reach(mode)
    result, log = result_of(form, adapter.agent(url, **options))
    assert result.status is RunStatus.FAILED
    assert isinstance(result.error, kind)
    assert result.text
    assert "t0 t1 t2 ".startswith(result.text)
    assert result.messages[-1].text == result.text
    assert result.messages[-1].interrupted
    assert log[-1].type == "run.failed"
    assert retries_in(log) == [], causes_in(log)
    assert len(wire.requests()) == 1


@pytest.mark.scenario("A7")
@pytest.mark.parametrize("mode", ["error-frame(0)", "cut(0)", "reset(0)", "eof(0)"])
def test_an_answer_that_breaks_before_anything_was_shown_is_asked_for_again(
    wire: WireProbe, adapter: Adapter, form: Form, mode: str
) -> None:
    """One retry, as told; then it is failed, never completed."""
    result, log = result_of(form, adapter.agent(wire.url(mode), max_retries=1))
    assert result.status is RunStatus.FAILED
    assert result.text == ""
    assert retries_in(log) == [PAUSE], causes_in(log)
    assert [event.attempt for event in log if isinstance(event, events.ModelRequested)] == [1, 2]
    assert len(wire.requests()) == 2


@pytest.mark.scenario("A8")
def test_a_body_that_ends_without_its_terminal_frame_is_incomplete(
    wire: WireProbe, adapter: Adapter, form: Form, reach: Reach
) -> None:
    """A clean end of the body is no end of the answer: failed as incomplete, with what came."""
    url, options, _ = reach("eof(3)")
    result, log = result_of(form, adapter.agent(url, **options))
    assert result.status is RunStatus.FAILED
    assert isinstance(result.error, IncompleteStream)
    assert result.text == "t0 t1 t2 "
    assert log[-1].type == "run.failed"
    assert len(wire.requests()) == 1


@pytest.mark.scenario("A7", "A8")
@pytest.mark.parametrize("mode", ["cut(3)", "reset(3)", "eof(3)", "error-frame(3)"])
def test_a_broken_answer_in_one_piece_is_never_completed(
    wire: WireProbe, adapter: Adapter, form: Form, mode: str
) -> None:
    """Without streaming nothing of a broken body is an answer."""
    result, _ = result_of(form, adapter.agent(wire.url(mode), stream=False, max_retries=0))
    assert result.status is RunStatus.FAILED
    assert isinstance(result.error, ProviderError)


@pytest.mark.parametrize("mode", ["crlf(20)", "no-done(20)", "one-byte(20)", "json(20)"])
def test_an_unusual_answer_that_is_whole_is_completed(
    wire: WireProbe, adapter: Adapter, form: Form, reach: Reach, mode: str
) -> None:
    """CRLF, no `[DONE]`, single bytes, JSON instead of a stream: all the same text."""
    url, options, _ = reach(mode)
    result, _ = result_of(form, adapter.agent(url, **options))
    assert result.status is RunStatus.COMPLETED, result.why()
    assert result.text == WHOLE
    assert len(wire.requests()) == 1


def test_a_body_that_does_not_end_behind_its_answer_is_completed_and_closed(
    wire: WireProbe, adapter: Adapter, reach: Reach
) -> None:
    """`[DONE]`, and the connection stays open: the text is whole after our patience, the provider sees the close."""
    url, options, port = reach("lingering(20)")
    before = set(sockets_to(port))
    result, _ = result_of(BlockingForm(), adapter.agent(url, **options))
    assert result.status is RunStatus.COMPLETED, result.why()
    assert result.text == WHOLE
    assert not set(sockets_to(port)) - before
    wire.assert_closed()


# --- retries ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [408, 409, 429, 500, 502, 503, 529])
def test_a_passing_failure_is_retried_and_the_answer_is_whole(wire: WireProbe, adapter: Adapter, code: int) -> None:
    """408, 409, 429 and 5xx: asked again after the pause, one request after the other; the second answer is shown."""
    result, log = result_of(BlockingForm(), adapter.agent(wire.url(f"status({code},1)")))
    assert result.text == WHOLE
    assert retries_in(log) == [PAUSE], causes_in(log)
    first, second = wire.requests()
    assert first.finished_at is not None
    assert second.started - first.finished_at >= PAUSE - 0.01
    assert first.body == second.body


@pytest.mark.parametrize("code", [400, 402, 403, 404, 413, 422, 451])
def test_a_refusal_is_never_retried(wire: WireProbe, adapter: Adapter, code: int) -> None:
    """The rest of 4xx: one request, failed at once."""
    result, log = result_of(BlockingForm(), adapter.agent(wire.url(f"status({code})")))
    assert result.status is RunStatus.FAILED
    kind = {403: AuthenticationFailed, 404: ModelNotFound, 413: ContextTooLong}.get(code, RequestRejected)
    assert type(result.error) is kind
    assert result.error.status == code
    assert retries_in(log) == [], causes_in(log)
    assert len(wire.requests()) == 1


def test_retries_end_after_their_number(wire: WireProbe, adapter: Adapter) -> None:
    """A provider that always fails is asked `max_retries` times more, and no more; the last failure is told."""
    result, log = result_of(BlockingForm(), adapter.agent(wire.url("rate-limit(99,0.01)"), max_retries=3))
    assert isinstance(result.error, RateLimited)
    assert retries_in(log) == [0.01] * 3
    assert len(wire.requests()) == 4


def test_the_provider_says_when_in_seconds(wire: WireProbe, adapter: Adapter, form: Form) -> None:
    """`Retry-After: 0.2`: the next request comes after that, not before."""
    result, log = result_of(form, adapter.agent(wire.url("rate-limit(1,0.2)")))
    assert result.text == WHOLE
    assert retries_in(log) == [0.2]
    first, second = wire.requests()
    assert first.finished_at is not None
    took = second.started - first.finished_at
    assert took >= 0.198
    assert_within(0.2 + T, took)


class OneHead:
    """A listener that answers every request with the same few lines: for headers that the provider does not send."""

    def __init__(self, *lines: str, then: bytes = b"") -> None:
        self._head = "\r\n".join((*lines, "", "")).encode() + then
        self.requests = 0

    async def __aenter__(self) -> OneHead:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.requests += 1
        writer.write(self._head)
        await writer.drain()
        writer.close()
        await writer.wait_closed()


@pytest.mark.loops
@pytest.mark.parametrize("header", ["date", "retry-after-ms"])
async def test_the_provider_says_when_as_a_date_or_in_milliseconds(adapter: Adapter, header: str) -> None:
    """`Retry-After` with an HTTP date, and OpenAI's `retry-after-ms`, which holds where both are there."""
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    said = [f"Retry-After: {date}"] if header == "date" else ["Retry-After: 77", "retry-after-ms: 1500"]
    async with OneHead("HTTP/1.1 429 Too Many", "Content-Length: 0", "Connection: close", *said) as server:
        run = adapter.agent(server.url).run("count")
        async for event in run.events():
            if isinstance(event, events.ModelRetry):
                break
        await run.aclose()
        assert event.delay == 1.5 if header == "retry-after-ms" else 27 < event.delay <= 30
        assert server.requests == 1


@pytest.mark.loops
async def test_a_pause_that_is_too_long_is_told_instead_of_waited_for(adapter: Adapter) -> None:
    """`Retry-After: 121`: failed at once, with the seconds for the caller to decide."""
    async with OneHead("HTTP/1.1 429 No", "Content-Length: 0", "Connection: close", "Retry-After: 121") as server:
        result = await adapter.agent(server.url).run("count").finished()
        assert isinstance(result.error, RateLimited)
        assert result.error.retry_after == 121.0
        assert server.requests == 1


@pytest.mark.loops
@pytest.mark.parametrize("head", ["HTTP/1.1 banana", "SSH-2.0-OpenSSH_9.6", "HTTP/1.1 200 OK\r\nContent-Length: x"])
async def test_what_is_no_http_is_a_failed_connection(adapter: Adapter, head: str) -> None:
    """Another kind of server at this address: one clear error, of the right class."""
    async with OneHead(head) as server:
        result = await adapter.agent(server.url, max_retries=0).run("count").finished()
        assert isinstance(result.error, ConnectionFailed), repr(result.error)


# --- J87 ----------------------------------------------------------------------------------------------------


def closed_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


UNREACHABLE = {
    "wrong-key": ("status(401)", AuthenticationFailed, "401"),
    "unknown-model": ("status(404)", ModelNotFound, "404"),
    "no-network": ("closed port", ConnectionFailed, "127.0.0.1"),
    "no-such-name": ("http://nonexistent.invalid/v1", ConnectionFailed, "nonexistent.invalid"),
    "unknown-ca": ("tls", ConnectionFailed, "127.0.0.1"),
}


@pytest.mark.scenario("J87")
@pytest.mark.parametrize("case", UNREACHABLE)
def test_a_text_loop_is_told_loudly_in_one_line(wire: WireProbe, adapter: Adapter, form: Form, case: str) -> None:
    """Wrong key, unknown model, no network, no such host: `RunFailed` at the loop's end, and never with the key."""
    where, kind, says = UNREACHABLE[case]
    url = {
        "closed port": f"http://127.0.0.1:{closed_port()}/v1",
        "tls": wire.tls_url(),
    }.get(where) or (where if "://" in where else wire.url(where))
    agent = adapter.agent(url, max_retries=0)
    with pytest.raises(RunFailed) as caught:
        _read_text(form, agent)
    failed = caught.value
    assert type(failed.__cause__) is kind
    assert failed.result is not None
    assert failed.result.error is failed.__cause__
    said = str(failed)
    assert says in said
    assert "\n" not in said
    assert len(said) < 600  # most of it the address
    assert KEY not in f"{said}{failed!r}{failed.__cause__!r}{failed.result.why()}"


def _read_text(form: Form, agent: Agent) -> None:
    if isinstance(form, BlockingForm):
        for _ in agent.run("count").text_stream():
            pass
        return

    async def main() -> None:
        async for _ in agent.run("count").text_stream():
            pass

    form.drive(main())


# --- time-outs ----------------------------------------------------------------------------------------------


def assert_timed_out(result: RunResult[Any], phase: str) -> None:
    assert result.status is RunStatus.FAILED, result.why()
    assert isinstance(result.error, StreamTimeout)
    assert result.error.phase == phase
    assert phase in str(result.error)


@dataclass(frozen=True)
class Limit:
    """A provider's mode, the phase that it makes last too long, its time-out, and the text that comes before."""

    mode: str
    phase: str
    limits: dict[str, float]
    text: str | None

    @property
    def seconds(self) -> float:
        (limit,) = self.limits.values()
        return limit


LIMITS = [
    Limit("no-headers", "first_token", {"first_token": 0.15}, ""),
    Limit("stall(3)", "idle", {"idle": 0.25}, "t0 t1 t2 "),
    Limit("steady(2000,20)", "total", {"total": 0.3}, None),
    Limit("no-headers", "total", {"total": 0.15}, ""),
]


def test_each_phase_has_its_own_time_out_and_closes_the_socket(
    wire: WireProbe, adapter: Adapter, form: Form, reach: Reach
) -> None:
    """Each of four at once fails as what it is, at its time, with what came; the provider sees the closes."""
    _, options, port = reach("no-headers")
    before = set(sockets_to(port))
    agents = [
        adapter.agent(reach(one.mode)[0], timeouts=Timeouts(**one.limits), max_retries=2, **options) for one in LIMITS
    ]
    for limit, (result, log) in zip(LIMITS, results_of(form, agents), strict=True):
        assert_timed_out(result, limit.phase)
        assert limit.text is None or result.text == limit.text
        assert retries_in(log) == [], causes_in(log)
        took = log[-1].at - log[0].at
        assert took > limit.seconds - 0.01
        assert_within(limit.seconds + 2 * T, took, f"{limit.mode}, {limit.phase},")
    assert len(wire.requests()) == len(LIMITS)
    wire.assert_closed()
    assert not set(sockets_to(port)) - before


def test_connecting_has_a_time_out_which_is_retried(wire: WireProbe, adapter: Adapter, form: Form) -> None:
    """A SYN that nobody answers: given up after `connect`, tried again, then failed."""
    agent = adapter.agent(wire.no_accept_url(), timeouts=Timeouts(connect=0.1), max_retries=1)
    began = time.monotonic()
    result, log = result_of(form, agent)
    assert_timed_out(result, "connect")
    (delay,) = retries_in(log)
    took = time.monotonic() - began
    assert 0.2 + delay - 0.01 <= took
    assert_within(0.2 + delay + 2 * T, took)


def test_a_handshake_that_nobody_answers_times_out_and_leaves_no_socket(
    wire: WireProbe, adapter: Adapter, form: Form, port: int
) -> None:
    """TLS to a port that speaks none: given up after `connect`, with the socket gone when the run is over."""
    before, left = set(sockets_to(port)), []

    class Watching(Agent):
        async def execute(self, ctx: Any) -> str:
            try:
                return await super().execute(ctx)
            finally:
                await asyncio.sleep(0.01)
                left.extend(one for inode, one in sockets_to(port).items() if inode not in before)

    url = wire.url().replace("http:", "https:")
    agent = Watching(adapter.model(url, timeouts=Timeouts(connect=0.1), max_retries=0))
    result, _ = result_of(form, agent)
    assert_timed_out(result, "connect")
    assert left == []


def test_waiting_for_a_slot_has_a_time_out(wire: WireProbe, adapter: Adapter, form: Form) -> None:
    """One connection, and it is taken: the second run fails after `pool`, and the provider has seen the first only."""
    agent = adapter.agent(wire.url("stall(1)"), connections=1, timeouts=Timeouts(pool=0.1))
    holders: list[Run[Any]] = []

    def check(result: RunResult[Any]) -> None:
        assert_timed_out(result, "pool")
        assert len(wire.requests()) == 1
        holders[0].cancel()

    if isinstance(form, BlockingForm):
        holders.append(agent.run("holds").start())
        wire.wait("token")
        check(result_of(form, agent)[0])
        return

    async def main() -> None:
        holders.append(agent.run("holds").start())
        await wire.awaited("token")
        check(await agent.run("waits").finished())
        await holders[0].finished()

    form.drive(main())


@pytest.mark.scenario("B24")
def test_the_time_out_of_a_run_closes_its_socket(wire: WireProbe, adapter: Adapter, form: Form, reach: Reach) -> None:
    """`run(timeout=0.12)` on a silent stream: `RunTimedOut`, a `TimeoutError`; closed within 250 ms of the instant."""
    url, options, port = reach("stall(2)")
    before = set(sockets_to(port))
    began = time.monotonic()
    result, log = result_of(form, adapter.agent(url, **options), timeout=0.12)
    assert result.is_cancelled
    assert result.cancellation is not None
    assert result.cancellation.reason == "timeout"
    assert "t0 t1 ".startswith(result.text)
    if len(result.text) < 6:
        raise Late("the answer, which had not begun when its time was over")
    assert log[-1].type == "run.cancelled"
    (record,) = wire.assert_closed(0.12 + T, since=began)
    assert record.closed_at is not None
    assert record.closed_at - began > 0.11
    assert not set(sockets_to(port)) - before


@pytest.mark.scenario("B24")
def test_a_run_that_timed_out_raises_a_time_out_error(wire: WireProbe, adapter: Adapter) -> None:
    """In blocking code `result()` raises `RunTimedOut`, which is a `TimeoutError`, with the partial text."""
    with pytest.raises(TimeoutError) as caught:
        adapter.agent(wire.url("stall(2)")).run("count", timeout=0.15).result()
    assert isinstance(caught.value, RunTimedOut)
    assert caught.value.result is not None
    assert caught.value.result.text == "t0 t1 "
    wire.assert_closed()
