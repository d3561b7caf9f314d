"""Runs that are over for long, or of an earlier process: small in memory, and in the list all the same."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from halter import Agent
from halter.events import encode_any
from halter.models.scripted import Scripted, calls
from halter.server.keys import KeyFile
from halter.server.memory.store import MemoryRunStore
from halter.server.port import RunInfo, RunKey
from halter.sessions import Sessions
from halter.tools import tool

from .conftest import Serve, Served
from .contract import begin, plan

AgentOn = Callable[..., Agent]
TALKATIVE = Agent(Scripted("word " * 40), name="agent")


def headers(keys: KeyFile, tenant: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {keys.add('somebody', tenant=tenant)}"}


def listed(served: Served, query: str = "", **headers: str) -> list[str]:
    """The ids of all pages of three."""
    found: list[str] = []
    place = ""
    while True:
        page = served.client.get(f"/v1/runs?limit=3{query}{place}", headers=headers).json()
        found += [run["id"] for run in page["runs"]]
        if page["next"] is None:
            return found
        place = f"&before={page['next']}"


def restarted(serve: Serve, where: Path, runs: list[dict[str, Any]], **options: Any) -> Served:
    """A second server on a database on which a first one has carried these runs."""
    first = serve([TALKATIVE, Agent(Scripted("b"), name="other")], sessions=Sessions(where), **options)
    for run in runs:
        sent = run.pop("headers", {})
        body = {"agent": "agent", "input": "Go.", **run}
        answer = first.client.post("/v1/runs?wait=10", json=body, headers=sent)
        assert answer.status_code == 200, answer.text
    return serve([TALKATIVE, Agent(Scripted("b"), name="other")], sessions=Sessions(where), **options)


def test_runs_of_earlier_processes_are_listed_behind_those_of_this_one(serve: Serve, tmp_path: Path) -> None:
    served = restarted(serve, tmp_path / "chats.db", [{"id": f"a{number}"} for number in range(8)])
    for number in range(5):
        assert served.start(id=f"b{number}", input="Go.").status_code == 201
        served.until(f"b{number}", "completed")
    assert listed(served) == [*(f"b{n}" for n in (4, 3, 2, 1, 0)), *(f"a{n}" for n in (7, 6, 5, 4, 3, 2, 1, 0))]


def test_earlier_runs_are_listed_by_what_is_asked(serve: Serve, tmp_path: Path) -> None:
    runs: list[dict[str, Any]] = [
        {"id": "a", "session": "s", "user": "ann", "tags": ["x", "y"]},
        {"id": "b", "session": "t", "agent": "other", "tags": ["y"]},
        {"id": "c"},
        {"id": "d", "budget": {"tokens": 1}},
    ]
    served = restarted(serve, tmp_path / "chats.db", runs)
    assert listed(served) == ["d", "c", "b", "a"]
    assert listed(served, "&session=s") == listed(served, "&user=ann") == listed(served, "&tag=x") == ["a"]
    assert listed(served, "&tag=y") == ["b", "a"]
    assert listed(served, "&tag=y&agent=other") == listed(served, "&agent=other") == ["b"]
    assert listed(served, "&status=cancelled") == ["d"]
    assert listed(served, "&status=completed") == ["c", "b", "a"]
    assert listed(served, "&status=running") == []
    [run] = served.client.get("/v1/runs?tag=x").json()["runs"]
    assert (run["session"], run["user"], run["tags"], run["agent"]) == ("s", "ann", ["x", "y"], "agent")
    assert run == served.run("a")


def test_no_tenant_lists_the_earlier_runs_of_another(serve: Serve, tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    red, blue = headers(keys, "red"), headers(keys, "blue")
    runs = [{"id": f"{tenant}{n}", "headers": sent} for n in (1, 2) for tenant, sent in (("r", red), ("b", blue))]
    served = restarted(serve, tmp_path / "chats.db", runs, auth=keys)
    assert listed(served, **red) == ["r2", "r1"]
    assert listed(served, "&agent=agent", **blue) == ["b2", "b1"]
    alone = serve(TALKATIVE, sessions=Sessions(tmp_path / "chats.db"))
    assert listed(alone) == []


def test_a_place_in_the_list_that_cannot_be_is_refused(serve: Serve) -> None:
    served = serve(TALKATIVE)
    for place in ("x", "1.5", "1.5~", "1.5~a/b", "-1~a", "nan~a", "1" * 13 + "~a"):
        assert served.client.get(f"/v1/runs?before={place}").status_code == 422


def test_an_earlier_run_is_not_started_again_by_another_body(serve: Serve, tmp_path: Path) -> None:
    served = restarted(serve, tmp_path / "chats.db", [{"id": "a"}])
    assert served.client.post("/v1/runs?wait=1", json={"agent": "agent", "input": "Go.", "id": "a"}).status_code == 200
    assert served.start(id="a", input="Something else.").json()["code"] == "id_conflict"


def test_events_never_show_the_tags_that_the_server_adds(serve: Serve) -> None:
    served = serve(TALKATIVE)
    with served.stream(id="a", tags=["mine"]) as frames:
        [tags] = [frame.data["tags"] for frame in frames if frame.event == "run.started"]
    assert tags == ["mine"]
    assert served.run("a")["tags"] == ["mine"]


# --- memory -------------------------------------------------------------------------------------------------


async def _ended(store: MemoryRunStore, first: int, count: int) -> None:
    for number in range(first, first + count):
        await begin(store, f"r{number}", TALKATIVE)
    await store.until_quiet(10)


def test_an_ended_run_beyond_retention_keeps_a_handful_of_objects() -> None:
    async def main() -> None:
        store = MemoryRunStore(retain_bytes=0)
        await _ended(store, 0, 20)
        before = _objects()
        await _ended(store, 20, 200)
        assert (_objects() - before) / 200 <= 4  # the entry and its key, as far as the collector counts
        sizes = [_size(entry) for entry in store._entries.values()]
        assert max(sizes) <= 2_048, max(sizes)
        await store.aclose()

    asyncio.run(main())


def _objects() -> int:
    gc.collect()
    return len(gc.get_objects())


def _size(thing: Any, seen: set[int] | None = None) -> int:
    """Bytes of an object and of all that only it holds, or may hold."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, type):
        return 0
    seen.add(id(thing))
    return sys.getsizeof(thing) + sum(_size(each, seen) for each in gc.get_referents(thing))


def _noise(words: int) -> str:
    """Text that cannot be packed much."""
    dice = random.Random(7)
    return " ".join(str(dice.random()) for _ in range(words))


def test_a_long_run_with_many_tools_keeps_no_more_than_a_short_one() -> None:
    @tool
    def read(path: str) -> str:
        """Reads."""
        return "x" * 20_000

    words = _noise(500)
    agent = Agent(Scripted(*(calls("read", path=f"{n}") for n in range(5)), words), name="agent", tools=[read])

    async def main() -> None:
        store = MemoryRunStore(retain_bytes=0)
        await begin(store, "r", agent)
        whole: list[RunInfo] = []
        store.on_ended = whole.append
        await store.until_quiet(10)
        [entry] = store._entries.values()
        assert _size(entry) <= 2_048
        left = await store.get(RunKey("", "r"))
        assert left is not None
        assert left.is_cut
        assert words.startswith(left.text)
        assert (left.status, left.usage, left.seq) == (whole[0].status, whole[0].usage, whole[0].seq)
        await store.aclose()

    asyncio.run(main())


def test_a_short_run_loses_nothing_but_its_log() -> None:
    async def main() -> None:
        store = MemoryRunStore(retain_bytes=0)
        await store.begin(plan("r"), lambda: TALKATIVE.run("Go.", id="r"))
        await store.wait(RunKey("", "r"), 10)
        await store.until_quiet(5)
        info = await store.get(RunKey("", "r"))
        assert info is not None
        assert (info.has_log, info.is_cut, info.text) == (False, False, "word " * 40)
        assert encode_any(info.output) == encode_any("word " * 40)
        assert [run.run_id for run in info.runs] == ["r"]
        await store.aclose()

    asyncio.run(main())


def test_only_so_many_ended_runs_are_known_and_the_database_answers_for_the_rest(serve: Serve, tmp_path: Path) -> None:
    served = serve(TALKATIVE, sessions=Sessions(tmp_path / "chats.db"), keep_runs=2)
    for number in range(5):
        served.client.post("/v1/runs?wait=10", json={"agent": "agent", "input": "Go.", "id": f"r{number}"})
    assert listed(served) == ["r4", "r3", "r2", "r1", "r0"]
    assert served.run("r0")["text"] == "word " * 40
    assert served.run("r0")["epoch"] == 0
    assert served.run("r4")["epoch"] > 0
    assert served.start(id="r0", input="Go.").status_code == 200


def test_the_whole_text_of_a_long_run_comes_from_the_database(serve: Serve, tmp_path: Path) -> None:
    words = _noise(500)
    agent = Agent(Scripted(words), name="agent")
    served = serve(agent, sessions=Sessions(tmp_path / "chats.db"), retain_bytes=0)
    served.client.post("/v1/runs?wait=10", json={"agent": "agent", "input": "Go.", "id": "r"})
    until = time.monotonic() + 5
    while (run := served.run("r"))["output"] is not None and time.monotonic() < until:
        pass
    assert (run["text"], run["is_cut"]) == (words, False)
    with served.events("r") as frames:
        state, end = frames
    assert ([message["text"] for message in state.data["messages"]], end.data["text"]) == ([words], words)
