"""`useChat` without a browser: the Chat of `@ai-sdk/react`, and the one of `ai` 7, against a real server."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from halter import Agent, tool
from halter.models.scripted import Scripted, calls
from halter.testing.wire_probe import WireProbe

from ...server.conftest import Serve
from ..node import Worker
from .clients import MAKE

AgentOn = Callable[..., Agent]
NOTICED = 1.0  # seconds


@tool
async def look(city: str) -> str:
    """Looks out of the window."""
    return f"Sunny in {city}."


def test_a_chat_has_text_tools_steps_and_what_the_run_was(serve: Serve, client: Worker) -> None:
    model = Scripted(("Let me look.", calls("look", city="Nara")), "It is sunny.", "Goodbye.")
    served = serve(Agent(model, name="agent", tools=[look]))
    source = """
    const chat = make()
    await chat.sendMessage({ text: "How is Nara?" })
    const first = chat.messages[1]
    await chat.sendMessage({ text: "Bye." })
    say({ first, texts: texts(chat), status: chat.status, error: String(chat.error) })
    """
    found = client.run(MAKE + source, url=served.url)
    assert (found["status"], found["error"]) == ("ready", "undefined")
    assert [part["type"] for part in found["first"]["parts"]] == [
        "step-start",
        "text",
        "tool-look",
        "step-start",
        "text",
    ]
    call = found["first"]["parts"][2]
    assert (call["state"], call["input"], call["output"]) == ("output-available", {"city": "Nara"}, "Sunny in Nara.")
    assert all(part["state"] == "done" for part in found["first"]["parts"] if part["type"] == "text")
    assert found["texts"][2:] == [["user", "Bye."], ["assistant", "Goodbye."]]
    metadata = found["first"]["metadata"]
    assert metadata["runId"] == found["first"]["id"]
    assert (metadata["status"], metadata["agent"], metadata["sessionId"]) == ("completed", "agent", "chat")
    assert metadata["usage"]["outputTokens"] > 0
    run = served.run(metadata["runId"])
    assert (run["session"], run["text"]) == ("chat", "It is sunny.")
    messages = served.client.get("/v1/sessions/chat/messages").json()["messages"]
    assert [each["role"] for each in messages] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    loaded = served.client.get("/v1/ai-sdk/agent/chat/chat/messages").json()
    assert [each["role"] for each in loaded] == ["user", "assistant", "user", "assistant"]
    seen = [{name: value for name, value in part.items() if name != "rawInput"} for part in found["first"]["parts"]]
    assert loaded[1]["parts"] == seen
    assert served.client.get("/v1/ai-sdk/agent/chat/unknown/messages").json() == []


@pytest.mark.scenario("G66")
@pytest.mark.parametrize("mode", ["steady(2000,10)", "stall", "no-headers"])
def test_stop_closes_the_provider(serve: Serve, client: Worker, agent_on: AgentOn, wire: WireProbe, mode: str) -> None:
    served = serve(agent_on(mode))
    source = """
    const chat = make()
    const sent = chat.sendMessage({ text: "Go." })
    await told()
    await chat.stop()
    await sent
    say({ status: chat.status, run: chat.messages[1]?.id })
    """
    with client.start(MAKE + source, url=served.url) as script:
        wire.wait("started" if mode == "no-headers" else "token")
        left = time.monotonic()
        script.tell()
        found = script.result()
    wire.assert_closed(NOTICED, since=left)
    assert found["status"] == "ready"
    [run] = served.client.get("/v1/runs?session=chat").json()["runs"]
    assert served.until(run["id"], "cancelled")["cancellation"]["reason"] == "client_disconnect"
    assert found["run"] == run["id"]


@pytest.mark.parametrize("way", ["run", "chat"])
def test_a_stop_by_id_is_an_abort_that_says_who_and_why(
    serve: Serve, six: Worker, agent_on: AgentOn, wire: WireProbe, way: str
) -> None:
    served = serve(agent_on("steady(2000,10)"))
    source = """
    const chunks = []
    const transport = new ai.DefaultChatTransport({
      api,
      body: { linger: 10, run_id: "mine" },
      fetch: async (...request) => {
        const response = await fetch(...request)
        const [mine, theirs] = response.body.tee()
        void (async () => { for await (const piece of mine) chunks.push(Buffer.from(piece).toString()) })()
        return new Response(theirs, response)
      },
    })
    const chat = make({ transport })
    const sent = chat.sendMessage({ text: "Go." })
    await told()
    await sent
    await sleep(20)
    say({ status: chat.status, metadata: chat.messages[1].metadata, chunks: chunks.join("") })
    """
    with six.start(MAKE + source, url=served.url) as script:
        wire.wait("token")
        script.tell()
        if way == "run":
            served.cancel("mine", message="enough")
        else:
            served.client.post("/v1/cancel?wait=5", json={"session": "chat", "message": "enough"})
        found = script.result()
    wire.assert_closed(NOTICED)
    assert found["status"] == "ready"
    assert found["metadata"]["status"] == "cancelled"
    assert (found["metadata"]["reason"], found["metadata"]["message"]) == ("user_stop", "enough")
    assert found["metadata"]["receipt"]["confirmed"]
    assert '{"type":"abort","reason":"run mine was stopped: user_stop' in found["chunks"]
    assert found["chunks"].endswith("data: [DONE]\n\n")


@pytest.mark.scenario("G66", "J84")
def test_a_page_that_is_reloaded_resumes_the_answer(
    serve: Serve, client: Worker, agent_on: AgentOn, wire: WireProbe
) -> None:
    served = serve(agent_on("steady(60,10)"))
    source = """
    const before = make({}, { linger: 10 })
    void before.sendMessage({ text: "Go." })
    await until(() => before.messages[1]?.parts.some(({ text }) => text?.length > 20))
    await before.stop()
    const after = make({ messages: [before.messages[0]] })
    await after.resumeStream()
    const rest = texts(after)
    const again = make({ messages: before.messages })
    await again.resumeStream()
    say({ rest, ids: [before.messages[1].id, after.messages[1].id], status: again.status, again: texts(again).length })
    """
    found = client.run(MAKE + source, url=served.url)
    assert found["rest"][1][1].split() == [f"t{number}" for number in range(60)]
    assert found["ids"][0] == found["ids"][1]
    assert (found["status"], found["again"]) == ("ready", 2)  # it is over: 204
    assert len(wire.requests()) == 1


PAID: list[str] = []


@tool(approval="always")
async def pay(to: str) -> str:
    """Pays."""
    PAID.append(to)
    return f"Paid {to}."


APPROVING = """
const chat = make({ sendAutomaticallyWhen: ai.lastAssistantMessageIsCompleteWithApprovalResponses })
await chat.sendMessage({ text: "Pay them." })
const waiting = structuredClone(chat.messages[1].parts.filter(({ state }) => state === "approval-requested"))
const status = chat.status
await told()
for (const { approval } of waiting)
  await chat.addToolApprovalResponse({ id: approval.id, approved: given.approved, reason: "so" })
await until(() => chat.status === "ready" && chat.messages[1].parts.at(-1).type === "text")
say({ waiting, status, message: chat.messages[1], count: chat.messages.length })
"""


@pytest.mark.parametrize("approved", [True, False])
def test_approvals_end_the_response_and_the_same_run_goes_on_with_the_answers(
    serve: Serve, client: Worker, approved: bool
) -> None:
    PAID.clear()
    model = Scripted((calls("pay", to="anna"), calls("look", city="Nara"), calls("pay", to="ben")), "All done.")
    served = serve(Agent(model, name="agent", tools=[pay, look]))
    with client.start(MAKE + APPROVING, url=served.url, approved=approved) as script:
        while not (runs := served.client.get("/v1/runs?session=chat&status=waiting").json()["runs"]):
            time.sleep(0.01)
        script.tell()
        found = script.result()
    assert (found["status"], found["count"], len(found["waiting"])) == ("ready", 2, 2)
    kinds = [(part["type"], part.get("state")) for part in found["message"]["parts"] if part["type"] != "step-start"]
    ended = "output-available" if approved else "output-denied"
    assert kinds == [
        ("tool-pay", ended),
        ("tool-look", "output-available"),
        ("tool-pay", ended),
        ("text", "done"),
    ]
    assert sorted(PAID) == (["anna", "ben"] if approved else [])
    assert served.run(runs[0]["id"])["text"] == "All done."
    assert len(served.client.get("/v1/runs").json()["runs"]) == 1


def test_an_approval_within_an_agent_that_a_tool_has_started_is_shown_and_answered(serve: Serve, six: Worker) -> None:
    PAID.clear()
    clerk = Agent(Scripted(calls("pay", to="anna"), "Paid."), name="clerk", tools=[pay])
    boss = Agent(Scripted(calls("clerk", input="Pay."), "All done."), name="agent", tools=[clerk.as_tool()])
    served = serve(boss)
    with six.start(MAKE + APPROVING, url=served.url, approved=True) as script:
        script.tell()
        found = script.result()
    parts = [(part["type"], part.get("state"), part.get("text")) for part in found["message"]["parts"]]
    assert [part for part in parts if part[0] != "step-start"] == [
        ("tool-clerk", "output-available", None),
        ("tool-pay", "output-available", None),
        ("text", "done", "All done."),
    ]
    assert PAID == ["anna"]


def test_a_message_that_is_answered_again_or_edited_takes_the_session_back(serve: Serve, six: Worker) -> None:
    served = serve(Agent(Scripted("One.", "Two.", "Three."), name="agent"))
    source = """
    const chat = make()
    for (const text of ["a", "b", "c"]) await chat.sendMessage({ text })
    await chat.regenerate()
    const regenerated = texts(chat)
    await chat.sendMessage({ text: "B", messageId: chat.messages[2].id })
    say({ regenerated, edited: texts(chat) })
    """
    found = six.run(MAKE + source, url=served.url)
    assert found["regenerated"][-2:] == [["user", "c"], ["assistant", "Three."]]
    assert found["edited"] == [["user", "a"], ["assistant", "One."], ["user", "B"], ["assistant", "Two."]]
    messages = served.client.get("/v1/sessions/chat/messages").json()["messages"]
    assert [part["text"] for each in messages for part in each["parts"]] == ["a", "One.", "B", "Two."]


def test_a_failed_run_is_an_error_and_a_new_message_stops_the_run_before(
    serve: Serve, six: Worker, agent_on: AgentOn, wire: WireProbe
) -> None:
    served = serve([agent_on("status(400)"), agent_on("stall", name="slow")])
    source = """
    const chat = make()
    await chat.sendMessage({ text: "Go." })
    const failed = { status: chat.status, error: chat.error.message, metadata: chat.messages[1].metadata }
    const body = { on_disconnect: "detach" }
    const transport = new ai.DefaultChatTransport({ api: api.replace("agent", "slow"), body })
    for (const text of ["first", "second"]) {
      const slow = new Chat({ id: "slow", transport })
      void slow.sendMessage({ text })
      await until(() => slow.messages[1]?.parts.some(({ text }) => text))
      await slow.stop()
    }
    say(failed)
    """
    failed = six.run(MAKE + source, url=served.url)
    assert failed["status"] == "error"
    assert failed["metadata"]["status"] == "failed"
    assert failed["error"]
    second, first = served.client.get("/v1/runs?session=slow").json()["runs"]
    assert served.until(first["id"], "cancelled")["cancellation"]["reason"] == "superseded"
    assert second["status"] == "running"
    served.cancel(second["id"])


def message(role: str, *parts: Any, **fields: Any) -> dict[str, Any]:
    return {"id": "m", "role": role, "parts": list(parts), **fields}


HELLO = message("user", {"type": "text", "text": "Hello."})
HOSTILE = [
    {},
    {"id": "chat"},
    {"id": "chat", "messages": []},
    {"id": "chat", "messages": "Hello."},
    {"id": "../chat", "messages": [HELLO]},
    {"id": "chat", "messages": [HELLO], "lingre": 5},
    {"id": "chat", "messages": [HELLO], "linger": "5"},
    {"id": "chat", "messages": [HELLO], "linger": -1},
    {"id": "chat", "messages": [HELLO], "tags": ["halter.tenant=x"]},
    {"id": "chat", "messages": [HELLO], "trigger": "resume"},
    {"id": "chat", "messages": [message("root", {"type": "text", "text": "x"})]},
    {"id": "chat", "messages": [message("user", {"type": "text", "text": 5})]},
    {"id": "chat", "messages": [message("user", "Hello.")]},
    {"id": "chat", "messages": [message("user")]},
    {
        "id": "chat",
        "messages": [message("user", {"type": "file", "url": "file:///etc/passwd", "mediaType": "image/png"})],
    },
    {
        "id": "chat",
        "messages": [message("user", {"type": "file", "url": "data:image/png;base64,!", "mediaType": "image/png"})],
    },
    {"id": "chat", "messages": [HELLO, message("assistant")]},
    {"id": "chat", "messages": [HELLO, message("assistant", id="../..")]},
    {
        "id": "chat",
        "messages": [HELLO, message("assistant", {"type": "x", "approval": {"id": "a", "approved": "yes"}})],
    },
]


JSON = {"content-type": "application/json"}


def test_a_body_that_is_not_one_is_refused_and_starts_nothing(serve: Serve) -> None:
    served = serve(Agent(Scripted("Hello."), name="agent"))
    for body in HOSTILE:
        answer = served.client.post("/v1/ai-sdk/agent/chat", json=body)
        assert 400 <= answer.status_code < 500, (body, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
    assert served.client.post("/v1/ai-sdk/nobody/chat", json={"id": "chat", "messages": [HELLO]}).status_code == 404
    assert served.client.post("/v1/ai-sdk/agent/chat", content=b"{", headers=JSON).status_code == 400
    assert served.client.get("/v1/ai-sdk/nobody/chat/chat/stream").status_code == 404
    assert served.client.get("/v1/ai-sdk/agent/chat/chat/stream").status_code == 204
    assert served.client.get("/v1/runs").json()["runs"] == []
