"""AG-UI's real `HttpAgent` against a real server: runs, stops, interrupts, tools of the client."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from halter import Agent, runnable, tool
from halter.compose import Sequential
from halter.models.openai import OpenAIChat
from halter.models.scripted import Scripted, calls
from halter.testing.wire_probe import WireProbe
from halter.tools import as_tool

from ...server.conftest import Serve
from ..node import Worker

AgentOn = Callable[..., Agent]
NOTICED = 1.0  # seconds


@runnable
async def clerk(ctx: Any, given: str) -> str:
    """Asks."""
    return f"It is {await ctx.ask('Tea or coffee?')}."


@tool
async def look(city: str) -> str:
    """Looks out of the window."""
    return f"Sunny in {city}."


def test_a_run_has_text_tools_steps_and_a_result(serve: Serve, client: Worker) -> None:
    model = Scripted(("Let me look.", calls("look", city="Nara")), "It is sunny.", "Goodbye.")
    served = serve(Agent(model, name="agent", tools=[look]))
    source = """
    const agent = agentAt(given.url)
    const first = await ask(agent, "How is Nara?", { runId: "mine" })
    const second = await ask(agent, "Bye.", { runId: "other" })
    const roles = agent.messages.map(({ role }) => role)
    say({ first: shown(first), result: first.result, second: shown(second), roles })
    """
    found = client.run(source, url=served.url)
    assert found["first"]["error"] is None
    assert found["result"] == "It is sunny."
    [[id, name]] = found["first"]["calls"]
    assert (name, found["first"]["results"]) == ("look", [[id, "Sunny in Nara."]])
    assert found["first"]["last"]["outcome"] == {"type": "success"}
    assert found["first"]["last"]["usage"][0]["outputTokens"] > 0
    kinds = [kind for kind in found["first"]["kinds"] if kind.startswith(("RUN", "STEP"))]
    assert kinds == ["RUN_STARTED", *["STEP_STARTED", "STEP_FINISHED"] * 2, "RUN_FINISHED"]
    assert found["second"]["text"] == "Let me look.It is sunny.Goodbye."
    assert served.run("mine")["session"] == "thread"
    messages = served.client.get("/v1/sessions/thread/messages").json()["messages"]
    assert [each["role"] for each in messages] == found["roles"]


@pytest.mark.scenario("G66")
@pytest.mark.parametrize("mode", ["steady(2000,10)", "stall", "no-headers"])
def test_abort_run_closes_the_provider(
    serve: Serve, client: Worker, agent_on: AgentOn, wire: WireProbe, mode: str
) -> None:
    served = serve(agent_on(mode))
    source = """
    const agent = agentAt(given.url)
    const running = ask(agent, "Go.", { runId: "mine" })
    await told()
    agent.abortRun()
    await running
    say(agent.isRunning)
    """
    with client.start(source, url=served.url) as script:
        wire.wait("started" if mode == "no-headers" else "token")
        left = time.monotonic()
        script.tell()
        assert script.result() is False
    wire.assert_closed(NOTICED, since=left)
    assert served.until("mine", "cancelled")["cancellation"]["reason"] == "client_disconnect"


def test_a_stop_by_the_clients_id_is_a_cancelled_outcome(
    serve: Serve, one: Worker, zero: Worker, agent_on: AgentOn, wire: WireProbe
) -> None:
    served = serve(agent_on("steady(2000,10)"))
    source = 'say(shown(await ask(agentAt(given.url, { threadId: given.id }), "Go.", { runId: given.id })))'
    for number, client in enumerate((one, zero)):
        with client.start(source, url=served.url, id=f"r{number}") as script:
            wire.wait("token", count=number + 1)
            served.cancel(f"r{number}", message="enough")
            last = script.result()["last"]
        about = last["metadata"]["halter"]
        assert (about["runId"], about["reason"], about["message"]) == (f"r{number}", "user_stop", "enough")
        assert about["receipt"]["confirmed"]
        if client is one:
            assert (last["type"], last["outcome"]) == ("RUN_FINISHED", {"type": "cancelled"})
        else:
            assert (last["type"], last["code"]) == ("RUN_ERROR", "cancelled")
    wire.assert_closed(NOTICED)


PAID: list[str] = []


@tool(approval="always")
async def pay(to: str) -> str:
    """Pays."""
    PAID.append(to)
    return f"Paid {to}."


@pytest.mark.parametrize("answer", [{"status": "resolved", "payload": {"approved": True}}, {"status": "cancelled"}])
def test_an_approval_is_an_interrupt_and_the_same_run_goes_on(
    serve: Serve, client: Worker, answer: dict[str, Any]
) -> None:
    PAID.clear()
    model = Scripted((calls("pay", to="anna"), calls("look", city="Nara")), "All done.")
    served = serve(Agent(model, name="agent", tools=[pay, look]))
    source = """
    const agent = agentAt(given.url)
    const first = await ask(agent, "Pay.", { runId: "mine" })
    const [{ id }] = agent.pendingInterrupts
    const second = await run(agent, { resume: [{ interruptId: id, ...given.answer }] })
    say({ interrupts: first.last.outcome.interrupts, first: shown(first), second: shown(second) })
    """
    found = client.run(source, url=served.url, answer=answer)
    [interrupt] = found["interrupts"]
    assert (interrupt["reason"], interrupt["toolCallId"]) == ("tool_call", found["first"]["calls"][0][0])
    assert interrupt["responseSchema"]["required"] == ["approved"]
    assert found["second"]["error"] is None
    assert (found["second"]["last"]["type"], found["second"]["last"]["outcome"]) == (
        "RUN_FINISHED",
        {"type": "success"},
    )
    assert found["second"]["text"] == "All done."
    assert len(found["second"]["results"]) == 2
    assert (["anna"] if answer["status"] == "resolved" else []) == PAID
    assert [run["id"] for run in served.client.get("/v1/runs").json()["runs"]] == ["mine"]


def test_a_question_is_answered_or_cancelled_with_its_run(serve: Serve, one: Worker) -> None:
    @runnable
    async def agent(ctx: Any, given: str) -> str:
        return f"You like {await ctx.ask('Which?', options=('tea', 'coffee'))}."

    served = serve(agent)
    source = """
    const answer = async (threadId, entry) => {
      const agent = agentAt(given.url, { threadId })
      await ask(agent, "Go.", { runId: threadId })
      const [{ id, responseSchema, message }] = agent.pendingInterrupts
      const resume = [{ interruptId: id, status: "resolved", payload: "x" }]
      const wrong = await run(agentAt(given.url, { threadId }), { resume })
      const { last } = await run(agent, { resume: [{ interruptId: id, ...entry }] })
      return { responseSchema, message, wrong: wrong.error, last }
    }
    say([await answer("a", { status: "resolved", payload: "tea" }), await answer("b", { status: "cancelled" })])
    """
    tea, nothing = one.run(source, url=served.url)
    assert tea["responseSchema"] == {"type": "string", "enum": ["tea", "coffee"]}
    assert tea["message"] == "Which?"
    assert "422" in tea["wrong"]
    assert tea["last"]["result"] == "You like tea."
    assert nothing["last"]["outcome"] == {"type": "cancelled"}


def test_a_question_of_a_run_that_a_tool_has_started_is_an_interrupt(serve: Serve, one: Worker) -> None:
    model = Scripted(calls("clerk", input="Ask."), "Thank you.")
    served = serve(Agent(model, name="agent", tools=[as_tool(clerk)]))
    source = """
    const agent = agentAt(given.url)
    await ask(agent, "Go.")
    const [{ id, message }] = agent.pendingInterrupts
    const rest = await run(agent, { resume: [{ interruptId: id, status: "resolved", payload: "tea" }] })
    say({ message, ...shown(rest) })
    """
    found = one.run(source, url=served.url)
    assert (found["message"], found["error"], found["text"]) == ("Tea or coffee?", None, "Thank you.")
    assert [content for _, content in found["results"]] == ["It is tea."]


def test_a_tool_of_the_client_is_left_to_it(serve: Serve, client: Worker, wire: WireProbe) -> None:
    mode = 'tool-call(paint,{"color":"red"})'
    served = serve(Agent(OpenAIChat("m", base_url=wire.url(mode), api_key=""), name="agent"))
    source = """
    const agent = agentAt(given.url)
    const parameters = { type: "object", properties: { color: { type: "string" } } }
    const tools = [{ name: "paint", description: "Paints.", parameters }]
    const context = [{ description: "The page", value: "is blue" }]
    const first = shown(await ask(agent, "Paint.", { tools, context }))
    const [[toolCallId, name]] = first.calls
    agent.messages.push({ id: "t", role: "tool", toolCallId, content: "It is red now." })
    const second = shown(await run(agent, { tools, context }))
    say({ name, first, second })
    """
    found = client.run(source, url=served.url)
    assert (found["name"], found["first"]["last"]["type"]) == ("paint", "RUN_FINISHED")
    assert found["second"]["error"] is None
    first, second = (json.loads(record.body) for record in wire.requests())
    assert first["tools"][0]["function"]["name"] == "paint"
    assert json.loads(first["messages"][0]["content"].splitlines()[-1]) == {
        "description": "The page",
        "value": "is blue",
    }
    assert second["messages"][-1]["role"] == "tool"
    assert second["messages"][-1]["content"] == "It is red now."


def test_the_runs_that_a_run_is_made_of_are_subagents(serve: Serve, one: Worker) -> None:
    members = [Agent(Scripted(f"I am {name}."), name=name) for name in ("anna", "ben")]
    served = serve(Sequential(*members, name="agent"))
    found = one.run('say(shown(await ask(agentAt(given.url), "Go.")))', url=served.url)
    assert found["error"] is None
    assert found["text"] == "I am anna.I am ben."
    assert found["kinds"].count("SUBAGENT_STARTED") == found["kinds"].count("SUBAGENT_FINISHED") >= 2


HELLO = {"id": "1", "role": "user", "content": "Hello."}
OK = {"threadId": "t", "runId": "r", "messages": [HELLO], "tools": [], "context": []}
FILE = {"type": "url", "value": "file:///x"}
HOSTILE: list[dict[str, Any]] = [
    {},
    {"threadId": "t", "runId": "r"},
    {**OK, "messages": []},
    {**OK, "messages": [{"id": "1", "role": "user"}]},
    {**OK, "messages": [{"id": "1", "role": "root", "content": "x"}]},
    {**OK, "messages": [{"id": "1", "role": "user", "content": 5}]},
    {**OK, "messages": [{"id": "1", "role": "user", "content": [5]}]},
    {**OK, "messages": [{"id": "1", "role": "user", "content": [{"type": "image"}]}]},
    {
        **OK,
        "messages": [
            {"id": "1", "role": "user", "content": [{"type": "image", "source": {"type": "url", "value": "file:///x"}}]}
        ],
    },
    {**OK, "threadId": "../t"},
    {**OK, "threadId": 5},
    {**OK, "runId": "r" * 200},
    {**OK, "tools": [{"name": "x", "parameters": "none"}]},
    {**OK, "tools": [{"name": "look", "description": "another"}]},
    {**OK, "forwardedProps": {"halter": {"linger": "long"}}},
    {**OK, "forwardedProps": {"halter": {"actor": "admin"}}},
    {**OK, "forwardedProps": {"halter": {"tags": ["halter.tenant=x"]}}},
    {**OK, "resume": [{"interruptId": "r:x", "status": "resolved"}]},
    {**OK, "resume": [{"interruptId": "x", "status": "done"}]},
    {**OK, "resume": "all"},
]


def test_a_body_that_is_not_one_is_refused_and_starts_nothing(serve: Serve) -> None:
    served = serve(Agent(Scripted("Hello."), name="agent", tools=[look]))
    for body in HOSTILE:
        answer = served.client.post("/v1/ag-ui/agent", json=body)
        assert 400 <= answer.status_code < 500, (body, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
    assert served.client.post("/v1/ag-ui/nobody", json=OK).status_code == 404
    assert served.client.get("/v1/runs").json()["runs"] == []
