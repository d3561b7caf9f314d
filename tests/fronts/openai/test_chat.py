"""Chat completions through OpenAI's own client: answers, chunks, tools of the client, settings, schemas."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from openai.lib.streaming.chat import ContentDoneEvent
from pydantic import BaseModel

from halter import Agent, RunContext, runnable, tool
from halter.compose import Sequential
from halter.messages import PAUSED
from halter.models.scripted import Scripted, calls
from halter.testing.wire_probe import WireProbe

from ...server.conftest import Serve
from .conftest import CHAT_WEATHER, async_client_of, check_chunk, client_of, forecaster, poet, raw_events

AgentOn = Callable[..., Agent[Any]]
HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
pytestmark = pytest.mark.scenario("G74")


class City(BaseModel):
    name: str


def test_the_client_reads_an_answer(serve: Serve) -> None:
    client = client_of(serve(poet()))
    completion = client.chat.completions.create(model="poet", messages=HELLO)
    assert completion.choices[0].message.content == "Slowly the river turns."
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage is not None
    assert completion.usage.total_tokens == 5
    assert completion.object == "chat.completion"


def test_every_chunk_of_a_stream_fits_the_clients_types(serve: Serve) -> None:
    body = {"model": "poet", "messages": HELLO, "stream": True, "stream_options": {"include_usage": True}}
    with raw_events(serve(poet()), "POST", "/v1/chat/completions", json=body) as found:
        chunks = [check_chunk(each) for each in found]
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(each.choices[0].delta.content or "" for each in chunks if each.choices)
    assert text == "Slowly the river turns."
    assert [each.choices[0].finish_reason for each in chunks if each.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert all(each.usage is None for each in chunks[:-1])


def test_the_blocking_stream_helper_accumulates_the_answer(serve: Serve) -> None:
    client = client_of(serve(poet()))
    with client.chat.completions.stream(model="poet", messages=HELLO) as stream:
        done = [event.content for event in stream if isinstance(event, ContentDoneEvent)]
        assert done == ["Slowly the river turns."]
        assert stream.get_final_completion().choices[0].message.content == done[0]


def test_the_async_client_creates_and_streams(serve: Serve) -> None:
    served = serve(poet())

    async def both() -> tuple[str | None, str]:
        async with async_client_of(served) as client:
            whole = await client.chat.completions.create(model="poet", messages=HELLO)
            stream = await client.chat.completions.create(model="poet", messages=HELLO, stream=True)
            pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
            return whole.choices[0].message.content, "".join(pieces)

    assert asyncio.run(both()) == ("Slowly the river turns.",) * 2


@pytest.mark.parametrize("is_streamed", [False, True])
def test_the_client_answers_a_call_of_its_own_tool(serve: Serve, is_streamed: bool) -> None:
    client = client_of(serve(forecaster()))
    messages: list[Any] = [{"role": "user", "content": "What is it like in Nara?"}]
    if is_streamed:
        with client.chat.completions.stream(model="forecaster", messages=messages, tools=[CHAT_WEATHER]) as stream:
            first = stream.get_final_completion()
    else:
        first = client.chat.completions.create(model="forecaster", messages=messages, tools=[CHAT_WEATHER])
    choice = first.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me see."
    assert choice.message.tool_calls is not None
    call: Any = choice.message.tool_calls[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"location": "Nara"})
    messages.append(choice.message.model_dump(exclude_none=True, exclude={"parsed"}))
    messages.append({"role": "tool", "tool_call_id": call.id, "content": "Sunny."})
    second = client.chat.completions.create(model="forecaster", messages=messages, tools=[CHAT_WEATHER])
    assert second.choices[0].message.content == "It is sunny in Nara."
    assert second.choices[0].finish_reason == "stop"


def test_tools_of_the_served_agent_are_not_shown(serve: Serve) -> None:
    @tool
    async def look() -> str:
        """Looks."""
        return "Sunny."

    agent = Agent(Scripted(("I look.", calls("look")), "Sunny."), name="guide", tools=[look])
    completion = client_of(serve(agent)).chat.completions.create(model="guide", messages=HELLO)
    assert completion.choices[0].message.content == "I look.\n\nSunny."
    assert completion.choices[0].message.tool_calls is None


def test_an_answer_that_its_provider_has_paused_is_one_text(serve: Serve) -> None:
    agent = Agent(Pausing("Slowly the river turns."), name="slow")
    completion = client_of(serve(agent)).chat.completions.create(model="slow", messages=HELLO)
    assert completion.choices[0].message.content == "Slowly the river turns."


class Pausing(Scripted):
    """Says its answer in two messages, the first of which is not whole."""

    async def respond(self, request: Any, ctx: RunContext) -> Any:
        for text, reason in (("Slowly ", PAUSED), ("the river turns.", "stop")):
            reply = ctx.reply()
            reply.text(text)
            reply.assembly.finish_reason = reason
            message = reply.finish()
        return message


def test_the_provider_is_asked_as_the_client_asks(serve: Serve, agent_on: AgentOn, wire: WireProbe) -> None:
    client = client_of(serve(agent_on("steady(2,1)", instructions="Be kind.")))
    client.chat.completions.create(
        model="agent",
        messages=[
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": "One"},
            {"role": "assistant", "content": "Two"},
            {"role": "user", "content": [{"type": "text", "text": "Three"}]},
        ],
        temperature=0.3,
        max_tokens=50,
        stop=["x"],
        seed=7,
    )
    body = json.loads(wire.requests()[0].body)
    assert [each["content"] for each in body["messages"]] == ["Be kind.\n\nBe short.", "One", "Two", "Three"]
    assert (body["temperature"], body["stop"], body["seed"]) == (0.3, ["x"], 7)
    assert 50 in (body.get("max_tokens"), body.get("max_completion_tokens"))


def test_an_image_reaches_the_provider(serve: Serve, agent_on: AgentOn, wire: WireProbe) -> None:
    url = "data:image/png;base64,iVBORw0KGgo="
    content = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}]
    messages: Any = [{"role": "user", "content": content}]
    client_of(serve(agent_on("steady(2,1)"))).chat.completions.create(model="agent", messages=messages)
    sent = json.loads(wire.requests()[0].body)["messages"][0]["content"]
    assert sent[1]["image_url"]["url"] == url


def test_parse_reads_a_value_of_a_type(serve: Serve) -> None:
    client = client_of(serve(Agent('scripted:{"name": "Nara"}', name="geographer")))
    parsed = client.chat.completions.parse(model="geographer", messages=HELLO, response_format=City)
    assert parsed.choices[0].message.parsed == City(name="Nara")


def test_what_was_said_before_a_typed_answer_is_no_part_of_it(serve: Serve) -> None:
    @tool
    async def look() -> str:
        """Looks."""
        return "Nara."

    agent = Agent(Scripted(("I look.", calls("look")), '{"name": "Nara"}'), name="guide", tools=[look])
    client = client_of(serve(agent))
    parsed = client.chat.completions.parse(model="guide", messages=HELLO, response_format=City)
    assert parsed.choices[0].message.parsed == City(name="Nara")
    with client.chat.completions.stream(model="guide", messages=HELLO, response_format=City) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == City(name="Nara")


def test_a_schema_reaches_the_provider(serve: Serve, agent_on: AgentOn, wire: WireProbe) -> None:
    format: Any = {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": {"type": "object"}}}
    client = client_of(serve(agent_on("steady(2,1)")))
    client.chat.completions.create(model="agent", messages=HELLO, response_format=format)
    assert json.loads(wire.requests()[0].body)["response_format"]["json_schema"]["name"] == "city"


def test_what_is_no_agent_takes_the_users_text(serve: Serve) -> None:
    @runnable
    async def echo(ctx: RunContext, input: str) -> dict[str, str]:
        return {"heard": input}

    client = client_of(serve([echo, Sequential(poet("a"), poet("b"), name="both")]))
    completion = client.chat.completions.create(model="echo", messages=HELLO)
    assert json.loads(completion.choices[0].message.content or "") == {"heard": "Hello"}
    stream = client.chat.completions.create(model="both", messages=HELLO, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "Slowly the river turns."


def test_words_of_members_are_shown_as_they_come_and_those_of_an_agents_tools_are_not(serve: Serve) -> None:
    inner = Agent(Scripted("Inner words."), name="inner", description="Helps.")
    chief = Agent(Scripted(calls("inner", input="Go."), "Done."), name="chief", tools=[inner])
    row = Sequential(Agent(Scripted("First."), name="a"), chief, name="row")
    client = client_of(serve([row, chief]))
    deltas = [
        chunk.choices[0].delta for chunk in client.chat.completions.create(model="row", messages=HELLO, stream=True)
    ]
    shown = [(getattr(delta, "reasoning_content", None) or "", delta.content or "") for delta in deltas]
    assert "".join(thought for thought, _ in shown) == "First.\n\nDone."
    assert "".join(text for _, text in shown) == "Done."
    assert [bool(text) for _, text in shown].index(True) > [bool(thought) for thought, _ in shown].index(True)
    whole = client.chat.completions.create(model="row", messages=HELLO).choices[0].message
    assert (whole.content, whole.model_dump()["reasoning_content"]) == ("Done.", "First.\n\nDone.")
    alone = client.chat.completions.create(model="chief", messages=HELLO).choices[0].message
    assert (alone.content, alone.model_dump().get("reasoning_content")) == ("Done.", None)


def test_the_served_runnables_are_the_models(serve: Serve) -> None:
    client = client_of(serve([poet("a"), poet("b")]))
    assert [model.id for model in client.models.list()] == ["a", "b"]
    assert client.models.retrieve("a").owned_by == "halter"


def test_raw_and_streamed_responses_carry_the_runs_id(serve: Serve) -> None:
    served = serve(poet())
    client = client_of(served)
    raw = client.chat.completions.with_raw_response.create(
        model="poet", messages=HELLO, extra_headers={"Halter-Run-Id": "mine"}, user="ann", metadata={"plan": "free"}
    )
    assert raw.headers["Halter-Run-Id"] == "mine"
    assert raw.parse().id == "chatcmpl-mine"
    run = served.run("mine")
    assert (run["user"], run["tags"]) == ("ann", ["plan=free"])
    with client.chat.completions.with_streaming_response.create(model="poet", messages=HELLO, stream=True) as response:
        assert response.headers["Halter-Run-Id"]
        assert "[DONE]" in response.read().decode()
