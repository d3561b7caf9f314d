"""What AG-UI's format shows: of random runs, as the real client reads and verifies it, and through every way in."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from starlette.requests import Request

from halter import Agent
from halter.models.scripted import Scripted
from halter.server import EventStream
from halter.server.fronts.ag_ui_frames import AgUiFormat
from halter.server.names import Names

from ...server.conftest import Serve
from ..node import Worker
from ..random_runs import Told, pieces_of, random_log, told_by

SEEDS = 40


def told(found: dict[str, Any], expected: Told) -> Told:
    """What a client has of a run. Calls are named with the outcome that the run told: results are text."""
    assert found["error"] is None or expected.end == "failed"
    last = found["last"]
    end = last["outcome"]["type"] if last["type"] == "RUN_FINISHED" else "failed"
    seen = Told(is_wide=expected.is_wide, end="completed" if end == "success" else end)
    seen.text, seen.reasoning = found["text"], found["reasoning"]
    return seen.settled()


def test_a_client_reads_of_random_runs_all_that_they_told(one: Worker) -> None:
    logs = [random_log(seed) for seed in range(SEEDS)]
    bodies = [pieces_of(AgUiFormat(Names()), log, seed).decode() for seed, log in enumerate(logs)]
    source = "say(await Promise.all(given.bodies.map(async (body) => shown(await read(body)))))"
    found = one.run(source, bodies=bodies)
    for seed, (log, shown) in enumerate(zip(logs, found, strict=True)):
        expected = told_by(log)
        seen = told(shown, expected)
        assert (seed, seen.text, seen.reasoning, seen.end) == (seed, expected.text, expected.reasoning, expected.end)
        left = [name for _, name in shown["calls"]]
        for name, _ in expected.calls:
            left.remove(name)
        assert set(left) <= {"ask"}, (seed, left)  # calls of runs that are not shown, where somebody had to be asked
        ended = [call for call in expected.calls if call[1] != "cut"]
        assert len(shown["results"]) == len(ended) + len(left), seed


def test_the_format_is_had_of_every_stream_of_a_run(serve: Serve, one: Worker) -> None:
    served = serve(Agent(Scripted("Hello there."), name="agent"))
    body = {"agent": "agent", "input": "Go.", "id": "r", "session": "s", "stream": True}
    started = served.client.post("/v1/runs?format=ag-ui", json=body)
    later = served.client.get("/v1/runs/r/events?format=ag-ui")
    assert started.text == later.text
    found = one.run("say(shown(await read(given.body)))", body=started.text)
    assert (found["text"], found["error"]) == ("Hello there.", None)
    assert (found["last"]["threadId"], found["last"]["runId"]) == ("s", "r")


def test_a_route_of_ones_own_shows_its_run_to_the_client(serve: Serve, one: Worker) -> None:
    app = FastAPI()

    @app.post("/v1/ag-ui/agent")
    async def ask(request: Request) -> EventStream:
        said = (await request.json())["messages"][-1]["content"]
        return EventStream(Agent(Scripted("Hello there."), name="agent").run(said), request, format="ag-ui")

    served = serve.app(app)  # type: ignore[attr-defined]
    found = one.run('say(shown(await ask(agentAt(given.url), "Go.")))', url=served.url)
    assert (found["text"], found["error"]) == ("Hello there.", None)


def test_of_a_run_whose_events_are_gone_the_text_and_the_end_are_shown(serve: Serve, one: Worker) -> None:
    served = serve(Agent(Scripted("Hello there."), name="agent"), retain=0.0)
    served.start(id="r")
    served.until("r", "completed")
    body = served.client.get("/v1/runs/r/events?format=ag-ui").text
    found = one.run("say(shown(await read(given.body)))", body=body)
    assert (found["text"], found["error"], found["last"]["runId"]) == ("Hello there.", None, "r")
