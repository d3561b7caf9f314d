"""B24 over real sockets: a budget stops a run by the one path, and the provider sees how far it came."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from halter import Agent, Budget, CancelReason, Run, RunResult, Usage, events, runnable
from halter.core.ports import LARGEST_READ
from halter.core.tokens import estimate_tokens
from halter.testing.wire_probe import WireProbe

from ..bounds import T, assert_in_time, assert_within
from .adapters import Adapter
from .descriptors import sockets_to
from .forms import AsyncForm, BlockingForm

Form = AsyncForm | BlockingForm
FLOOD, PACED = "steady(5000000,0)", "steady(100000,2)"


class Cent:
    """A hundredth of a US dollar for each token."""

    def cost(self, usage: Usage) -> float:
        return usage.total / 100


def result_of(form: Form, make: Callable[[], Run[Any]]) -> tuple[RunResult[Any], list[events.Event]]:
    """The result of one run, whatever it is, and its log."""
    if isinstance(form, BlockingForm):
        run = make()
        log = list(run.events())
        assert run.outcome is not None
        return run.outcome, log

    async def main() -> tuple[RunResult[Any], list[events.Event]]:
        run = make()
        return await run.finished(), [event async for event in run.events()]

    return form.drive(main())


def assert_stopped(result: RunResult[Any], reason: CancelReason) -> None:
    assert result.is_cancelled, result.why()
    assert result.cancellation is not None
    assert result.cancellation.reason is reason
    assert result.receipt is not None
    assert result.receipt.confirmed, str(result.receipt)


def one_read(wire: WireProbe, result: RunResult[Any]) -> int:
    """How many tokens one read of this provider's frames holds, as they were charged; the heads of chunks are extra."""
    record = max(wire.requests(), key=lambda record: record.tokens_sent)
    words = LARGEST_READ / (record.bytes_sent / record.tokens_sent)
    return round(1.25 * words * max(1.0, estimate_tokens(result.text) / len(result.text.split()))) + 2


ROUNDING = 0.99  # what is estimated piece by piece is a little more than the whole


@pytest.mark.scenario("B24")
@pytest.mark.parametrize(("mode", "limit"), [(FLOOD, 1000), (PACED, 300)], ids=["flood", "paced"])
def test_a_budget_of_tokens_stops_in_the_stream(
    wire: WireProbe, adapter: Adapter, form: Form, mode: str, limit: int
) -> None:
    """Beyond the limit by one read at most; one request, closed by us; one terminal event, and nothing after it."""
    port = wire.wire.port
    before = set(sockets_to(port))
    budget = Budget(tokens=limit)
    agent = adapter.agent(wire.url(mode))
    result, log = result_of(form, lambda: agent.run("count", budget=budget))
    wire.assert_closed(T)
    assert_stopped(result, CancelReason.BUDGET_TOKENS)
    assert limit * ROUNDING < budget.spent.tokens <= limit + one_read(wire, result)
    assert result.usage.total == budget.spent.tokens
    assert result.text.split() == [f"t{number}" for number in range(len(result.text.split()))]
    assert [event.type for event in log if event.is_terminal] == ["run.cancelled"]
    cut = next(place for place, event in enumerate(log) if isinstance(event, events.Cancelling))
    assert not [event for event in log[cut:] if isinstance(event, events.TextDelta)]
    assert len(wire.requests()) == 1
    assert not set(sockets_to(port)) - before


@pytest.mark.scenario("B24")
def test_the_provider_sends_nothing_that_was_not_paid_for(wire: WireProbe, adapter: Adapter, form: Form) -> None:
    """Paced, so that no buffer hides it: what it had sent when it saw the close is what we have charged, or just."""
    budget = Budget(tokens=60)
    agent = adapter.agent(wire.url("steady(10000,10)"))
    result, _ = result_of(form, lambda: agent.run("count", budget=budget))
    (record,) = wire.assert_closed(T)
    assert_stopped(result, CancelReason.BUDGET_TOKENS)
    assert_within(T, (record.tokens_sent - len(result.text.split()) - 1) / 100)  # there are a hundred a second
    assert_within(T, (record.tokens_sent - 60) / 100)


@pytest.mark.scenario("B24")
@pytest.mark.loops
async def test_a_budget_covers_a_whole_tree(wire: WireProbe, adapter: Adapter) -> None:
    """Three children at once and a parent that waits for them: all closed by the one stop, the parent's own reason."""
    agent = adapter.agent(wire.url("steady(100000,10)"))

    @runnable
    async def parent(ctx: Any) -> None:
        await asyncio.gather(*(ctx.start(agent, "count") for _ in range(3)))

    budget = Budget(tokens=240)
    run = parent.run(budget=budget)
    result = await run.finished()
    records = wire.assert_closed(T)
    assert_stopped(result, CancelReason.BUDGET_TOKENS)
    assert len(records) == 3
    assert result.usage.total == budget.spent.tokens
    children = [event for event in [event async for event in run.events()] if isinstance(event, events.Cancelled)]
    assert [event.reason for event in children] == [CancelReason.PARENT_CANCELLED] * 3 + [CancelReason.BUDGET_TOKENS]
    texts = [event.text for event in children if event.parent_id is not None]
    # A word is two tokens, and comes every 10 ms: each child may overspend what comes within T.
    longest = max(len(text.split()) for text in texts)
    assert budget.spent.tokens > 240 * ROUNDING
    assert_in_time(budget.spent.tokens <= 240 + 3 * 50, f"{budget.spent.tokens} tokens, {longest} of one child")


@pytest.mark.scenario("B24")
@pytest.mark.loops
async def test_a_budget_is_shared_by_twenty_parallel_runs(wire: WireProbe, adapter: Adapter) -> None:
    """Each ends by itself at its next read: together beyond the limit by one read for each open request at most."""
    agent = adapter.agent(wire.url("steady(100000,5)"))
    budget = Budget(tokens=2000)
    runs = [agent.run("count", budget=budget).start() for _ in range(20)]
    results = [await run.finished() for run in runs]
    wire.assert_closed(T)
    for result in results:
        assert_stopped(result, CancelReason.BUDGET_TOKENS)
    assert len(wire.requests()) == 20
    assert 2000 * ROUNDING < budget.spent.tokens <= 2000 + 20 * one_read(wire, results[0])
    assert budget.spent.tokens == sum(result.usage.total for result in results)
    ended = time.monotonic()
    assert_stopped(await agent.run("count", budget=budget).finished(), CancelReason.BUDGET_TOKENS)
    wire.assert_no_requests_after(ended)


@pytest.mark.scenario("B24")
def test_a_budget_in_dollars_stops_in_the_stream(wire: WireProbe, adapter: Adapter, form: Form) -> None:
    """A cent for each token, and a dollar: 100 tokens, and one read."""
    budget = Budget(cost_usd=1.0)
    agent = Agent(adapter.model(wire.url(PACED), price=Cent()))
    result, _ = result_of(form, lambda: agent.run("count", budget=budget))
    wire.assert_closed(T)
    assert_stopped(result, CancelReason.BUDGET_COST)
    assert 1.0 * ROUNDING < budget.spent.cost_usd <= 1.0 + one_read(wire, result) / 100
    assert budget.spent.cost_usd == pytest.approx(result.usage.total / 100)


@pytest.mark.scenario("B24")
def test_a_budget_of_calls_stops_before_the_next_request(wire: WireProbe, adapter: Adapter, form: Form) -> None:
    """Two are allowed, and a flow of four is wanted: the provider sees two, both whole, and never a third."""
    agent = adapter.agent(wire.url("steady(5,1)"))

    @runnable
    async def four(ctx: Any) -> None:
        for _ in range(4):
            await ctx.start(agent, "count")

    result, _ = result_of(form, lambda: four.run(budget=Budget(model_calls=2)))
    assert_stopped(result, CancelReason.BUDGET_CALLS)
    time.sleep(0.1)
    records = wire.requests()
    assert len(records) == 2
    assert all(record.finished_at is not None for record in records)


@pytest.mark.scenario("B24")
def test_a_spent_budget_opens_no_connection(wire: WireProbe, adapter: Adapter, form: Form) -> None:
    agent = adapter.agent(wire.url("steady(5,1)"))
    for budget, reason in (
        (Budget(tokens=0), CancelReason.BUDGET_TOKENS),
        (Budget(model_calls=0), CancelReason.BUDGET_CALLS),
    ):
        result, log = result_of(form, lambda: agent.run("count", budget=budget))  # noqa: B023
        assert_stopped(result, reason)
        assert log[-1].type == "run.cancelled"
    assert wire.requests() == []
