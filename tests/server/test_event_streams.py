"""Event streams: a snapshot first, then every event once, from any cursor, also behind the end."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from halter import Agent, tool
from halter.events import decode
from halter.models.scripted import Scripted, calls
from halter.snapshot import Fold
from halter.testing.wire_probe import WireProbe

from .conftest import Frame, Serve, Served

AgentOn = Callable[..., Agent]


@tool
async def look(city: str) -> str:
    """Looks."""
    return f"sunny in {city}"


def weather() -> Agent:
    return Agent(Scripted(calls("look", city="Rome"), "It is sunny there."), name="agent", tools=[look])


def all_events(served: Served, id: str) -> list[Frame]:
    with served.events(id, **{"Last-Event-ID": "0"}) as frames:
        return list(frames)


@pytest.mark.scenario("G67")
def test_a_client_that_comes_back_at_any_event_gets_each_later_one_once(serve: Serve) -> None:
    served = serve(weather())
    served.start(id="r")
    served.until("r", "completed")
    every = all_events(served, "r")
    numbers = [frame.seq for frame in every[1:]]
    assert every[0].event == "snapshot"
    assert numbers == list(range(1, len(every)))
    for place, frame in enumerate(every[1:-1], start=1):
        with served.events("r", **{"Last-Event-ID": frame.id or ""}) as frames:
            first, *rest = list(frames)
        assert (first.event, first.seq) == ("snapshot", frame.seq)
        assert [each.seq for each in rest] == numbers[place:]


@pytest.mark.scenario("G67")
def test_behind_its_end_a_finished_run_answers_204(serve: Serve) -> None:
    served = serve(weather())
    served.start(id="r")
    served.until("r", "completed")
    last = all_events(served, "r")[-1]
    answer = served.client.get("/v1/runs/r/events", headers={"Last-Event-ID": last.id or ""})
    assert (answer.status_code, answer.content) == (204, b"")
    assert served.client.get(f"/v1/runs/r/events?after={last.id}").status_code == 204


@pytest.mark.scenario("G67")
def test_a_reader_in_the_middle_gets_the_state_and_then_what_follows(
    serve: Serve, agent_on: AgentOn, wire: WireProbe
) -> None:
    served = serve(agent_on("steady(150,10)"))
    served.start(id="r")
    wire.wait("token", count=1)
    with served.events("r") as frames:
        snapshot = next(frames)
        rest = list(frames)
    [message] = snapshot.data["messages"] or [{"text": ""}]
    later = "".join(frame.data["text"] for frame in rest if frame.event == "text.delta")
    assert (message["text"] + later).split() == [f"t{number}" for number in range(150)]
    assert rest[0].seq == snapshot.seq + 1


@pytest.mark.scenario("G67")
def test_a_snapshot_is_the_fold_of_the_events_before_it(serve: Serve) -> None:
    served = serve(weather())
    served.start(id="r")
    served.until("r", "completed")
    every = all_events(served, "r")[1:]
    with served.events("r") as frames:
        snapshot = next(frames).data
        assert [frame.event for frame in frames] == ["run.completed"]
    fold = Fold("r")
    fold.apply([decode(_json(frame.data)) for frame in every])
    again = fold.snapshot()
    assert snapshot["status"] == again.status == "completed"
    assert [message["text"] for message in snapshot["messages"]] == [message.text for message in again.messages]
    assert [tool["result"] for tool in snapshot["tools"]] == ["sunny in Rome"]
    assert snapshot["open"] == {"tools": [], "inputs": []}


@pytest.mark.scenario("G67")
def test_what_is_open_is_in_the_snapshot(serve: Serve) -> None:
    @tool(approval="always")
    async def pay(to: str) -> str:
        """Pays."""
        return to

    served = serve(Agent(Scripted(calls("pay", to="anna"), "Done."), name="agent", tools=[pay]))
    served.start(id="r")
    served.until("r", "waiting")
    with served.events("r") as frames:
        snapshot = next(frames).data
    [question] = snapshot["open"]["inputs"]
    assert (question["kind"], question["call_id"]) == ("approval", snapshot["open"]["tools"][0])
    assert snapshot["status"] == "waiting"


@pytest.mark.scenario("G67")
def test_a_cursor_that_the_store_has_lost_is_answered_with_a_gap_and_the_state(serve: Serve) -> None:
    served = serve(weather(), retain=0.0)
    served.start(id="r")
    served.until("r", "completed")
    epoch = served.run("r")["epoch"]
    with served.events("r", **{"Last-Event-ID": f"{epoch}.2"}) as frames:
        gap, snapshot, last = list(frames)
    assert (gap.event, gap.data["from"], gap.data["to"]) == ("gap", 3, last.seq - 1)
    assert (snapshot.event, snapshot.data["status"], last.event) == ("snapshot", "completed", "run.completed")


def test_a_cursor_of_another_epoch_gets_a_gap_and_the_whole_state(serve: Serve) -> None:
    served = serve(weather())
    served.start(id="r")
    served.until("r", "completed")
    with served.events("r", **{"Last-Event-ID": "7.3"}) as frames:
        gap, snapshot, *_ = list(frames)
    assert (gap.event, gap.data) == ("gap", {"type": "gap", "from": 4, "to": None})
    assert snapshot.data["messages"][-1]["text"] == "It is sunny there."


def test_the_same_start_again_streams_from_the_start_and_another_one_conflicts(serve: Serve) -> None:
    served = serve(weather())
    with served.stream(id="r") as frames:
        once = [frame.id for frame in frames]
    with served.stream(id="r") as frames:
        assert [frame.id for frame in frames] == once
    assert served.start(id="r").status_code == 200
    assert served.start(id="r", input="Something else.").status_code == 409


@pytest.mark.scenario("E51")
def test_fifty_runs_at_once_share_no_event(serve: Serve, agent_on: AgentOn) -> None:
    served = serve(agent_on("echo(20,5)"))

    def one(number: int) -> None:
        with served.stream(id=f"r{number}", input=f"marker-{number}-end") as frames:
            found = list(frames)
        numbers = [(frame.data.get("first_seq", frame.seq), frame.seq) for frame in found[1:]]
        assert [first for first, _ in numbers[1:]] == [last + 1 for _, last in numbers[:-1]]
        assert {frame.data["run_id"] for frame in found} == {f"r{number}"}
        text = "".join(frame.data["text"] for frame in found if frame.event == "text.delta")
        assert text.count(f"marker-{number}-end") == 20
        assert text.count("marker-") == 20

    with ThreadPoolExecutor(50) as pool:
        list(pool.map(one, range(50)))


@pytest.mark.scenario("E55")
def test_two_readers_each_get_all_and_a_later_one_the_same_again(serve: Serve, agent_on: AgentOn) -> None:
    served = serve(agent_on("steady(40,5)"))
    served.start(id="r")
    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(lambda _: [frame.seq for frame in all_events(served, "r")[1:]], range(2))
    later = [frame.seq for frame in all_events(served, "r")[1:]]
    assert one == two == later == list(range(1, len(one) + 1))


def _json(data: Any) -> bytes:
    import json

    return json.dumps(data).encode()
