"""`Fallback`: who is asked when one refuses, and when nobody may be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from halter import Agent, Budget, CancelReason, Message, RunResult, RunStatus, events
from halter.core.ports import Model
from halter.errors import (
    AuthenticationFailed,
    ConfigurationError,
    ConnectionFailed,
    IncompleteStream,
    ModelNotFound,
    RateLimited,
    RequestRejected,
    ServerFailed,
    StreamTimeout,
)
from halter.features import Features
from halter.messages import Opaque, Text
from halter.models import Fallback, OpenAIChat, Scripted, Settings
from halter.models.http import Timeouts
from halter.models.route import FLAGS
from halter.testing import HANG, Answer, MemorySource, cancel_sweep
from halter.testing.memory import chat_stream, cut, eof, error_frame, error_status, no_head, stalled
from halter.testing.wire_probe import WireProbe

virtual = pytest.mark.virtual_time
GOOD = chat_stream("all is well", usage=(5, 3))


def model(source: MemorySource, name: str = "a", **options: Any) -> OpenAIChat:
    options = {"max_retries": 0, **options}
    return OpenAIChat(name, base_url=f"https://{name}.test/v1", api_key="k", source=source, **options)


def two(first: Answer, second: Answer = GOOD, **options: Any) -> tuple[Agent, MemorySource, MemorySource]:
    """An agent over two models, and what each of them is asked."""
    one, other = MemorySource(first), MemorySource(second)
    return Agent(Fallback(model(one, "a", **options), model(other, "b", **options))), one, other


async def answered(agent: Agent, **options: Any) -> tuple[RunResult[Any], list[events.Event]]:
    run = agent.run("hello", **options)
    return await run.finished(), [event async for event in run.events()]


# --- construction -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [(), (None,), ("scripted:a", 7), ("no-such-prefix:x",), ("scripted:a", object())])
def test_what_is_no_model_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError):
        Fallback(*wrong)


def test_it_takes_names_and_models_and_has_a_name_of_its_own() -> None:
    route = Fallback("scripted:Hello", Fallback(Scripted("Hi"), model(MemorySource(GOOD))))
    assert route.name == "fallback(scripted, fallback(scripted, openai:a))"
    assert repr(route).startswith("Fallback(Scripted('Hello'), Fallback(Scripted('Hi'), OpenAIChat('a'")
    assert len(route.models) == 2


class Small(Scripted):
    """A model that can do little."""

    features = Features(settings=frozenset(("temperature", "seed")), tools=True)


def test_its_features_are_what_all_of_them_have() -> None:
    """So that an agent is refused when it is made, and not when the second model is asked."""
    route = Fallback(model(MemorySource(GOOD)), Small("Hi"), Scripted("of which nothing is known"))
    assert route.features is not None
    assert route.features.settings == {"temperature", "seed"}
    assert {name for name in FLAGS if getattr(route.features, name)} == {"tools"}
    Agent(route, settings=Settings(temperature=0.5))
    with pytest.raises(ConfigurationError, match="top_p"):
        Agent(route, settings=Settings(top_p=0.5))
    assert Fallback("scripted:a").features is None


def test_its_price_is_known_if_all_are() -> None:
    known, unknown = Scripted("free"), model(MemorySource(GOOD))
    assert Fallback(known, known).price is known.price
    assert Fallback(known, unknown).price is None
    with pytest.raises(ConfigurationError, match="price"):
        Agent(Fallback(known, unknown)).run("hi", budget=Budget(cost_usd=1))


# --- who is asked -------------------------------------------------------------------------------------------


@virtual
async def test_the_first_that_serves_is_the_only_one_asked() -> None:
    agent, one, other = two(GOOD, GOOD)
    result, _ = await answered(agent)
    assert result.text == "all is well"
    assert (len(one.requests), len(other.requests)) == (1, 0)


REFUSALS: list[tuple[Answer, type[Exception]]] = [
    (Answer(connect=ConnectionFailed("refused")), ConnectionFailed),
    *((error_status(status), AuthenticationFailed) for status in (401, 403)),
    (error_status(402), RequestRejected),
    (error_status(404), ModelNotFound),
    *((error_status(status), ServerFailed) for status in (408, 409, 500, 502, 503, 529)),
    (error_status(429), RateLimited),
    (error_frame(0), ServerFailed),
    (eof(0), IncompleteStream),
    (cut(0), ConnectionFailed),
    (Answer(connect=HANG), StreamTimeout),
    (no_head(), StreamTimeout),
]


@virtual
@pytest.mark.parametrize(("refusal", "kind"), REFUSALS, ids=lambda value: getattr(value, "__name__", ""))
async def test_a_model_that_refuses_to_serve_is_followed_by_the_next(refusal: Answer, kind: type[Exception]) -> None:
    """The answer and its usage are the second one's; the events name both, and say why."""
    agent, one, other = two(refusal)
    result, log = await answered(agent)
    assert result.status is RunStatus.COMPLETED, result.why()
    assert result.text == "all is well"
    assert (result.usage.input, result.usage.output) == (5, 3)
    assert [message.role for message in result.messages] == ["user", "assistant"]
    assert (len(one.requests), len(other.requests)) == (1, 1)
    asked = [event.model for event in log if isinstance(event, events.ModelRequested)]
    assert asked == ["openai:a", "openai:b"]
    (retry,) = (event for event in log if isinstance(event, events.ModelRetry))
    assert (retry.attempt, retry.delay, retry.cause.type) == (1, 0.0, kind.__name__)


@virtual
@pytest.mark.parametrize("status", [400, 413, 422, 451])
async def test_a_request_at_fault_is_nobody_else_s_business(status: int) -> None:
    """A wrong request, or one whose content was refused: the next model is not asked."""
    agent, _, other = two(error_status(status, message="content policy"))
    result, _ = await answered(agent)
    assert isinstance(result.error, RequestRejected)
    assert other.requests == []


@pytest.mark.scenario("A6", "A7")
@virtual
@pytest.mark.parametrize("broken", [cut(3), error_frame(3), eof(3)], ids=["cut", "error frame", "eof"])
async def test_nobody_is_asked_after_something_was_shown(broken: Answer) -> None:
    """Failed, with the partial text: a second answer must not be glued to the first."""
    agent, _, other = two(broken)
    result, _ = await answered(agent)
    assert result.is_failed
    assert result.text == "t0 t1 t2 "
    assert result.messages[-1].interrupted
    assert other.requests == []


@virtual
async def test_a_model_s_own_retries_come_first() -> None:
    """Two retries of the first, each in its time; then the second."""
    one, other = MemorySource(error_status(503), repeat=True), MemorySource(GOOD)
    agent = Agent(Fallback(model(one, "a", max_retries=2), model(other, "b")))
    result, log = await answered(agent)
    assert result.is_completed
    assert (len(one.requests), len(other.requests)) == (3, 1)
    assert len([event for event in log if isinstance(event, events.ModelRetry)]) == 3


@virtual
async def test_the_last_error_tells_of_those_before() -> None:
    """Three models, none serves: the third one's error, with a note on each before it."""
    sources = [MemorySource(error_status(status, message=f"no {status}")) for status in (429, 503, 401)]
    agent = Agent(Fallback(*(model(source, name) for source, name in zip(sources, "abc", strict=True))))
    result, _ = await answered(agent)
    assert isinstance(result.error, AuthenticationFailed)
    first, second = result.error.__notes__
    assert first.startswith("before it, openai:a refused to serve: RateLimited: ")
    assert "no 429" in first
    assert second.startswith("before it, openai:b refused to serve: ServerFailed: ")
    assert result.usage.total == 0
    assert [message.role for message in result.messages] == ["user"]


@virtual
async def test_fallbacks_nest() -> None:
    """(a, b), c: each is asked once, in order; and what an inner one has shown counts for the outer."""
    sources = [MemorySource(error_status(503)), MemorySource(error_status(429)), MemorySource(GOOD)]
    a, b, c = (model(source, name) for source, name in zip(sources, "abc", strict=True))
    result, log = await answered(Agent(Fallback(Fallback(a, b), c)))
    assert result.text == "all is well"
    asked = [event.model for event in log if isinstance(event, events.ModelRequested)]
    assert asked == ["openai:a", "openai:b", "openai:c"]
    shown, third = MemorySource(cut(2)), MemorySource(GOOD)
    nested = Fallback(Fallback(model(MemorySource(error_status(503))), model(shown, "b")), model(third, "c"))
    result, _ = await answered(Agent(nested))
    assert (result.is_failed, result.text) == (True, "t0 t1 ")
    assert third.requests == []


@virtual
async def test_the_same_model_may_be_asked_twice() -> None:
    source = MemorySource(error_status(503), GOOD)
    same = model(source)
    result, _ = await answered(Agent(Fallback(same, same)))
    assert result.is_completed
    assert len(source.requests) == 2


@virtual
async def test_what_only_another_provider_understands_is_not_sent() -> None:
    """A part with the first provider's mark stays here when the second is asked."""
    agent, one, other = two(error_status(503))
    kept = Opaque("chat:a.test", {"reasoning_details": [{"type": "reasoning.encrypted", "data": "secret"}]})
    history = [Message.user("hi"), Message("assistant", (Text("hello"), kept))]
    result, _ = await answered(agent, history=history)
    assert result.is_completed
    assert b"secret" in one.requests[0].body
    assert b"secret" not in other.requests[0].body


# --- with stops and budgets ---------------------------------------------------------------------------------


@pytest.mark.scenario("A6")
@virtual
@pytest.mark.parametrize(
    "answer", [no_head(), Answer(connect=HANG), stalled(0)], ids=["no head", "no connection", "stall"]
)
async def test_a_stop_while_the_first_is_asked_asks_nobody_else(answer: Answer) -> None:
    agent, one, other = two(answer)
    run = agent.run("hello").start()
    await asyncio.sleep(1.0)
    run.cancel()
    assert (await run.finished()).is_cancelled
    assert other.requests == []
    assert one.open_requests == []


@pytest.mark.scenario("A5", "A6")
@virtual
async def test_a_stop_in_the_first_one_s_back_off_asks_nobody_else() -> None:
    one, other = MemorySource(error_status(429, retry_after=60)), MemorySource(GOOD)
    run = Agent(Fallback(model(one, max_retries=1), model(other, "b"))).run("hello").start()
    await asyncio.sleep(1.0)
    run.cancel()
    assert (await run.finished()).is_cancelled
    await asyncio.sleep(100.0)
    assert (len(one.requests), len(other.requests)) == (1, 0)


@pytest.mark.scenario("A6")
@virtual
async def test_a_stop_during_the_second_model_ends_it_and_asks_no_third() -> None:
    second, third = MemorySource(stalled(2)), MemorySource(GOOD)
    route = Fallback(model(MemorySource(error_status(503))), model(second, "b"), model(third, "c"))
    run = Agent(route).run("hello").start()
    await asyncio.sleep(1.0)
    run.cancel()
    result = await run.finished()
    assert result.is_cancelled
    assert result.text == "t0 t1 "
    assert second.open_requests == []
    assert third.requests == []


@pytest.mark.scenario("I82", "A6")
def test_cancel_sweep_over_a_fallback() -> None:
    """At each step: one terminal event, nothing open, and no request after the stop."""

    async def main(sweep: Any) -> None:
        asked: list[str] = []
        one, other = MemorySource(error_status(503, after=0.1)), MemorySource(chat_stream(3))
        run = Agent(Fallback(model(one), model(other, "b"))).run("hello").start()

        def stop() -> None:
            asked.extend(["stopped", str(len(one.requests) + len(other.requests))])
            run.cancel()

        sweep.cancel = stop
        result = await run.finished()
        log = [event async for event in run.events()]
        assert [event.is_terminal for event in log].count(True) == 1
        assert not one.open_requests + other.open_requests
        if asked:
            assert result.is_cancelled or result.is_completed
            assert str(len(one.requests) + len(other.requests)) == asked[1]

    assert cancel_sweep(main) > 5


@pytest.mark.scenario("B24")
@virtual
async def test_a_budget_of_calls_counts_each_model_that_is_asked() -> None:
    agent, one, other = two(error_status(503))
    result, _ = await answered(agent, budget=Budget(model_calls=1))
    assert result.cancellation is not None
    assert result.cancellation.reason is CancelReason.BUDGET_CALLS
    assert (len(one.requests), len(other.requests)) == (1, 0)


# --- over real sockets --------------------------------------------------------------------------------------


def over(wire: WireProbe, *modes: str) -> Agent:
    models: list[Model] = [
        OpenAIChat(f"m{place}", base_url=wire.url(mode), api_key="k", max_retries=0, timeouts=Timeouts())
        for place, mode in enumerate(modes)
    ]
    return Agent(Fallback(*models))


@pytest.mark.loops
@pytest.mark.parametrize("refusal", ["status(503)", "status(401)", "status(404)", "status(429)", "eof(0)"])
async def test_the_second_answers_over_real_sockets(wire: WireProbe, refusal: str) -> None:
    result = await over(wire, refusal, "steady(5,1)").run("count").finished()
    assert result.text == "t0 t1 t2 t3 t4 "
    assert [record.mode for record in wire.requests()] == [refusal, "steady(5,1)"]


@pytest.mark.scenario("A6", "A7")
@pytest.mark.loops
@pytest.mark.parametrize("broken", ["cut(3)", "reset(3)", "error-frame(3)", "eof(3)"])
async def test_after_partial_text_the_provider_sees_no_second_request(wire: WireProbe, broken: str) -> None:
    result = await over(wire, broken, "steady(5,1)").run("count").finished()
    assert result.is_failed
    assert result.text == "t0 t1 t2 "
    await asyncio.sleep(0.1)
    assert [record.mode for record in wire.requests()] == [broken]


@pytest.mark.scenario("A6")
@pytest.mark.loops
@pytest.mark.parametrize("first", ["stall(0)", "no-headers", "stall(2)", "rate-limit(9,60)"])
async def test_a_stop_closes_the_first_and_the_provider_sees_no_second_request(wire: WireProbe, first: str) -> None:
    models = [OpenAIChat("m", base_url=wire.url(mode), api_key="k") for mode in (first, "steady(5,1)")]
    run = Agent(Fallback(*models)).run("count").start()
    await wire.awaited("started")
    await asyncio.sleep(0.05)
    run.cancel()
    result = await run.finished()
    assert result.is_cancelled
    if not first.startswith("rate-limit"):  # where the connection is back in the pool
        await wire.awaited("closed")
    await asyncio.sleep(0.2)
    assert [record.mode for record in wire.requests()] == [first]


@pytest.mark.scenario("A6")
@pytest.mark.loops
async def test_a_stop_during_the_second_closes_its_socket(wire: WireProbe) -> None:
    run = over(wire, "status(503)", "stall(2)", "steady(5,1)").run("count").start()
    await wire.awaited("token")
    while run.text != "t0 t1 ":  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    run.cancel()
    assert (await run.finished()).text == "t0 t1 "
    await wire.awaited("closed")
    await asyncio.sleep(0.1)
    assert [record.mode for record in wire.requests()] == ["status(503)", "stall(2)"]


class Speaker:
    """A model of one's own that shows its answer by `ctx.text`."""

    name = "speaker"

    async def respond(self, request: Any, ctx: Any) -> Message:
        ctx.text("partial ")
        raise ServerFailed("broken")


@virtual
async def test_a_model_that_has_said_something_is_the_last_one_asked() -> None:
    source = MemorySource(GOOD)
    result, _ = await answered(Agent(Fallback(Speaker(), model(source))))
    assert isinstance(result.error, ServerFailed)
    assert result.text == "partial "
    assert source.requests == []
