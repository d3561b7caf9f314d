"""`Agent(model, output=Type)`: the schema goes out, a value of the type comes back, and what does not fit is told."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest

from halter import Agent, RunFailed, RunResult, events
from halter.errors import ConfigurationError, OutputInvalid, RunCancelled
from halter.features import Features
from halter.models import Anthropic, Gemini, OpenAIChat, OpenAIResponses, Scripted
from halter.models.compatible import compatible
from halter.testing import Answer, MemorySource, SweepOutcome, cancel_sweep
from halter.testing.memory import chat_stream, error_status


class City(msgspec.Struct):
    name: str
    people: int = 0


@dataclass
class Point:
    x: int
    y: int


class Person(pydantic.BaseModel):
    name: str
    age: int | None = None


GOOD = '{"name": "Ulm", "people": 126000}'
BAD = '{"name": "Ulm", "people": "many"}'


def said(text: str, finish: str = "stop") -> Answer:
    """The text in pieces of three characters."""
    return chat_stream([text[at : at + 3] for at in range(0, len(text), 3)], finish=finish)


def refused(text: str) -> Answer:
    answer = said("x")
    declined = b'"refusal":"%s"' % text.encode()
    pieces = [piece for piece in answer.body if not isinstance(piece, Exception)]
    return Answer(body=tuple((at, data.replace(b'"content":"x"', declined)) for at, data in pieces))


def agent_over(source: MemorySource, output: Any = City, **options: Any) -> Agent:
    model = OpenAIChat("m", base_url="https://provider.test/v1", api_key="k", source=source)
    return Agent(model, output=output, **options)


async def result_of(*answers: Answer, output: Any = City, **options: Any) -> tuple[RunResult[Any], MemorySource]:
    source = MemorySource(*answers)
    return await agent_over(source, output, **options).run("Where?").finished(), source


def error_of(result: RunResult[Any]) -> OutputInvalid:
    assert result.is_failed, result.why()
    assert result.output is None
    assert isinstance(result.error, OutputInvalid), result.why()
    return result.error


# --- what fits ----------------------------------------------------------------------------------------------


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("output", "text", "value"),
    [
        (City, GOOD, City("Ulm", 126000)),
        (Point, '{"x":1,"y":2}', Point(1, 2)),
        (Person, '{"name":"Eve","age":null}', Person(name="Eve")),
        (list[int], '{"value":[1,2]}', [1, 2]),
        (Literal["yes", "no"], '{"value":"no"}', "no"),
        (int | str, '{"value":7}', 7),
        (dict[str, int], '{"a":1}', {"a": 1}),
    ],
    ids=str,
)
async def test_the_answer_is_a_value_of_the_type(output: Any, text: str, value: Any) -> None:
    """One request, one step; `text` stays what the model has said."""
    result, source = await result_of(said(text), output=output)
    assert result.output == value
    assert type(result.output) is type(value)
    assert result.text == text
    assert len(source.requests) == 1


@pytest.mark.virtual_time
async def test_the_schema_goes_out_with_each_request() -> None:
    _, source = await result_of(said(BAD), said(GOOD))
    assert len(source.requests) == 2
    for request in source.requests:
        sent = request.json["response_format"]
        assert sent["type"] == "json_schema"
        assert sent["json_schema"]["name"] == "City"
        assert sent["json_schema"]["strict"] is True
        assert sent["json_schema"]["schema"]["required"] == ["name", "people"]


@pytest.mark.virtual_time
async def test_without_a_type_nothing_is_asked_or_parsed() -> None:
    result, source = await result_of(said(GOOD), output=None)
    assert result.output == result.text == GOOD
    assert "response_format" not in source.requests[0].json


@pytest.mark.virtual_time
async def test_what_was_sent_meanwhile_is_answered_before_anything_is_parsed() -> None:
    """Steered: the first answer is superseded, fit or not; the last one counts, and no repair was needed."""
    source = MemorySource(said("not yet"), said(GOOD))
    run = agent_over(source, output_retries=0).run("Where?").start()
    assert run.send("In Swabia.")
    assert (await run).output == City("Ulm", 126000)


@pytest.mark.virtual_time
async def test_a_model_without_features_is_asked_too() -> None:
    """Its answer is checked like any other."""
    assert (await Agent(Scripted(GOOD), output=City).run("Where?")).output == City("Ulm", 126000)
    result = await Agent(Scripted("In Ulm.", GOOD), output=City).run("Where?").finished()
    assert result.output == City("Ulm", 126000)


class Bounded(msgspec.Struct):
    """Numbers with bounds."""

    share: Annotated[float, msgspec.Meta(ge=0, le=1)]


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (OpenAIChat, ("response_format", "json_schema", "schema")),
        (OpenAIResponses, ("text", "format", "schema")),
        (Anthropic, ("output_config", "format", "schema")),
        (Gemini, ("generationConfig", "responseJsonSchema")),
        (partial(compatible, "mistral"), ("response_format", "json_schema", "schema")),
    ],
    ids=["chat", "responses", "anthropic", "gemini", "mistral"],
)
async def test_each_provider_gets_the_schema_in_its_own_place(kind: Any, path: tuple[str, ...]) -> None:
    """The same one; Anthropic's bounds are words."""
    source = MemorySource(error_status(400))
    model = kind("claude-sonnet-4-5", base_url="https://provider.test/v1", api_key="k", source=source)
    await Agent(model, output=Bounded).run("How much?").finished()
    sent = source.requests[0].json
    for name in path:
        sent = sent[name]
    share = {"type": "number", "minimum": 0, "maximum": 1}
    told = {"type": "number", "description": "minimum: 0; maximum: 1"}
    assert sent["properties"]["share"] == (told if kind is Anthropic else share)
    assert sent["additionalProperties"] is False
    assert sent["description"] == "Numbers with bounds."


# --- what does not ------------------------------------------------------------------------------------------


@pytest.mark.virtual_time
async def test_an_answer_that_does_not_fit_is_sent_back_once() -> None:
    """The model sees its answer and what is wrong with it; each try is a step, and all of it is in the history."""
    source = MemorySource(said(BAD), said(GOOD))
    run = agent_over(source).run("Where?")
    steps = [event async for event in run.events() if isinstance(event, events.StepStarted)]
    result = await run
    assert result.output == City("Ulm", 126000)
    assert result.text == GOOD
    assert [event.step for event in steps] == [1, 2]
    assert [message.role for message in result.messages] == ["user", "assistant", "user", "assistant"]
    repair = source.requests[1].json["messages"][-1]
    assert repair["role"] == "user"
    assert "Expected `int`, got `str` - at `$.people`" in str(repair["content"])
    assert source.requests[1].json["messages"][-2]["content"] == BAD


@pytest.mark.virtual_time
@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_after_the_last_repair_it_is_an_error_with_the_text_and_the_reasons(retries: int) -> None:
    result, source = await result_of(*[said(BAD)] * (retries + 1), output_retries=retries)
    error = error_of(result)
    assert len(source.requests) == retries + 1
    assert error.text == BAD
    assert len(error.reasons) == 1
    assert "$.people" in error.reasons[0]
    assert error.code is None
    assert not error.retryable
    assert "the answer is no City" in str(error)
    assert result.text == BAD


@pytest.mark.virtual_time
async def test_repairs_stay_within_max_turns() -> None:
    result, source = await result_of(said(BAD), said(BAD), output_retries=9, max_turns=2)
    error_of(result)
    assert len(source.requests) == 2


@pytest.mark.virtual_time
async def test_whoever_awaits_gets_it_as_the_cause() -> None:
    source = MemorySource(said("no"), said("no"))
    with pytest.raises(RunFailed) as caught:
        await agent_over(source).run("Where?")
    assert isinstance(caught.value.__cause__, OutputInvalid)


@pytest.mark.virtual_time
@pytest.mark.parametrize("finish", ["length", "max_tokens", "MAX_TOKENS"])
async def test_an_answer_that_was_cut_off_is_an_error_at_once(finish: str) -> None:
    """Also where it would fit: a number whose last digits are missing is a number."""
    for text in (GOOD[:20], GOOD):
        result, source = await result_of(said(text, finish))
        assert error_of(result).code == finish
        assert "max_output_tokens" in str(result.error)
        assert len(source.requests) == 1


@pytest.mark.virtual_time
@pytest.mark.parametrize("finish", ["content_filter", "SAFETY", "refusal"])
async def test_an_answer_that_was_withheld_is_an_error_at_once(finish: str) -> None:
    result, source = await result_of(said("", finish))
    assert error_of(result).code == finish
    assert len(source.requests) == 1


@pytest.mark.virtual_time
async def test_a_refusal_is_an_error_at_once_in_the_models_words() -> None:
    result, source = await result_of(refused("I will not."))
    error = error_of(result)
    assert (error.code, error.text) == ("refusal", "I will not.")
    assert "I will not." in str(error)
    assert len(source.requests) == 1


@pytest.mark.virtual_time
async def test_a_providers_error_is_what_it_is() -> None:
    """Nothing is made of it here."""
    result, _ = await result_of(error_status(400))
    assert not isinstance(result.error, OutputInvalid)


# --- stops --------------------------------------------------------------------------------------------------


@pytest.mark.virtual_time
async def test_a_stop_leaves_no_output_and_the_text_so_far() -> None:
    source = MemorySource(chat_stream(["{", '"name"', ":", '"Ulm"}'], every=1.0))
    run = agent_over(source).run("Where?").start()
    asyncio.get_running_loop().call_later(2.5, run.cancel)
    with pytest.raises(RunCancelled) as caught:
        await run
    assert caught.value.result is not None
    assert caught.value.result.output is None
    assert caught.value.result.text == '{"name"'
    assert source.open_requests == []


@pytest.mark.virtual_time
async def test_a_stop_after_the_turn_asks_for_no_repair() -> None:
    """The unfit answer stays in the history; what the model would have been told does not."""
    source = MemorySource(said(BAD))
    run = agent_over(source).run("Where?").start()
    run.cancel(mode="after_turn")
    result = await run.finished()
    assert result.is_cancelled
    assert result.output is None
    assert [message.role for message in result.messages] == ["user", "assistant"]
    assert len(source.requests) == 1


@pytest.mark.virtual_time
async def test_what_is_sent_during_a_repair_is_answered_with_it() -> None:
    """Both go into the next request: what is wrong, and what came meanwhile."""
    source = MemorySource(said(BAD), said(GOOD), said('{"name": "Oz", "people": null}'))
    run = agent_over(source).run("Where?").start()
    sent = False
    async for event in run.events():
        if isinstance(event, events.StepStarted) and event.step == 2 and not sent:
            sent = run.send("In a book.")
    assert sent
    assert (await run).output == City("Oz")
    assert [message["role"] for message in source.requests[2].json["messages"]][-2:] == ["assistant", "user"]


def test_a_stop_at_every_step_of_a_repair_ends_it() -> None:
    """Cancelled without an output, or completed with one; no request is left open, and none follows the stop."""
    sources: list[MemorySource] = []

    async def scenario(sweep: Any) -> RunResult[Any]:
        sources.append(MemorySource(said(BAD), said(GOOD)))
        run = agent_over(sources[-1]).run("Where?").start()
        sweep.cancel = run.cancel
        return await run.finished()

    def check(outcome: SweepOutcome) -> None:
        result = outcome.result
        assert result.is_cancelled or result.output == City("Ulm", 126000)
        assert result.is_completed or result.output is None
        assert sources[-1].open_requests == []

    assert cancel_sweep(scenario, check=check) > 5


# --- what is refused when the agent is made -----------------------------------------------------------------


class Unheld:
    name = "test:unheld"
    features = Features(settings=frozenset())

    async def respond(self, request: Any, ctx: Any) -> Any:
        raise AssertionError


def test_a_model_that_cannot_hold_to_a_schema_is_refused() -> None:
    Agent(Unheld())
    with pytest.raises(ConfigurationError, match="cannot hold its answer to a schema"):
        Agent(Unheld(), output=City)


@pytest.mark.parametrize("wrong", [{"output": "City"}, {"output": City("x")}, {"output_retries": -1}])
def test_wrong_arguments_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Agent("scripted:x", **wrong)


class Tree(msgspec.Struct):
    kids: list[Tree] = []


class Nameless:
    async def respond(self, request: Any, ctx: Any) -> Any:
        raise AssertionError


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"model": Nameless()}, "has a name"),
        ({"instructions": 5}, "instructions must be text"),
        ({"instructions": None}, "instructions must be text"),
        ({"name": 5}, "name must be text"),
        ({"settings": {"temperature": 1}}, "settings must be Settings"),
        ({"settings": {}}, "settings must be Settings"),
        ({"output": lambda: 0}, "output must be a type"),
    ],
)
def test_wrong_arguments_are_said_to_be_wrong_when_the_agent_is_made(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Agent(**{"model": "scripted:x"} | wrong)


@pytest.mark.virtual_time
async def test_an_answer_nested_too_deeply_is_repaired_like_any_other() -> None:
    deep = '{"kids":[' * 400 + "]}" * 400
    result, source = await result_of(said(deep), said('{"kids":[]}'), output=Tree)
    assert result.output == Tree()
    assert "nested too deeply" in str(source.requests[1].json["messages"][-1])


def test_the_type_may_change_from_agent_to_agent_over_one_model() -> None:
    """The model is immutable: the schema is the request's."""
    model = Scripted(GOOD)
    assert Agent(model, output=City).run("x").result().output == City("Ulm", 126000)
    assert Agent(model).run("x").result().output == GOOD
