"""The policy of `models/http.py` in virtual time: time-outs, retries, pauses, and a stop at every step."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from halter import Agent, Run, RunResult, RunStatus, events
from halter.errors import (
    AuthenticationFailed,
    ConfigurationError,
    ConnectionFailed,
    ContextTooLong,
    IncompleteStream,
    ModelNotFound,
    RateLimited,
    RequestRejected,
    ServerFailed,
    StreamTimeout,
)
from halter.models import OpenAIChat
from halter.models.answer_body import TAIL_PATIENCE
from halter.models.http import ERROR_PATIENCE, LONGEST_RETRY_AFTER, Timeouts, retry_after
from halter.request import Settings
from halter.testing import HANG, Answer, MemorySource, SweepOutcome, cancel_sweep
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


def agent_over(source: MemorySource, **options: Any) -> Agent:
    return Agent(OpenAIChat("m", base_url="https://provider.test/v1", api_key="k", source=source, **options))


async def result_of(source: MemorySource, **options: Any) -> RunResult[Any]:
    return await agent_over(source, **options).run("count").finished()


async def log_of(run: Run[Any]) -> list[events.Event]:
    return [event async for event in run.events()]


def now() -> float:
    return asyncio.get_running_loop().time()


def assert_timed_out(result: RunResult[Any], phase: str, at: float) -> None:
    assert result.status is RunStatus.FAILED, result.why()
    assert isinstance(result.error, StreamTimeout)
    assert result.error.phase == phase
    assert now() == pytest.approx(at, abs=0.01)


# --- F62, time-outs -----------------------------------------------------------------------------------------


@pytest.mark.scenario("F62")
@pytest.mark.virtual_time
async def test_twenty_minutes_of_steady_tokens_live() -> None:
    """A token a second for 1,200 s, with the default time-outs: completed, every token of it."""
    source = MemorySource(chat_stream(1200, every=1.0))
    result = await result_of(source)
    assert result.status is RunStatus.COMPLETED
    assert result.text == "".join(f"t{index} " for index in range(1200))
    assert now() == pytest.approx(1200.0)


@pytest.mark.scenario("F62")
@pytest.mark.virtual_time
async def test_a_gap_of_ninety_seconds_is_a_failure() -> None:
    """Silence in the middle of an answer: the idle time-out at 60 s, failed with what came, and not asked again."""
    whole = chat_stream(20, every=1.0)
    gap = Answer(body=(*whole.body[:11], (90.0, b""), *whole.body[11:]))
    source = MemorySource(gap)
    result = await result_of(source)
    assert_timed_out(result, "idle", at=10.0 + 60.0)
    assert result.text == "".join(f"t{index} " for index in range(10))
    assert source.requests[0].aborted_at == pytest.approx(70.0)


@pytest.mark.virtual_time
async def test_gaps_just_below_the_idle_time_out_are_fine() -> None:
    """59.9 s between two tokens, ten times."""
    result = await result_of(MemorySource(chat_stream(10, every=59.9)))
    assert result.status is RunStatus.COMPLETED


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("answer", "limits", "phase", "at"),
    [
        (no_slot(), {}, "pool", 60.0),
        (no_slot(), {"pool": 5.0}, "pool", 5.0),
        (Answer(connect=HANG), {}, "connect", 10.0),
        (no_head(), {}, "first_token", 300.0),
        (no_head(), {"first_token": 7.0}, "first_token", 7.0),
        (Answer(head=4.0, body=((HANG, b""),)), {"first_token": 7.0}, "first_token", 7.0),
        (stalled(3, every=1.0), {"idle": 9.0}, "idle", 12.0),
        (chat_stream(1000, every=1.0), {"total": 42.5}, "total", 42.5),
        (no_slot(), {"total": 2.0}, "total", 2.0),
        (Answer(pool=2.0, connect=2.0, head=2.0, body=((HANG, b""),)), {"total": 7.0}, "total", 7.0),
    ],
)
async def test_each_phase_has_its_own_clock(answer: Answer, limits: dict[str, float], phase: str, at: float) -> None:
    """It trips at its own limit, counted from the phase's own beginning; the request is aborted at that instant."""
    source = MemorySource(answer)
    result = await result_of(source, timeouts=Timeouts(**limits), max_retries=0)
    assert_timed_out(result, phase, at)
    assert source.requests[0].aborted_at == pytest.approx(at)
    assert source.open_requests == []
    assert phase in str(result.error)


@pytest.mark.virtual_time
async def test_phases_do_not_share_their_time() -> None:
    """Each phase takes almost all of its own limit: no time-out."""
    limits = Timeouts(pool=10.0, connect=10.0, first_token=10.0, idle=10.0)
    answer = Answer(pool=9.0, connect=9.0, head=9.0, body=chat_stream(5, every=9.0, first=0.5).body)
    result = await result_of(MemorySource(answer), timeouts=limits)
    assert result.status is RunStatus.COMPLETED, result.why()


@pytest.mark.virtual_time
async def test_a_phase_that_is_switched_off_waits_for_ever() -> None:
    """`None` for each: a day passes before the head, another between two tokens."""
    off = Timeouts(pool=None, connect=None, first_token=None, idle=None)
    result = await result_of(MemorySource(chat_stream(2, every=86_400.0, head=86_400.0)), timeouts=off)
    assert result.status is RunStatus.COMPLETED


@pytest.mark.virtual_time
async def test_only_a_time_out_in_connecting_is_retried() -> None:
    """The request had not gone out then; in every other phase it may have been answered, and paid for, already."""
    source = MemorySource(Answer(connect=HANG), chat_stream(3))
    result = await result_of(source)
    assert result.status is RunStatus.COMPLETED
    assert len(source.requests) == 2
    for answer in (no_slot(), no_head(), stalled(0)):
        source = MemorySource(answer)
        result = await result_of(source)
        assert isinstance(result.error, StreamTimeout)
        assert len(source.requests) == 1


@pytest.mark.virtual_time
async def test_a_slow_reader_does_not_trip_the_idle_time_out() -> None:
    """The reader sleeps for an hour while the source is paused for it: the clock stands still, and all arrives."""
    source = MemorySource(chat_stream(6000, every=0.001))
    run = agent_over(source).run("count")
    seen = 0
    async for _ in run.text_stream():
        seen += 1
        if seen == 100:
            await asyncio.sleep(3600.0)
    assert seen == 6000
    assert (await run).text.endswith("t5999 ")
    assert now() > 3600.0


@pytest.mark.virtual_time
async def test_the_total_time_out_counts_a_slow_readers_time() -> None:
    """`total` is a promise about the end: it stands still for nobody."""
    source = MemorySource(chat_stream(6000, every=0.001))
    run = agent_over(source, timeouts=Timeouts(total=60.0)).run("count").start()
    reading = run.events()
    async for _ in reading:
        break
    result_at: list[float] = []

    async def wait() -> None:
        while run.outcome is None:  # noqa: ASYNC110 - waiting for the run would lift what holds it
            await asyncio.sleep(1.0)
        result_at.append(now())

    await wait()
    assert isinstance(run.outcome, RunResult)
    assert run.outcome.is_failed
    assert result_at[0] == pytest.approx(60.0, abs=1.5)


@pytest.mark.scenario("B24")
@pytest.mark.virtual_time
async def test_the_runs_own_time_out_is_a_stop_and_not_a_failure() -> None:
    """`run(timeout=30)` over a source with shorter patience to come: cancelled with `timeout`, at its instant."""
    source = MemorySource(stalled(2, every=1.0))
    result = await agent_over(source).run("count", timeout=30.0).finished()
    assert result.is_cancelled
    assert result.cancellation is not None
    assert result.cancellation.reason == "timeout"
    assert now() == 30.0
    assert source.open_requests == []


# --- the end of a body --------------------------------------------------------------------------------------


@pytest.mark.virtual_time
async def test_a_body_that_never_ends_after_its_terminal_frame_is_complete_soon() -> None:
    """`[DONE]`, and the connection stays open: completed after two seconds, and the connection is aborted."""
    source = MemorySource(Answer(body=(*chat_stream(5, every=1.0).body, (HANG, b""))))
    result = await result_of(source)
    assert result.status is RunStatus.COMPLETED
    assert now() == pytest.approx(5.0 + TAIL_PATIENCE)
    assert source.requests[0].ended == "aborted"


@pytest.mark.virtual_time
async def test_comments_after_the_terminal_frame_do_not_keep_it_open() -> None:
    """A server that pings for ever behind `[DONE]`: two seconds all the same."""
    pings = ((0.5, b": ping\n\n"),) * 1000
    source = MemorySource(Answer(body=(*chat_stream(5, every=1.0).body, *pings)))
    result = await result_of(source)
    assert result.status is RunStatus.COMPLETED
    assert now() == pytest.approx(5.0 + TAIL_PATIENCE)


@pytest.mark.virtual_time
async def test_what_breaks_after_the_terminal_frame_breaks_nothing() -> None:
    """A reset, a time-out's worth of silence, half a frame: the answer was whole."""
    body = chat_stream(5, every=1.0).body
    for rest in (
        (ConnectionFailed("reset"),),
        ((0.0, b'data: {"half'),),
        ((0.0, b"data: [DO"), ConnectionFailed("reset")),
    ):
        result = await result_of(MemorySource(Answer(body=(*body, *rest))))
        assert result.status is RunStatus.COMPLETED, result.why()
        assert result.text == "t0 t1 t2 t3 t4 "


@pytest.mark.virtual_time
async def test_usage_behind_the_finish_reason_is_taken() -> None:
    """The terminal frame is not the last: what follows within its patience still counts."""
    result = await result_of(MemorySource(chat_stream(5, usage=(7, 11))))
    assert (result.usage.input, result.usage.output, result.usage.estimated) == (7, 11, False)


@pytest.mark.scenario("A7", "A8")
@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("answer", "kind"), [(error_frame(3), ServerFailed), (cut(3), ConnectionFailed), (eof(3), IncompleteStream)]
)
async def test_what_breaks_after_something_was_shown_is_never_asked_again(answer: Answer, kind: type) -> None:
    """Failed, with the partial text, after one request."""
    source = MemorySource(answer)
    result = await result_of(source)
    assert type(result.error) is kind
    assert result.text == "t0 t1 t2 "
    assert len(source.requests) == 1


# --- retries ------------------------------------------------------------------------------------------------


@pytest.mark.virtual_time
async def test_the_pauses_double_up_to_eight_seconds_with_up_to_a_quarter_less() -> None:
    """Eight failures: 0.5, 1, 2, 4, 8, 8, 8, 8 s, each times 0.75 to 1; the clock agrees with the events."""
    random.seed(1)
    source = MemorySource(*[error_status(503)] * 8, chat_stream(3))
    run = agent_over(source, max_retries=8).run("count")
    assert (await run.finished()).status is RunStatus.COMPLETED
    told = [event for event in await log_of(run) if isinstance(event, events.ModelRetry)]
    assert [event.attempt for event in told] == list(range(1, 9))
    for event, most in zip(told, (0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0), strict=True):
        assert 0.75 * most <= event.delay <= most
    for event, first, second in zip(told, source.requests, source.requests[1:], strict=False):
        assert second.at - first.at == pytest.approx(event.delay)
    assert len({event.delay for event in told[4:]}) == 4  # it is jitter


@pytest.mark.virtual_time
@pytest.mark.parametrize("failure", [error_frame(0), cut(0), eof(0), error_status(408), error_status(409)])
async def test_whatever_passes_is_retried_while_nothing_was_shown(failure: Answer) -> None:
    """Twice by default; the third answer is the run's."""
    source = MemorySource(failure, failure, chat_stream(3))
    result = await result_of(source)
    assert result.text == "t0 t1 t2 "
    assert [len(record.body) for record in source.requests] == [len(source.requests[0].body)] * 3
    assert [message.role for message in result.messages] == ["user", "assistant"]


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("status", "kind"), [(400, RequestRejected), (401, AuthenticationFailed), (422, RequestRejected)]
)
async def test_a_refusal_is_told_at_once(status: int, kind: type) -> None:
    """No pause, no second request."""
    source = MemorySource(error_status(status, message="because"))
    result = await result_of(source)
    assert type(result.error) is kind
    assert "because" in str(result.error)
    assert now() == 0.0


@pytest.mark.virtual_time
@pytest.mark.parametrize("asked", [0, 0.25, 3, LONGEST_RETRY_AFTER])
async def test_the_providers_own_pause_is_kept_to(asked: float) -> None:
    """`Retry-After` in seconds, up to two minutes: exactly that, without jitter."""
    source = MemorySource(error_status(429, retry_after=asked), chat_stream(1, every=0.0))
    assert (await result_of(source)).status is RunStatus.COMPLETED
    assert source.requests[1].at == pytest.approx(asked)


@pytest.mark.virtual_time
async def test_a_pause_longer_than_two_minutes_is_told_at_once() -> None:
    """121 s: `RateLimited` with `retry_after`, and the caller decides."""
    source = MemorySource(error_status(429, retry_after=LONGEST_RETRY_AFTER + 1))
    result = await result_of(source)
    assert isinstance(result.error, RateLimited)
    assert result.error.retry_after == 121.0
    assert now() == 0.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 -0000"}, 0.0),
        ({"retry-after-ms": "0"}, 0.0),
        ({"retry-after-ms": "-5", "retry-after": "2"}, 2.0),
        ({"retry-after": "Wed, 99 Oct 2015 07:28:00 GMT"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "later"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_every_shape_of_retry_after_is_read_or_passed_over(headers: dict[str, str], seconds: float | None) -> None:
    """Numbers, milliseconds, a date of the past; nonsense is as if it were not there."""
    assert retry_after(headers.get) == seconds


@pytest.mark.parametrize("zone", ["GMT", "-0000", "+0200"])
def test_a_date_to_come_is_told_in_seconds(zone: str) -> None:
    """RFC 9110, 5.6.7; whatever the zone of this machine."""
    at = datetime.now(UTC) + timedelta(seconds=90)
    at = at.astimezone(timezone(timedelta(hours=2))) if zone == "+0200" else at
    text = f"{at:%a, %d %b %Y %H:%M:%S} {zone}"
    assert retry_after({"retry-after": text}.get) == pytest.approx(90.0, abs=1.5)


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("statuses", "kind", "retryable"),
    [
        ((400, 402, 405, 406, 410, 415, 418, 422, 425, 451, 499), RequestRejected, False),
        ((413,), ContextTooLong, False),
        ((300, 301, 304, 307), RequestRejected, False),
        ((401, 403, 407), AuthenticationFailed, False),
        ((404,), ModelNotFound, False),
        ((429,), RateLimited, True),
        ((408, 409, 500, 501, 502, 503, 504, 520, 529, 599), ServerFailed, True),
    ],
    ids=str,
)
async def test_one_table_says_what_a_status_is(statuses: tuple[int, ...], kind: type, retryable: bool) -> None:
    """As an answer's status, and as the status in an error frame of a 200; asked again exactly if it may pass."""
    for status in statuses:
        frame = b'data: {"error": {"message": "because", "code": %d}}\n\n' % status
        answers = [error_status(status, message="because")]
        answers += [Answer(body=((0.0, frame),))] if status >= 400 else []
        for answer in answers:
            source = MemorySource(answer, repeat=True)
            result = await result_of(source)
            assert type(result.error) is kind, status
            assert result.error.status == status
            assert result.error.retryable is retryable
            assert "because" in str(result.error)
            assert len(source.requests) == (3 if retryable else 1)


@pytest.mark.virtual_time
@pytest.mark.parametrize("limits", [{}, {"first_token": 1.0, "idle": 1.0}])
@pytest.mark.parametrize("rest", [(HANG, b""), ConnectionFailed("reset")])
async def test_an_error_whose_body_stops_is_told_by_its_status(limits: dict[str, float], rest: Any) -> None:
    """429, half a body, silence: after a few seconds it is a 429, whose pause is kept to; not a time-out."""
    headers = {"content-type": "application/json", "retry-after": "1"}
    half = Answer(status=429, headers=headers, body=((0.0, b'{"error": {"mess'), rest))
    source = MemorySource(half, chat_stream(3))
    result = await result_of(source, timeouts=Timeouts(**limits))
    assert result.status is RunStatus.COMPLETED, result.why()
    patience = 0.0 if isinstance(rest, Exception) else ERROR_PATIENCE
    assert source.requests[1].at - source.requests[0].at == pytest.approx(patience + 1.0)
    result = await result_of(MemorySource(half), max_retries=0, timeouts=Timeouts(**limits))
    assert isinstance(result.error, RateLimited)
    assert result.error.retry_after == 1.0


@pytest.mark.virtual_time
async def test_a_stop_while_the_body_of_an_error_stalls_is_a_stop() -> None:
    half = Answer(status=429, headers={"retry-after": "1"}, body=((0.0, b"{"), (HANG, b"")))
    source = MemorySource(half)
    result = await agent_over(source).run("count", timeout=ERROR_PATIENCE / 2).finished()
    assert result.is_cancelled
    assert now() == ERROR_PATIENCE / 2
    assert len(source.requests) == 1
    assert source.open_requests == []


# --- arguments that cannot work -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timeouts": 5}, "timeouts must be a Timeouts"),
        ({"max_retries": "2"}, "max_retries must be a whole number"),
        ({"max_retries": -1}, "max_retries must be a whole number"),
        ({"connections": -1}, "connections must be a whole number"),
        ({"connections": True}, "connections must be a whole number"),
        ({"stream": "no"}, "stream must be True or False"),
        ({"settings": {"temperature": 1.0}}, "settings must be a Settings"),
        ({"base_url": 5}, "base_url must be a text"),
        ({"api_key": 5}, "api_key must be a text"),
        ({"ca_file": 5}, "ca_file must be the path"),
        ({"extra_body": ["a"]}, "extra_body must be a mapping"),
        ({"headers": [("a", "b")]}, "headers must be a mapping"),
        ({"headers": {"X Y": "a"}}, "no header's name"),
        ({"headers": {"X\r\nY": "a"}}, "no header's name"),
        ({"headers": {"": "a"}}, "no header's name"),
        ({"headers": {5: "a"}}, "no header's name"),
    ],
)
def test_an_argument_that_cannot_work_is_told_when_the_model_is_made(options: dict[str, Any], said: str) -> None:
    """By its name, with what it should be: not by a run that fails."""
    given: dict[str, Any] = {"base_url": "https://provider.test/v1", "api_key": "k"} | options
    with pytest.raises(ConfigurationError, match=said):
        OpenAIChat("m", **given)


@pytest.mark.parametrize("seconds", [-1, 0, "5", True, float("nan")])
@pytest.mark.parametrize("phase", ["pool", "connect", "first_token", "idle", "total"])
def test_a_time_out_is_a_number_of_seconds(phase: str, seconds: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"'{phase}' must be a number of seconds"):
        Timeouts(**{phase: seconds})


@pytest.mark.parametrize("name", ["parallel_tool_calls", "cache_prompt"])
def test_a_setting_that_is_on_or_off_is_nothing_else(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        Settings(**{name: "no"})  # pyright: ignore[reportArgumentType]


@pytest.mark.virtual_time
@pytest.mark.parametrize("name", ["x-request-id", "request-id", "apim-request-id", "X-Request-ID"])
async def test_the_providers_id_of_a_request_is_kept(name: str) -> None:
    """For its support; each provider has its own name for the header."""
    failing = error_status(400)
    source = MemorySource(Answer(status=400, headers={**failing.headers, name: "req_1"}, body=failing.body))
    result = await result_of(source)
    assert isinstance(result.error, RequestRejected)
    assert result.error.request_id == "req_1"


@pytest.mark.virtual_time
async def test_an_empty_account_is_not_asked_again() -> None:
    """OpenAI's 429 with `insufficient_quota`: waiting does not fill it."""
    body = b'{"error": {"message": "no credit", "type": "insufficient_quota", "code": "insufficient_quota"}}'
    source = MemorySource(Answer(status=429, headers={"content-type": "application/json"}, body=((0.0, body),)))
    result = await result_of(source)
    assert isinstance(result.error, RateLimited)
    assert len(source.requests) == 1


# --- stops --------------------------------------------------------------------------------------------------


@pytest.mark.scenario("A6", "I82")
@pytest.mark.parametrize(
    "answers",
    [
        (chat_stream(4),),
        (error_status(500), cut(0), chat_stream(3)),
        (error_status(429, retry_after=60), error_frame(0), chat_stream(3)),
        (Answer(pool=1.0, connect=1.0, head=1.0, body=chat_stream(2).body),),
        (Answer(connect=HANG), eof(0), stalled(2)),
        (Answer(body=(*chat_stream(2).body, (HANG, b""))),),
    ],
    ids=["steady", "errors", "back-off", "phases", "time-outs", "tail"],
)
def test_a_stop_at_every_step_ends_it_and_asks_for_nothing_more(answers: tuple[Answer, ...]) -> None:
    """Swept over each step of the loop: no request after the stop, none left open, and one truthful end."""
    sources: list[MemorySource] = []
    asked_at_the_stop: list[int] = []

    async def scenario(sweep: Any) -> tuple[RunResult[Any], list[events.Event]]:
        source = MemorySource(*answers)
        sources.append(source)
        asked_at_the_stop.append(-1)
        run = agent_over(source).run("count").start()

        def stop() -> None:
            asked_at_the_stop[-1] = len(source.requests)
            run.cancel()

        sweep.cancel = stop
        return await run.finished(), await log_of(run)

    def check(outcome: SweepOutcome) -> None:
        result, log = outcome.result
        assert log[-1].is_terminal
        assert sum(event.is_terminal for event in log) == 1
        if result.is_cancelled:
            assert outcome.stopped_after == 0.0
            assert len(sources[-1].requests) == asked_at_the_stop[-1]
            cut_at = next(index for index, event in enumerate(log) if isinstance(event, events.Cancelling))
            assert not [event for event in log[cut_at:] if isinstance(event, events.TextDelta | events.ModelRequested)]
        assert sources[-1].open_requests == []
        assert result.text == "".join(event.text for event in log if isinstance(event, events.TextDelta))

    assert cancel_sweep(scenario, check=check) > 10


@pytest.mark.scenario("A6", "B20")
@pytest.mark.parametrize(
    "answers", [(error_status(500), cut(0), chat_stream(3)), (error_status(429, retry_after=60), chat_stream(3))]
)
def test_a_cancelled_waiter_at_every_step_ends_it_too(answers: tuple[Answer, ...]) -> None:
    """The task that awaits the run is cancelled at each step: `CancelledError`, no open request, no more requests."""
    sources: list[MemorySource] = []

    async def scenario() -> str:
        sources.append(MemorySource(*answers))
        return (await agent_over(sources[-1]).run("count")).text

    def check(outcome: SweepOutcome) -> None:
        assert outcome.cancelled or outcome.result == "t0 t1 t2 "
        assert outcome.stopped_after == 0.0
        assert sources[-1].open_requests == []

    assert cancel_sweep(scenario, check=check) > 10


@pytest.mark.virtual_time
async def test_a_time_out_that_races_a_stop_is_a_stop() -> None:
    """The idle time-out and `cancel()` at one instant: cancelled, not failed, and nothing is asked again."""
    for early in (-0.001, 0.0, 0.001):
        source = MemorySource(stalled(1, every=1.0))
        run = agent_over(source, timeouts=Timeouts(idle=10.0)).run("count").start()
        asyncio.get_running_loop().call_later(11.0 + early, run.cancel)
        result = await run.finished()
        assert result.is_cancelled or (early > 0 and result.is_failed)
        assert len(source.requests) == 1
        assert source.open_requests == []
