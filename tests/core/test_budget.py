"""Budgets, in virtual time over a provider in memory: when a run is stopped, and what it is charged."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import tracemalloc
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from halter import Agent, Budget, CancelReason, Message, Run, RunCancelled, RunResult, Usage, events, runnable
from halter.core.assembly import Assembly
from halter.core.budget import Limits, Spent
from halter.core.metering import Shown
from halter.core.tokens import CALL, estimate_input, estimate_tokens
from halter.errors import ConfigurationError, ConnectionFailed, RateLimited, ServerFailed
from halter.models import Anthropic, OpenAIChat, Scripted, Settings
from halter.request import ModelRequest
from halter.testing import HANG, Answer, MemorySource, cancel_sweep
from halter.testing.memory import chat_stream, cut, error_status, no_slot, stalled

virtual = pytest.mark.virtual_time
ASKED = estimate_input([Message.user("a prompt")])  # before the provider has counted


@dataclass(frozen=True)
class PerToken:
    """US dollars for each token."""

    input: float
    output: float

    def cost(self, usage: Usage) -> float:
        return usage.input * self.input + usage.output * self.output


def _frame(chunk: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def _chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion}


def counted(tokens: int = 1000, every: float = 1.0) -> Answer:
    """So many tokens, each in a read of its own with the provider's count: 2 for the prompt, one more each time."""
    chunks = [_chunk({"content": "t "}, usage=_usage(2, number)) for number in range(1, tokens + 1)]
    end = _frame(_chunk({}, "stop")) + b"data: [DONE]\n\n"
    return Answer(body=(*((every, _frame(chunk)) for chunk in chunks), (0.0, end)))


def frames(*chunks: dict[str, Any], every: float = 1.0) -> Answer:
    """Each chunk in a read of its own, then silence."""
    return Answer(body=(*((every, _frame(chunk)) for chunk in chunks), (HANG, b"")))


def model(source: MemorySource, **options: Any) -> OpenAIChat:
    return OpenAIChat("m", base_url="https://provider.test/v1", api_key="k", source=source, **options)


def agent(source: MemorySource, **options: Any) -> Agent:
    return Agent(model(source, **options))


async def log_of(run: Run[Any]) -> list[events.Event]:
    return [event async for event in run.events()]


def assert_stopped(result: RunResult[Any], reason: CancelReason) -> None:
    assert result.is_cancelled, result.why()
    assert result.cancellation is not None
    assert result.cancellation.reason is reason, result.why()
    assert result.receipt is not None
    assert result.receipt.confirmed


# --- the account --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"tokens": -1},
        {"tokens": 1.5},
        {"tokens": True},
        {"tokens": "100"},
        {"cost_usd": -0.01},
        {"cost_usd": float("nan")},
        {"cost_usd": float("inf")},
        {"cost_usd": 10**400},
        {"cost_usd": "1"},
        {"cost_usd": False},
        {"model_calls": -1},
        {"model_calls": 2.0},
        {"tool_calls": -3},
    ],
)
def test_a_limit_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    """What is no number, or less than nothing, is the caller's mistake, and named."""
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Budget(**wrong)


@pytest.mark.parametrize("wrong", [50, {"tokens": 50}, Limits(tokens=50), Budget])
def test_run_takes_a_budget_only(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="budget must be a Budget"):
        Agent("scripted:Hi").run("hi", budget=wrong)


def test_what_is_left_is_what_was_not_spent_and_never_less_than_nothing() -> None:
    budget = Budget(tokens=100, cost_usd=1.0, model_calls=2)
    assert budget.spent == Spent()
    assert budget.left == Limits(tokens=100, cost_usd=1.0, model_calls=2)
    budget.charge(130, 0.25)
    assert budget.take_model_call() is None
    assert budget.spent == Spent(tokens=130, cost_usd=0.25, model_calls=1)
    assert budget.left == Limits(tokens=0, cost_usd=0.75, model_calls=1)
    assert repr(budget) == "<Budget tokens 130 of 100, cost_usd 0.25 of 1, model_calls 1 of 2>"
    assert repr(Budget()) == "<Budget without a limit, 0 tokens spent>"


def test_charges_of_many_threads_are_all_counted_and_calls_are_taken_once() -> None:
    """16 threads, switched as often as can be: no token is lost, and of 1,000 calls exactly 1,000 are given."""
    budget = Budget(tokens=1, model_calls=1000)
    given: list[int] = []
    begin = threading.Barrier(16)

    def spend() -> None:
        begin.wait()
        for _ in range(2000):
            budget.charge(3, 0.5)
        given.append(sum(budget.take_model_call() is None for _ in range(200)))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=spend) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert sum(given) == 1000
    assert budget.spent == Spent(tokens=16 * 2000 * 3, cost_usd=16 * 2000 * 0.5, model_calls=1000)


@virtual
async def test_a_budget_without_a_limit_only_counts() -> None:
    source = MemorySource(chat_stream(["a"] * 5, usage=(7, 5)))
    budget = Budget()
    result = await agent(source).run("count", budget=budget)
    assert result.is_completed
    assert budget.spent == Spent(tokens=12, model_calls=1)
    assert budget.left == Limits()


# --- in the stream ------------------------------------------------------------------------------------------


@pytest.mark.scenario("B24")
@virtual
async def test_the_run_is_stopped_at_the_read_that_goes_beyond() -> None:
    """2 tokens asked, 50 allowed, one token in each read: stopped at the 49th; the same path as any other stop."""
    source = MemorySource(counted())
    budget = Budget(tokens=50)
    run = agent(source).run("a prompt", budget=budget)
    result = await run.finished()
    assert_stopped(result, CancelReason.BUDGET_TOKENS)
    assert asyncio.get_running_loop().time() == pytest.approx(49.0)
    assert result.text == "t " * 49
    assert result.messages[-1].interrupted
    assert source.open_requests == []
    assert source.requests[0].aborted_at == pytest.approx(49.0)
    log = await log_of(run)
    assert [event.type for event in log if event.is_terminal] == ["run.cancelled"]
    assert log[-1].type == "run.cancelled"
    assert budget.spent.tokens == 51
    assert budget.left.tokens == 0
    assert str(result.cancellation) == "budget_tokens (the budget of 50 tokens is spent)"


@pytest.mark.scenario("B24")
@virtual
async def test_whoever_waits_gets_run_cancelled_with_the_reason() -> None:
    source = MemorySource(counted())
    with pytest.raises(RunCancelled, match="the budget of 50 tokens is spent") as caught:
        await agent(source).run("a prompt", budget=Budget(tokens=50))
    assert caught.value.cancellation is not None
    assert caught.value.cancellation.reason is CancelReason.BUDGET_TOKENS
    assert caught.value.result is not None
    assert caught.value.result.text.startswith("t t ")


def _call(fragment: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "f", "arguments": fragment}}]}


@pytest.mark.scenario("B24")
@virtual
@pytest.mark.parametrize(
    "delta",
    [{"content": "text of 20 letters.."}, {"reasoning_content": "text of 20 letters.."}, _call("12345678901234567890")],
    ids=["text", "reasoning", "arguments"],
)
async def test_all_that_the_provider_shows_is_charged(delta: dict[str, Any]) -> None:
    """Reasoning and the arguments of tool calls as well, by our estimate, where the provider does not count."""
    source = MemorySource(frames(*[_chunk(delta)] * 100))
    budget = Budget(tokens=ASKED + 200)
    result = await agent(source).run("a prompt", budget=budget).finished()
    assert_stopped(result, CancelReason.BUDGET_TOKENS)
    read = budget.spent.tokens / asyncio.get_running_loop().time()
    assert ASKED + 200 < budget.spent.tokens < ASKED + 200 + 2 * read
    assert budget.spent.tokens == result.usage.total


@pytest.mark.scenario("B24")
@virtual
async def test_the_provider_s_own_count_holds_where_it_gives_one() -> None:
    """Each chunk says 10 tokens more, whatever the text looks like, and that the prompt had 30."""

    def tens(number: int) -> dict[str, Any]:
        return _chunk({"content": "no more than ten, or so it says"}, usage=_usage(30, 10 * number))

    source = MemorySource(frames(*(tens(number) for number in range(1, 100))))
    budget = Budget(tokens=100)
    result = await agent(source).run("a prompt", budget=budget).finished()
    assert_stopped(result, CancelReason.BUDGET_TOKENS)
    assert asyncio.get_running_loop().time() == pytest.approx(8.0)  # 30 + 8 × 10 > 100


@virtual
@pytest.mark.parametrize("stuck", [0, 1])
async def test_a_count_that_does_not_grow_does_not_hide_what_is_shown(stuck: int) -> None:
    """Some servers say 0 in each chunk, others count once at the beginning: our estimate goes on from there."""
    first, rest = _chunk({}, usage=_usage(30, stuck)), _chunk({"content": "a few words "}, usage=_usage(30, stuck))
    source = MemorySource(frames(first, *[rest] * 100))
    result = await agent(source).run("a prompt", budget=Budget(tokens=100)).finished()
    assert_stopped(result, CancelReason.BUDGET_TOKENS)
    assert 70 - stuck < estimate_tokens(result.text) < 75


@virtual
async def test_the_provider_s_count_settles_the_account() -> None:
    """Whatever the estimate was: the provider has counted 40 and 17, so 57 is what it has cost."""
    source = MemorySource(chat_stream("some few words", usage=(40, 17)))
    budget = Budget(tokens=1000, cost_usd=1.0)
    result = await agent(source, price=PerToken(0.001, 0.01)).run("a prompt", budget=budget)
    assert budget.spent.tokens == result.usage.total == 57
    assert budget.spent.cost_usd == pytest.approx(0.04 + 0.17)


@virtual
@pytest.mark.parametrize("usage", [None, (0, 0)])
async def test_without_a_count_the_estimate_stays(usage: tuple[int, int] | None) -> None:
    """A server that counts nothing, or says 0 to everything, is not free."""
    budget = Budget()
    await agent(MemorySource(chat_stream("some few words", usage=usage))).run("a prompt", budget=budget)
    assert budget.spent.tokens == ASKED + estimate_tokens("some few words")


@virtual
async def test_an_answer_that_has_come_whole_is_not_stopped_at_its_end() -> None:
    """It is over its budget with its last read: there is nothing left to stop, and the run has completed."""
    source = MemorySource(Answer(body=((0.0, counted(60).payload),)))
    budget = Budget(tokens=50)
    result = await agent(source).run("a prompt", budget=budget)
    assert result.is_completed
    assert budget.spent.tokens == 62


@virtual
async def test_what_was_spent_by_a_stopped_run_is_what_its_usage_says() -> None:
    """Stopped by somebody else in the middle: one number, by either way to it."""
    source = MemorySource(counted())
    budget = Budget(tokens=100_000)
    run = agent(source).run("a prompt", budget=budget).start()
    await asyncio.sleep(30.5)
    run.cancel()
    result = await run.finished()
    assert result.text == "t " * 30
    assert result.usage.estimated
    assert budget.spent.tokens == result.usage.total


# --- before a request ---------------------------------------------------------------------------------------


@pytest.mark.scenario("B24")
@virtual
@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        (Budget(tokens=0), CancelReason.BUDGET_TOKENS),
        (Budget(tokens=ASKED), CancelReason.BUDGET_TOKENS),
        (Budget(cost_usd=0), CancelReason.BUDGET_COST),
        (Budget(cost_usd=0.001 * ASKED), CancelReason.BUDGET_COST),
        (Budget(model_calls=0), CancelReason.BUDGET_CALLS),
    ],
    ids=repr,
)
async def test_a_budget_that_leaves_nothing_for_an_answer_sends_no_request(budget: Budget, reason: Any) -> None:
    """A tenth of a cent for each token: nothing is left, or nothing but the question."""
    source = MemorySource(chat_stream(3))
    run = agent(source, price=PerToken(0.001, 0.001)).run("a prompt", budget=budget)
    assert_stopped(await run.finished(), reason)
    assert source.requests == []
    assert budget.spent.tokens == budget.spent.model_calls == 0
    assert [event.type for event in await log_of(run)][-1] == "run.cancelled"


@pytest.mark.scenario("B24")
@virtual
async def test_a_budget_of_calls_ends_a_run_at_the_next_turn() -> None:
    """Two requests are allowed, three turns wanted: two requests, and both answers are kept."""
    source = MemorySource(chat_stream("one two"), repeat=True)
    run = agent(source).run("hi", budget=Budget(model_calls=2)).start()
    run.send("more")
    seen = 0
    async for event in run.events():
        if isinstance(event, events.MessageFinished):
            seen += 1
            run.send("and more")
    result = await run.finished()
    assert_stopped(result, CancelReason.BUDGET_CALLS)
    assert (seen, len(source.requests)) == (2, 2)
    assert [message.text for message in result.messages if message.role == "assistant"] == ["one two", "one two", ""]


@virtual
async def test_a_repeated_request_is_a_call_too_and_is_not_made_without_one() -> None:
    """503, and one call allowed: stopped before the second attempt, not failed."""
    source = MemorySource(error_status(503), chat_stream(3))
    result = await agent(source).run("hi", budget=Budget(model_calls=1)).finished()
    assert_stopped(result, CancelReason.BUDGET_CALLS)
    assert len(source.requests) == 1


@virtual
async def test_a_failed_attempt_stays_charged_and_a_refused_one_does_not() -> None:
    """A stream that broke after three tokens has been paid for; nobody bills a 429."""
    budget = Budget()
    result = await agent(MemorySource(cut(3))).run("a prompt", budget=budget).finished()
    assert result.is_failed
    assert budget.spent.tokens == ASKED + estimate_tokens("t0 t1 t2 ")
    refused = Budget()
    result = await agent(MemorySource(error_status(429)), max_retries=0).run("a prompt", budget=refused).finished()
    assert isinstance(result.error, RateLimited)
    assert refused.spent == Spent(model_calls=1)
    broken = Budget()
    result = await agent(MemorySource(error_status(500)), max_retries=0).run("a prompt", budget=broken).finished()
    assert isinstance(result.error, ServerFailed)
    assert broken.spent == Spent(model_calls=1)


@virtual
@pytest.mark.parametrize(
    ("options", "budget", "asked"),
    [
        ({}, Budget(tokens=ASKED + 500), 500),
        ({}, Budget(tokens=1_000_000), None),
        ({"settings": Settings(max_output_tokens=100)}, Budget(tokens=500), 100),
        ({"settings": Settings(max_output_tokens=900)}, Budget(tokens=ASKED + 500), 500),
        ({"settings": Settings(max_output_tokens=9000)}, Budget(tokens=ASKED + 8000), 8000),
        ({}, Budget(tokens=ASKED + 3), 16),
        ({"settings": Settings(max_output_tokens=8)}, Budget(tokens=ASKED + 3), 8),
        ({"price": PerToken(0.001, 0.01)}, Budget(cost_usd=1.0001 + 0.001 * ASKED), 100),
        ({"price": PerToken(0.001, 0.01)}, Budget(cost_usd=1.0001 + 0.001 * ASKED, tokens=ASKED + 50), 50),
        ({"price": PerToken(0.0, 0.0)}, Budget(cost_usd=1.0), None),
        ({}, Budget(model_calls=5), None),
    ],
)
async def test_the_provider_is_told_what_is_left(options: Any, budget: Budget, asked: int | None) -> None:
    """Never more than was asked for; never less than any provider takes; and no number that some would refuse."""
    source = MemorySource(chat_stream(3))
    await agent(source, **options).run("a prompt", budget=budget).finished()
    assert source.requests[0].json.get("max_completion_tokens") == asked


@pytest.mark.scenario("B24")
@virtual
async def test_an_answer_that_the_provider_ended_where_the_budget_does_is_no_success() -> None:
    """It was told 48, and stopped there by itself: cut off by the budget, so the run is stopped, its text kept."""
    budget = Budget(tokens=ASKED + 48)
    source = MemorySource(chat_stream(20, finish="length", usage=(1, 48)))
    result = await agent(source).run("a prompt", budget=budget).finished()
    assert_stopped(result, CancelReason.BUDGET_TOKENS)
    assert result.messages[-1].finish_reason == "length"
    assert result.messages[-1].interrupted
    source = MemorySource(chat_stream(20, finish="length", usage=(1, 48)))
    own = agent(source, settings=Settings(max_output_tokens=48))
    assert (await own.run("a prompt", budget=Budget(tokens=ASKED + 48))).is_completed  # that was asked for


@virtual
@pytest.mark.parametrize("options", [{}, {"extra_body": {"max_completion_tokens": 50}}], ids=["server", "extra_body"])
async def test_an_answer_that_ends_for_a_length_of_another_s_is_not_the_budget_s(options: Any) -> None:
    """The provider was told of 3,000 and stopped at 50: the account is nearly full, and nobody is stopped."""
    source = MemorySource(chat_stream(50, finish="length"))
    result = await agent(source, **options).run("a prompt", budget=Budget(tokens=3000)).finished()
    assert result.is_completed
    assert not result.messages[-1].interrupted


def whole_answer(tokens: int, after: float = 0.0) -> Answer:
    choice = {"index": 0, "message": {"role": "assistant", "content": "w " * tokens}, "finish_reason": "stop"}
    body = msgspec.json.encode({"choices": [choice], "usage": _usage(10, tokens)})
    return Answer(headers={"content-type": "application/json"}, body=((after, body),))


@pytest.mark.scenario("B24")
@virtual
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_in_one_piece_that_was_too_much_is_no_success(stream: bool) -> None:
    """Also one that was asked for as a stream. It is kept as it came, and charged."""
    budget = Budget(tokens=100)
    result = await agent(MemorySource(whole_answer(5000)), stream=stream).run("a prompt", budget=budget).finished()
    assert_stopped(result, CancelReason.BUDGET_TOKENS)
    assert result.usage.total == budget.spent.tokens == 5010
    assert not result.messages[-1].interrupted


@virtual
async def test_parallel_answers_in_one_piece_do_not_all_complete() -> None:
    source = MemorySource(whole_answer(900, 1.0), repeat=True)
    one, budget = agent(source, stream=False), Budget(tokens=4000)
    results = await asyncio.gather(*(one.run("a prompt", budget=budget).finished() for _ in range(20)))
    stopped = [result for result in results if not result.is_completed]
    assert len(stopped) >= 16
    for result in stopped:
        assert_stopped(result, CancelReason.BUDGET_TOKENS)


@virtual
@pytest.mark.parametrize(
    "free",
    [
        Answer(connect=ConnectionFailed("refused")),
        Answer(connect=HANG),
        no_slot(),
        *(error_status(status) for status in (408, 409, 500, 503)),
    ],
)
async def test_what_nobody_bills_is_not_charged(free: Answer) -> None:
    """A request that never left, or that was turned away; it is a call."""
    budget = Budget()
    result = await agent(MemorySource(free), max_retries=0).run("a prompt", budget=budget).finished()
    assert result.is_failed
    assert budget.spent == Spent(model_calls=1)
    assert result.usage == Usage()


@virtual
@pytest.mark.parametrize(("answer", "charged"), [(stalled(0), True), (Answer(connect=HANG), False), (no_slot(), False)])
async def test_a_stop_before_the_first_token_costs_the_input_that_was_sent(answer: Answer, charged: bool) -> None:
    """The usage says what the account says."""
    budget = Budget()
    run = agent(MemorySource(answer)).run("a prompt", budget=budget).start()
    await asyncio.sleep(1)
    run.cancel()
    result = await run.finished()
    assert result.usage == (Usage(input=ASKED, estimated=True) if charged else Usage())
    assert budget.spent.tokens == result.usage.total


@virtual
async def test_a_whole_answer_without_a_count_has_our_estimate_as_its_usage() -> None:
    budget = Budget()
    result = await agent(MemorySource(chat_stream("some few words"))).run("a prompt", budget=budget)
    assert result.usage == Usage(input=ASKED, output=estimate_tokens("some few words"), estimated=True)
    assert result.messages[-1].usage == result.usage
    assert budget.spent.tokens == result.usage.total


@virtual
@pytest.mark.parametrize(
    ("stream", "left", "asked"), [(True, 50_000, 32_000), (False, 50_000, 21_333), (True, 900, 900)]
)
async def test_a_budget_never_raises_what_the_adapter_asks_for(stream: bool, left: int, asked: int) -> None:
    source = MemorySource(error_status(400))
    await (
        Agent(Anthropic("claude-sonnet-4-5", api_key="k", source=source, stream=stream))
        .run("a prompt", budget=Budget(tokens=ASKED + left))
        .finished()
    )
    sent = source.requests[0].json
    assert sent["max_tokens"] == asked
    assert sent.get("stream", False) is stream


@virtual
@pytest.mark.parametrize(("left", "thinking"), [(100, None), (10_000, 5_000), (100_000, 30_000)])
async def test_thinking_has_no_more_than_is_left(left: int, thinking: int | None) -> None:
    """It may never be shown; where less is left than the provider takes, the answer goes without."""
    source = MemorySource(error_status(400))
    one = Anthropic("claude-sonnet-4-5", api_key="k", source=source, settings=Settings(reasoning_tokens=30_000))
    await Agent(one).run("a prompt", budget=Budget(tokens=ASKED + left)).finished()
    sent = source.requests[0].json
    assert sent["max_tokens"] == min(left, 32_000)
    assert sent.get("thinking", {}).get("budget_tokens") == thinking


@virtual
@pytest.mark.parametrize("dollars", [sys.float_info.max, 1e304])
async def test_more_money_than_there_is_is_a_limit_too(dollars: float) -> None:
    source = MemorySource(chat_stream(3))
    assert (
        await agent(source, price=PerToken(1e-6, 1e-6)).run("a prompt", budget=Budget(cost_usd=dollars))
    ).is_completed


@virtual
async def test_a_free_model_needs_no_money() -> None:
    source = MemorySource(chat_stream(3))
    assert (await agent(source, price=PerToken(0.0, 0.0)).run("a prompt", budget=Budget(cost_usd=0))).is_completed


def test_an_account_does_not_grow_with_its_calls() -> None:
    budget = Budget(model_calls=100_000)
    tracemalloc.start()
    try:
        for _ in range(20_000):
            budget.take_model_call()
            budget.take_tool_call()
        assert tracemalloc.get_traced_memory()[0] < 20_000
    finally:
        tracemalloc.stop()
    assert (budget.spent.model_calls, budget.spent.tool_calls) == (20_000, 20_000)
    assert isinstance(Budget().spent.cost_usd, float)


def test_a_look_costs_the_same_however_many_calls_are_open() -> None:
    """1,000 tool calls, and 3,000 characters of text, each with a look after it: few estimates, and no walk."""
    assembly = Assembly()
    shown, last = Shown(assembly), 1.0
    for number in range(1000):
        assembly.call(number)
        shown.add("abc")
        before = time.perf_counter()
        shown.tokens()
        last = time.perf_counter() - before
    shown.estimate()
    assert last < 0.001
    assert shown.tokens() == pytest.approx(CALL * 1000 + estimate_tokens("abc" * 1000), rel=0.05)


# --- trees, and accounts that are shared --------------------------------------------------------------------


def asker(child: Agent, times: int = 3) -> Any:
    @runnable(name="asker")
    async def ask(ctx: Any) -> list[str]:
        return [(await ctx.start(child, "a prompt")).text for _ in range(times)]

    return ask


@pytest.mark.scenario("B24")
@virtual
async def test_a_budget_covers_the_whole_tree_and_stops_the_run_that_it_was_given_to() -> None:
    """Each child costs 32; the parent has 80: the third child is stopped in its stream, and the parent with it."""
    source = MemorySource(counted(30), repeat=True)
    budget = Budget(tokens=80)
    run = asker(agent(source)).run(budget=budget)
    result = await run.finished()
    assert_stopped(result, CancelReason.BUDGET_TOKENS)
    assert len(source.requests) == 3
    assert source.open_requests == []
    log = await log_of(run)
    ends = {event.run_id: event for event in log if event.is_terminal}
    assert [event.type for event in ends.values()] == [
        "run.completed",
        "run.completed",
        "run.cancelled",
        "run.cancelled",
    ]
    reasons = [event.reason for event in ends.values() if isinstance(event, events.Cancelled)]
    assert reasons == [CancelReason.PARENT_CANCELLED, CancelReason.BUDGET_TOKENS]
    assert budget.spent.tokens == 81
    assert result.usage.total == 81


@virtual
async def test_parallel_children_end_together() -> None:
    """Four at once under 100 tokens: one account, all stopped by the read that goes beyond."""
    source = MemorySource(counted(), repeat=True)
    child = agent(source)

    @runnable
    async def four(ctx: Any) -> None:
        await asyncio.gather(*(ctx.start(child, "a prompt") for _ in range(4)))

    budget = Budget(tokens=100)
    result = await four.run(budget=budget).finished()
    assert_stopped(result, CancelReason.BUDGET_TOKENS)
    assert len(source.requests) == 4
    assert source.open_requests == []
    assert 100 < budget.spent.tokens <= 100 + 4


@virtual
async def test_a_child_s_own_budget_stops_the_child_alone() -> None:
    """The child has 20 of its parent's 1,000: it is stopped, its parent sees why, and pays for it."""
    source = MemorySource(counted(), repeat=True)
    child = agent(source)

    @runnable
    async def parent(ctx: Any) -> Any:
        result = await ctx.start(child, "a prompt", budget=Budget(tokens=20)).finished()
        return result.cancellation.reason

    outer = Budget(tokens=1000)
    result = await parent.run(budget=outer)
    assert result.output is CancelReason.BUDGET_TOKENS
    assert outer.spent.tokens == 21


@virtual
async def test_one_budget_given_to_parent_and_child_is_charged_once() -> None:
    """And it stops the outermost run that it was given to."""
    source = MemorySource(counted(30), counted())
    child, budget = agent(source), Budget(tokens=50)

    @runnable
    async def parent(ctx: Any) -> Any:
        for _ in range(2):
            await ctx.start(child, "a prompt", budget=budget)

    result = await parent.run(budget=budget).finished()
    assert_stopped(result, CancelReason.BUDGET_TOKENS)
    assert budget.spent.tokens == 51


@pytest.mark.scenario("B24")
@virtual
async def test_twenty_parallel_runs_share_one_account() -> None:
    """Each is stopped for itself, at its own next read, and a late one before its first request."""
    source = MemorySource(counted(), repeat=True)
    one, budget = agent(source), Budget(tokens=1000)
    runs = [one.run("a prompt", budget=budget).start() for _ in range(20)]
    results = [await run.finished() for run in runs]
    for result in results:
        assert_stopped(result, CancelReason.BUDGET_TOKENS)
    assert 1000 < budget.spent.tokens <= 1000 + 20
    assert sum(result.usage.total for result in results) == budget.spent.tokens
    assert source.open_requests == []
    assert_stopped(await one.run("a prompt", budget=budget).finished(), CancelReason.BUDGET_TOKENS)
    assert len(source.requests) == 20


@virtual
async def test_a_run_without_a_budget_beside_one_with_is_left_alone() -> None:
    source = MemorySource(counted(100), repeat=True)
    one = agent(source)
    free = one.run("a prompt").start()
    assert_stopped(await one.run("a prompt", budget=Budget(tokens=20)).finished(), CancelReason.BUDGET_TOKENS)
    assert (await free).text == "t " * 100


def test_one_account_for_runs_on_several_loops_and_threads() -> None:
    """Eight loops in eight threads, each with a run of 1,000 tokens; 2,000 are allowed: all stop, none far beyond."""
    budget, results = Budget(tokens=2000), list[RunResult[Any]]()

    def work() -> None:
        async def main() -> RunResult[Any]:
            source = MemorySource(counted(every=0.0002))
            return await agent(source).run("a prompt", budget=budget).finished()

        results.append(asyncio.run(main()))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    stopped = [result for result in results if result.is_cancelled]
    assert stopped
    for result in stopped:
        assert_stopped(result, CancelReason.BUDGET_TOKENS)
    assert budget.spent.tokens == sum(result.usage.total or 1002 for result in results)
    assert 2000 < budget.spent.tokens <= 2000 + 8


# --- money, tools, models of your own -----------------------------------------------------------------------


@pytest.mark.scenario("B24")
@virtual
async def test_a_budget_in_dollars_stops_in_the_stream() -> None:
    """A cent for each token shown, a tenth of one for each asked: 25 cents are spent with the 25th."""
    source = MemorySource(counted())
    budget = Budget(cost_usd=0.25)
    result = await agent(source, price=PerToken(0.001, 0.01)).run("a prompt", budget=budget).finished()
    assert_stopped(result, CancelReason.BUDGET_COST)
    assert result.text == "t " * 25
    assert budget.spent.cost_usd == pytest.approx(0.252)
    assert str(result.cancellation) == "budget_cost (the budget of 0.25 US dollars is spent)"


def test_an_unknown_price_is_refused_before_anything_runs() -> None:
    """By `run()` itself, which says how to give one; without a limit in dollars nobody asks."""
    source = MemorySource(chat_stream(3), repeat=True)
    with pytest.raises(ConfigurationError, match=r"openai:m.*price=Price"):
        agent(source).run("hi", budget=Budget(cost_usd=1.0))
    agent(source).run("hi", budget=Budget(tokens=10))
    with pytest.raises(ConfigurationError, match="price must be a Price"):
        agent(source, price=0.01)


@virtual
async def test_an_unknown_price_under_a_budget_in_dollars_is_refused_for_a_child() -> None:
    """By the child's `run()`, in the parent's body; nothing is sent."""
    source = MemorySource(chat_stream(3))
    result = await asker(agent(source)).run(budget=Budget(cost_usd=1.0)).finished()
    assert isinstance(result.error, ConfigurationError)
    assert source.requests == []


@virtual
async def test_a_body_that_asks_a_model_without_a_price_is_refused() -> None:
    """No agent has looked before: the request itself does."""
    source = MemorySource(chat_stream(3))

    @runnable
    async def body(ctx: Any) -> None:
        await model(source).respond(ModelRequest(messages=(Message.user("hi"),)), ctx)

    result = await body.run(budget=Budget(cost_usd=1.0)).finished()
    assert isinstance(result.error, ConfigurationError)
    assert source.requests == []


@pytest.mark.scenario("B24")
@virtual
async def test_a_budget_of_tool_calls_stops_before_the_next_one() -> None:
    called: list[int] = []

    @runnable
    async def body(ctx: Any) -> None:
        for number in range(5):
            ctx.count_tool_call()
            called.append(number)
            await asyncio.sleep(1)

    budget = Budget(tool_calls=3)
    result = await body.run(budget=budget).finished()
    assert_stopped(result, CancelReason.BUDGET_CALLS)
    assert called == [0, 1, 2]
    assert budget.spent.tool_calls == 3


@virtual
async def test_a_model_without_http_is_stopped_where_it_drains() -> None:
    """`Scripted`, and any model of yours that calls `ctx.drain()` after what it has shown."""
    budget = Budget(tokens=20)
    long = Agent(Scripted("word " * 1000, pace=1.0))
    result = await long.run("a prompt", budget=budget).finished()
    assert_stopped(result, CancelReason.BUDGET_TOKENS)
    assert budget.spent.tokens <= 22


@virtual
async def test_what_a_body_says_itself_is_no_model_call_and_costs_nothing() -> None:
    @runnable
    async def body(ctx: Any) -> None:
        ctx.text("word " * 1000)
        await ctx.drain()

    budget = Budget(tokens=0, model_calls=0)
    assert (await body.run(budget=budget)).is_completed
    assert budget.spent == Spent()


# --- with other stops ---------------------------------------------------------------------------------------


@virtual
async def test_a_cancel_that_came_first_keeps_its_reason() -> None:
    """Already being stopped after its turn, the run goes beyond its budget: cut now, with the first reason."""
    source = MemorySource(counted())
    run = agent(source).run("a prompt", budget=Budget(tokens=50)).start()
    await asyncio.sleep(5)
    run.cancel("enough", mode="after_turn")  # type: ignore[arg-type]
    result = await run.finished()
    assert_stopped(result, CancelReason.USER_STOP)
    assert asyncio.get_running_loop().time() == pytest.approx(49.0)


@pytest.mark.scenario("I82", "B24")
def test_cancel_sweep_of_a_run_with_a_budget() -> None:
    """Cancelled at every step of a tree that is stopped by its budget: one terminal event, nothing left."""

    async def main() -> None:
        source = MemorySource(counted(10), repeat=True)
        run = asker(agent(source), times=3).run(budget=Budget(tokens=20))
        try:
            await run
        except RunCancelled:
            pass
        finally:
            result = await run.finished()
            log = await log_of(run)
            assert [event.type for event in log if event.is_terminal and event.parent_id is None] == ["run.cancelled"]
            assert result.is_cancelled
            assert source.open_requests == []

    assert cancel_sweep(main) > 20
