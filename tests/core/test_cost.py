"""What a run has cost: each answer by the price of the model that gave it, all runs under it, and never a guess."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from halter import Agent, Message, RunContext, Usage, runnable
from halter.models import Fallback, OpenAIChat, Scripted
from halter.models.prices import FREE, LongPrompt, Price
from halter.models.scripted import calls
from halter.request import ModelRequest
from halter.testing import Answer, MemorySource
from halter.testing.memory import chat_stream, error_status, no_head, no_slot, stalled

pytestmark = pytest.mark.virtual_time
CHEAP = Price(input=1.0, output=10.0)
DEAR = Price(input=100.0, output=1000.0)
GOOD = chat_stream("all is well", usage=(5_000, 300))


def chat(*answers: Answer, price: Price | None = CHEAP, name: str = "unheard-of", **options: Any) -> OpenAIChat:
    source = MemorySource(*answers)
    return OpenAIChat(name, base_url=f"https://{name}.test/v1", api_key="k", source=source, price=price, **options)


class Priced(Scripted):
    """A scripted model that costs something: a dollar for a token, or as given."""

    def __init__(self, *answers: Any, dollars: float = 1.0) -> None:
        super().__init__(*answers)
        self._dollars = dollars

    @property
    def price(self) -> Price:
        return Price(input=self._dollars * 1e6, output=self._dollars * 1e6)


class Unpriced(Scripted):
    """One whose price nobody knows."""

    @property
    def price(self) -> Any:
        return None


async def test_a_run_costs_what_its_tokens_cost() -> None:
    result = await Agent(chat(GOOD)).run("go").finished()
    assert result.cost == pytest.approx(CHEAP.cost(Usage(input=5_000, output=300)))
    assert (result.usage.input, result.usage.output) == (5_000, 300)


async def test_a_price_that_is_not_known_makes_the_cost_unknown() -> None:
    result = await Agent(chat(GOOD, price=None)).run("go").finished()
    assert (result.cost, result.usage.total) == (None, 5_300)


async def test_a_free_model_and_a_run_without_a_model_cost_nothing() -> None:
    @runnable
    async def says(ctx: RunContext) -> None:
        ctx.text("with its own words")

    assert Scripted("yes").price is FREE
    assert (await Agent("scripted:yes").run("go").finished()).cost == 0.0
    assert (await says.run().finished()).cost == 0.0


async def test_of_several_models_the_one_that_has_answered_is_paid() -> None:
    refuses = chat(error_status(503), price=DEAR, name="one", max_retries=0)
    result = await Agent(Fallback(refuses, chat(GOOD, name="other"))).run("go").finished()
    assert result.cost == pytest.approx(CHEAP.cost(Usage(input=5_000, output=300)))


async def test_each_answer_is_a_request_of_its_own_where_long_prompts_cost_more() -> None:
    price = Price(input=1.0, output=1.0, long=LongPrompt(above=8_000, input=2.0, output=2.0))
    result = await Agent(chat(GOOD, price=price)).run("go").finished()
    model = chat(GOOD, chat_stream("and well again", usage=(7_000, 1_000)), price=price)
    run = Agent(model).run("go").start()
    assert run.send("and?")
    twice = await run.finished()
    assert twice.usage.input == 12_000
    assert result.cost is not None
    assert twice.cost == pytest.approx(result.cost + 0.008), "neither prompt was long"


async def test_an_answer_that_was_stopped_costs_what_is_estimated() -> None:
    run = Agent(chat(stalled(3))).run("a prompt").start()
    await asyncio.sleep(1)
    run.cancel()
    result = await run.finished()
    assert result.usage.estimated
    assert result.usage.input > 0 < result.usage.output
    assert result.cost == pytest.approx(CHEAP.cost(result.usage))


@pytest.mark.parametrize(("answer", "is_paid"), [(no_head(), True), (no_slot(), False)], ids=["sent", "never sent"])
async def test_a_request_without_an_answer_costs_its_prompt_if_it_has_left(answer: Answer, is_paid: bool) -> None:
    run = Agent(chat(answer)).run("a prompt").start()
    await asyncio.sleep(1)
    run.cancel()
    result = await run.finished()
    assert result.cost == pytest.approx(CHEAP.cost(result.usage))
    assert (result.cost > 0) is is_paid


async def test_what_is_under_a_run_is_part_of_its_cost() -> None:
    child = Agent(Priced("one two three", dollars=0.5))

    @runnable
    async def parent(ctx: RunContext) -> None:
        await ctx.start(child, "hello you")
        await ctx.start(child, "hello")

    result = await parent.run().finished()
    assert result.usage.total == 3 + 6
    assert result.cost == pytest.approx(4.5)


async def test_one_unknown_price_below_makes_the_whole_unknown() -> None:
    @runnable
    async def parent(ctx: RunContext) -> tuple[Any, Any]:
        known, unknown = ctx.start(Agent(Priced("yes")), "go"), ctx.start(Agent(Unpriced("yes")), "go")
        return (await known.finished()).cost, (await unknown.finished()).cost

    result = await parent.run().finished()
    assert result.output == (2.0, None)
    assert result.cost is None


async def test_after_a_handoff_the_next_agents_price_counts() -> None:
    other = Agent(Priced("it is done", dollars=100.0), name="other")
    first = Agent(Priced(calls("transfer_to_other")), name="first", handoffs=[other])
    result = await first.run("go").finished()
    assert result.text == "it is done"
    answers = [message.usage for message in result.messages if message.usage is not None]
    assert len(answers) == 2
    assert result.cost == pytest.approx(answers[0].total + 100.0 * answers[1].total)


async def test_a_model_that_does_not_say_its_price_has_none() -> None:
    class Parrot:
        name = "parrot"

        async def respond(self, request: ModelRequest, ctx: RunContext) -> Message:
            reply = ctx.reply()
            reply.text(request.messages[-1].text)
            return reply.finish()

    result = await Agent(Parrot()).run("hello").finished()
    assert (result.text, result.cost) == ("hello", None)
    assert result.usage.total > 0
