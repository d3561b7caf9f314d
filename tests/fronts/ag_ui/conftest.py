"""AG-UI's `HttpAgent` in two processes: of protocol 1.0, and the last version before it, which CopilotKit has."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from ..node import Node, Worker

BEGIN = """
process.env.SUPPRESS_TRANSFORMATION_WARNINGS = "1"
const agentAt = (url, options = {}) =>
  new agui.HttpAgent({ url: `${url}/v1/ag-ui/agent`, threadId: "thread", ...options })
const ask = (agent, content, more = {}) => {
  agent.messages = [...agent.messages, { id: crypto.randomUUID(), role: "user", content }]
  return run(agent, more)
}
// Runs the agent; all events, and the error, if there is one.
const run = async (agent, more = {}) => {
  const events = []
  let error
  const { result } = await agent
    .runAgent({ runId: crypto.randomUUID(), ...more }, { onEvent: ({ event }) => void events.push(event) })
    .catch((reason) => ((error = String(reason)), {}))
  return { result, error, events, last: events.at(-1), kinds: events.map(({ type }) => type), messages: agent.messages }
}
// What a client makes of the bytes of a response.
const read = async (body) => {
  const headers = { "content-type": "text/event-stream" }
  const agent = agentAt("http://nowhere", { fetch: async () => new Response(body, { headers }) })
  return run(agent)
}
const shown = (found) => {
  const by = (role) => found.messages.filter((message) => message.role === role)
  return {
    kinds: found.kinds,
    last: found.last,
    error: found.error ?? null,
    text: by("assistant").map(({ content }) => content ?? "").join(""),
    reasoning: by("reasoning").map(({ content }) => content ?? "").join(""),
    calls: by("assistant").flatMap(({ toolCalls }) => toolCalls ?? []).map(({ id, function: { name } }) => [id, name]),
    results: by("tool").map(({ toolCallId, content }) => [toolCallId, content]),
  }
}
"""


@pytest.fixture(scope="session")
def one(node: Node) -> Generator[Worker]:
    with node.loaded('import * as agui from "@ag-ui/client"\n' + BEGIN) as worker:
        yield worker


@pytest.fixture(scope="session")
def zero(node: Node) -> Generator[Worker]:
    with node.loaded('import * as agui from "@ag-ui/client-0"\n' + BEGIN) as worker:
        yield worker


@pytest.fixture(params=["one", "zero"])
def client(request: pytest.FixtureRequest) -> Worker:
    """`HttpAgent` in its two versions."""
    return request.getfixturevalue(request.param)
