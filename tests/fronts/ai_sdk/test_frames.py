"""What the AI SDK's format shows: of random runs, as the real client reads it, and through every way in."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from starlette.requests import Request

from halter import Agent, runnable
from halter.models.scripted import Scripted
from halter.server import EventStream
from halter.server.fronts.ai_sdk_frames import AiSdkFormat
from halter.server.names import Names

from ...server.conftest import Serve
from ..node import Worker
from ..random_runs import Told, pieces_of, random_log, told_by
from .clients import MAKE

SEEDS = 40
OUTCOMES = {
    "output-available": ("ok",),
    "output-denied": ("denied",),
    "output-error": ("error", "cancelled", "abandoned", "denied", "cut"),
}
ENDS = {"finish": "completed", "error": "failed", "abort": "cancelled"}


def told(found: dict[str, Any], is_wide: bool) -> Told:
    """What a client has of a run. Calls are named with the state that they are in."""
    parts = found["message"]["parts"] if "message" in found else []
    seen = Told(is_wide=is_wide, end=ENDS[found["kinds"][-1]])
    for part in parts:
        if part["type"] in ("text", "reasoning"):
            assert part["state"] == "done"
            setattr(seen, part["type"], getattr(seen, part["type"]) + part["text"])
        elif part["type"].startswith("tool-") and part["toolCallId"]:
            seen.calls.append((part["type"].removeprefix("tool-"), part["state"]))
    return seen.settled()


def test_a_client_reads_of_random_runs_all_that_they_told(client: Worker) -> None:
    logs = [random_log(seed) for seed in range(SEEDS)]
    bodies = [pieces_of(AiSdkFormat(Names()), log, seed).decode() for seed, log in enumerate(logs)]
    found = client.run("say(await Promise.all(given.bodies.map(read)))", bodies=bodies)
    for seed, (log, shown) in enumerate(zip(logs, found, strict=True)):
        expected = told_by(log)
        seen = told(shown, expected.is_wide)
        assert (seed, seen.text, seen.reasoning, seen.end) == (seed, expected.text, expected.reasoning, expected.end)
        # Calls of runs that are not shown appear only where somebody had to be asked.
        left = [call for call in seen.calls if call[1] in OUTCOMES]
        for name, outcome in expected.calls:
            fitting = [at for at, (of, state) in enumerate(left) if of == name and outcome in OUTCOMES[state]]
            assert fitting, (seed, name, outcome, expected.calls, seen.calls)
            left.pop(fitting[0])
        assert all(name == "ask" for name, _ in left), (seed, left)
        assert bodies[seed].endswith("data: [DONE]\n\n")


def test_the_format_is_had_of_every_stream_of_a_run(serve: Serve, six: Worker) -> None:
    served = serve(Agent(Scripted("Hello there."), name="agent"))
    body = {"agent": "agent", "input": "Go.", "id": "r", "stream": True}
    started = served.client.post("/v1/runs?format=ai-sdk", json=body)
    later = served.client.get("/v1/runs/r/events?format=ai-sdk", headers={"Last-Event-ID": "1.5"})
    assert started.text == later.text
    for answer in (started, later):
        assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"
        assert answer.headers["halter-run-id"] == "r"
        assert answer.headers["content-type"].startswith("text/event-stream")
    found = six.run("say(await read(given.body))", body=started.text)
    assert told(found, False).text == "Hello there."
    assert served.client.get("/v1/runs/r/events?format=nonsense").status_code == 422


def test_a_route_of_ones_own_shows_its_run_to_the_client(serve: Serve, six: Worker) -> None:
    @runnable
    async def quiet(ctx: Any, question: str) -> str:
        ctx.emit("weather", {"sunny": True})
        return f"You said: {question}"

    app = FastAPI()

    @app.post("/v1/ai-sdk/agent/chat")
    async def chat(request: Request) -> EventStream:
        said = (await request.json())["messages"][-1]["parts"][0]["text"]
        return EventStream(quiet.run(said), request, format="ai-sdk")

    served = serve.app(app)  # type: ignore[attr-defined]
    source = """
    const chat = make()
    await chat.sendMessage({ text: "Go." })
    say(chat.messages[1].parts)
    """
    data, text = six.run(MAKE + source, url=served.url)
    assert (data["type"], data["data"]) == ("data-weather", {"sunny": True})
    assert (text["text"], text["state"]) == ("You said: Go.", "done")


@pytest.mark.parametrize("retain", [0.0])
def test_of_a_run_whose_events_are_gone_the_text_and_the_end_are_shown(
    serve: Serve, six: Worker, retain: float
) -> None:
    served = serve(Agent(Scripted("Hello there."), name="agent"), retain=retain)
    served.start(id="r")
    served.until("r", "completed")
    body = served.client.get("/v1/runs/r/events?format=ai-sdk").text
    seen = told(six.run("say(await read(given.body))", body=body), False)
    assert (seen.text, seen.end) == ("Hello there.", "completed")
