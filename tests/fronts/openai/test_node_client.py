"""OpenAI's npm package in Node: create, stream, abort, stop, resume; the provider's record shows each stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from halter import Agent
from halter.testing.wire_probe import WireProbe

from ...server.conftest import Serve
from ..node import Node
from .conftest import forecaster, poet

AgentOn = Callable[..., Agent[Any]]
BEGIN = """
import OpenAI from "openai"
const client = new OpenAI({ baseURL: `${given.url}/v1`, apiKey: "none", maxRetries: 0 })
"""
pytestmark = pytest.mark.scenario("G74")


def test_it_creates_streams_and_answers_calls(serve: Serve, node: Node) -> None:
    source = """
    const messages = [{ role: "user", content: "Hello" }]
    const whole = await client.chat.completions.create({ model: "poet", messages })
    const stream = client.chat.completions.stream({ model: "poet", messages })
    const response = await client.responses.create({ model: "poet", input: "Hello" })
    const again = await client.responses.stream({ model: "poet", input: "Hello" }).finalResponse()
    const tools = [{ type: "function", name: "get_weather", parameters: { type: "object", properties: {} } }]
    const first = await client.responses.create({ model: "forecaster", input: "Nara?", tools })
    const call = first.output.at(-1)
    const second = await client.responses.create({
      model: "forecaster", tools, previous_response_id: first.id,
      input: [{ type: "function_call_output", call_id: call.call_id, output: "Sunny." }],
    })
    say([
      whole.choices[0].message.content, await stream.finalContent(), response.output_text, again.output_text,
      call.name, second.output_text,
    ])
    """
    found = node.run(BEGIN + source, url=serve([poet(), forecaster()]).url)
    assert found == ["Slowly the river turns."] * 4 + ["get_weather", "It is sunny in Nara."]


@pytest.mark.scenario("G66")
def test_aborting_stops_the_run(serve: Serve, agent_on: AgentOn, node: Node, wire: WireProbe) -> None:
    source = """
    const messages = [{ role: "user", content: "Go." }]
    const stream = await client.chat.completions.create({ model: "agent", messages, stream: true })
    const pieces = []
    for await (const chunk of stream) {
      pieces.push(chunk.choices[0].delta.content)
      if (pieces.length === 2) stream.controller.abort()
    }
    const controller = new AbortController()
    const asked = client.responses.create({ model: "agent", input: "Go." }, { signal: controller.signal })
    const error = asked.catch((error) => error.constructor.name)
    say(pieces.join(""))
    await told()
    controller.abort()
    say(await error)
    await told()
    """
    with node.start(BEGIN + source, url=serve(agent_on("stall")).url) as script:
        assert script.heard() == "t0 "
        wire.wait("token", count=2)
        script.tell()
        assert script.heard() == "APIUserAbortError"
        assert len(wire.assert_closed(1.0)) == 2
        script.tell()


@pytest.mark.scenario("G67")
def test_it_resumes_a_response_in_the_background_and_cancels_it(
    serve: Serve, agent_on: AgentOn, node: Node, wire: WireProbe
) -> None:
    source = """
    const ask = { model: "agent", input: "Go.", stream: true, background: true }
    let id, last, text = ""
    for await (const event of await client.responses.create(ask)) {
      id ??= event.response?.id
      last = event.sequence_number
      if (event.type === "response.output_text.delta") text += event.delta
      if (text.length > 20) break
    }
    const numbers = []
    for await (const event of await client.responses.retrieve(id, { stream: true, starting_after: last })) {
      numbers.push(event.sequence_number)
      if (event.type === "response.output_text.delta") text += event.delta
      if (text.length > 60) break
    }
    const stopped = await client.responses.cancel(id)
    say({ text, isNext: numbers[0] === last + 1, status: stopped.status })
    """
    found = node.run(BEGIN + source, url=serve(agent_on("steady(10000,3)")).url)
    assert (found["isNext"], found["status"]) == (True, "cancelled")
    words = found["text"].split()
    assert words == [f"t{number}" for number in range(len(words))]
    assert len(wire.assert_closed(1.0)) == 1
