"""Two hundred clients that start, read, drop, resume and cancel at random, for minutes.

`HALTER_SOAK_SECONDS` (default 600) for each database. What must hold at the end: every client saw dense numbers and one
terminal event; the provider saw each run that was cancelled or dropped close within a second; the audit log tells the
same; the server's memory, descriptors and threads are where they were.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from halter.testing.wire_probe import WireProbe

from ..services.postgres import started

SECONDS = float(os.environ.get("HALTER_SOAK_SECONDS", "600"))
CLIENTS = 200
PAUSE = 4.0  # seconds at most between two runs of a client
CLOSED_WITHIN = 1.0
MODES = {"talks": "steady(40,100)", "stalls": "stall(2)", "echoes": "echo(20,50)"}

pytestmark = [pytest.mark.soak, pytest.mark.timeout(SECONDS + 300)]


class Story:
    """What happened to one run, as its client knows it."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.seqs: list[tuple[int, int]] = []
        self.ends: list[str] = []
        self.left_at: float | None = None
        self.foreign = 0
        self.asked: dict[str, Any] = {}
        self.finished = False

    def take(self, event: dict[str, Any]) -> None:
        if event.get("root_id", self.id) != self.id:
            self.foreign += 1
        assert event["type"] != "gap", f"{self.id} after {self.cursor}: {event}"
        if event["type"] == "snapshot":
            return
        self.seqs.append((event.get("first_seq", event["seq"]), event["seq"]))
        if event["run_id"] == self.id and event["type"] in ("run.completed", "run.failed", "run.cancelled"):
            self.ends.append(event["type"])

    @property
    def cursor(self) -> int:
        return self.seqs[-1][1] if self.seqs else 0

    def check(self) -> None:
        assert self.foreign == 0, f"{self.id}: {self.foreign} foreign events"
        starts = [first for first, _ in self.seqs]
        assert starts == [1, *(last + 1 for _, last in self.seqs[:-1])][: len(starts)], f"{self.id}: {self.seqs}"
        assert len(self.ends) <= 1, f"{self.id}: {self.ends}"
        assert self.ends or not self.finished, f"{self.id}: no end"


class Crowd:
    """The clients."""

    def __init__(self, url: str, until: float, name: str = "c") -> None:
        self.url = url
        self.name = name  # of its runs: what began another time would be found, not started
        self.until = until
        self.stories: list[Story] = []
        self.done: Counter[str] = Counter()

    async def run(self) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60)) as http:
            await asyncio.gather(*(self._client(http, number) for number in range(CLIENTS)))

    async def _client(self, http: aiohttp.ClientSession, number: int) -> None:
        dice = random.Random(number)
        count = 0
        await asyncio.sleep(dice.random() * PAUSE)  # not all at once: their starts would be what is measured
        while time.monotonic() < self.until:
            count += 1
            story = Story(f"{self.name}{number}-{count}")
            self.stories.append(story)
            act = dice.choice((self._reads, self._drops, self._cancels, self._resumes, self._waits))
            await act(http, story, dice)
            self.done[act.__name__] += 1
            await asyncio.sleep(dice.random() * PAUSE)

    def _body(self, story: Story, dice: random.Random, **fields: Any) -> dict[str, Any]:
        session = {"session": f"s{dice.randrange(CLIENTS)}", "on_busy": dice.choice(("enqueue", "interrupt"))}
        chosen = session if dice.random() < 0.3 else {}
        story.asked = {**chosen, **fields}
        return {"id": story.id, "input": f"run {story.id} end", "stream": True, **story.asked}

    async def _reads(self, http: aiohttp.ClientSession, story: Story, dice: random.Random) -> None:
        await self._stream(http, story, self._body(story, dice, agent=dice.choice(("talks", "echoes"))), 10_000)
        story.finished = True

    async def _drops(self, http: aiohttp.ClientSession, story: Story, dice: random.Random) -> None:
        body = self._body(story, dice, agent=dice.choice(("talks", "stalls")))
        if not await self._stream(http, story, body, dice.randint(2, 5)):
            story.left_at = time.monotonic()

    async def _cancels(self, http: aiohttp.ClientSession, story: Story, dice: random.Random) -> None:
        async def stop() -> None:
            await asyncio.sleep(dice.random())
            asked_at = time.monotonic()
            async with http.post(f"{self.url}/v1/runs/{story.id}/cancel", json={"message": "soak"}) as answer:
                if answer.status in (200, 202) and (await answer.json())["effective"]:
                    story.left_at = asked_at

        stopping = asyncio.create_task(stop())
        body = self._body(story, dice, agent=dice.choice(("talks", "stalls")))
        reading = asyncio.create_task(self._stream(http, story, body, 10_000))
        await stopping
        if story.left_at is None:  # the cancel came before the start: it stops nothing, and is asked again
            async with http.post(f"{self.url}/v1/runs/{story.id}/cancel?wait=5&tombstone=1", json={}):
                pass
        await reading
        story.finished = True

    async def _resumes(self, http: aiohttp.ClientSession, story: Story, dice: random.Random) -> None:
        body = self._body(story, dice, agent="talks", linger=20)
        over = await self._stream(http, story, body, dice.randint(2, 10))
        while not over:
            await asyncio.sleep(dice.random() * 0.3)
            headers = {"Last-Event-ID": str(story.cursor)}
            url = f"{self.url}/v1/runs/{story.id}/events"
            async with http.get(url, headers=headers) as answer:
                if answer.status == 204:
                    break
                over = await self._read(answer, story, dice.randint(5, 60))
        story.finished = True

    async def _waits(self, http: aiohttp.ClientSession, story: Story, dice: random.Random) -> None:
        body = self._body(story, dice, agent="echoes", stream=False)
        async with self._started(http, "?wait=30", body) as answer:
            assert answer.status in (200, 202), await answer.text()

    @asynccontextmanager
    async def _started(
        self, http: aiohttp.ClientSession, query: str, body: dict[str, Any]
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """The answer to a start; a server that says that it is too busy is asked again when it says."""
        while True:
            async with http.post(f"{self.url}/v1/runs{query}", json=body) as answer:
                if answer.status != 503 or time.monotonic() > self.until:
                    yield answer
                    return
                self.done["busy"] += 1
            await asyncio.sleep(float(answer.headers["Retry-After"]))

    async def _stream(self, http: aiohttp.ClientSession, story: Story, body: dict[str, Any], frames: int) -> bool:
        """Reads so many frames; True if the run is over then."""
        async with self._started(http, "", body) as answer:
            assert answer.status == 200, await answer.text()
            return await self._read(answer, story, frames)

    async def _read(self, answer: aiohttp.ClientResponse, story: Story, frames: int) -> bool:
        async for line in answer.content:
            if line.startswith(b"data: "):
                story.take(json.loads(line[6:]))
                frames -= 1
                if frames <= 0 and not story.ends:
                    answer.close()
                    return False
        return True


@pytest.fixture
def app(tmp_path: Path, wire: WireProbe) -> Path:
    lines = ["from halter import Agent", "from halter.models.openai import OpenAIChat"]
    for name, mode in MODES.items():
        url = wire.wire.url(mode, tag=f"soak-{name}")
        lines.append(f"{name} = Agent(OpenAIChat('m', base_url={url!r}, api_key=''), name={name!r})")
    path = tmp_path / "app.py"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path, require: Callable[[str, bool], None]) -> Generator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "chats.db")
        return
    postgres = started(require)
    try:
        yield postgres.new_place()
    finally:
        postgres.close()


def test_two_hundred_clients_at_random(app: Path, database: str, wire: WireProbe, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "halter", "serve", str(app), "--port", "0", "--sessions", database]
    command += ["--audit", str(tmp_path / "audit.jsonl"), "--max-runs", "5000", "--retain", "20s", "--grace", "1s"]
    with (tmp_path / "server.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found, (tmp_path / "server.log").read_text()
        before = _warmed_up(found[0], process.pid)
        crowd = Crowd(found[0], time.monotonic() + SECONDS)
        asyncio.run(crowd.run())
        _settle(found[0])
        after = _footprint(process.pid)
        _check_stories(crowd)
        _check_provider(crowd, wire)
        _check_footprint(before, after)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        _check_audit(crowd, tmp_path / "audit.jsonl")
    finally:
        process.kill()
        process.communicate()
    print(f"{sum(crowd.done.values())} runs: {dict(crowd.done)}; {before} → {after}")


def _warmed_up(url: str, pid: int) -> dict[str, int]:
    asyncio.run(Crowd(url, time.monotonic() + 5, "w").run())
    _settle(url)
    return _footprint(pid)


def _settle(url: str) -> None:
    """Waits until no run is live and the logs of those that ended were let go of."""

    async def wait() -> None:
        async with aiohttp.ClientSession() as http:
            until = time.monotonic() + 60
            while True:
                async with http.get(f"{url}/healthz") as answer:
                    live = (await answer.json())["live_runs"]
                if live == 0 or time.monotonic() > until:
                    assert live == 0, f"{live} runs are left"
                    break
                await asyncio.sleep(0.2)
        await asyncio.sleep(22)

    asyncio.run(wait())


def _footprint(pid: int) -> dict[str, int]:
    status = Path(f"/proc/{pid}/status").read_text()
    return {
        "rss_kib": int(re.findall(r"VmRSS:\s+(\d+)", status)[0]),
        "threads": int(re.findall(r"Threads:\s+(\d+)", status)[0]),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
    }


def _check_footprint(before: dict[str, int], after: dict[str, int]) -> None:
    assert after["threads"] <= before["threads"] + 3, (before, after)
    assert after["descriptors"] <= before["descriptors"] + CLIENTS, (before, after)  # kept connections
    assert after["rss_kib"] <= before["rss_kib"] * 1.5 + 60_000, (before, after)  # records of a day stay


def _check_stories(crowd: Crowd) -> None:
    assert crowd.stories
    for story in crowd.stories:
        story.check()


def _check_provider(crowd: Crowd, wire: WireProbe) -> None:
    closed: dict[str, float | None] = {}
    for name in MODES:
        for record in wire.wire.requests(f"soak-{name}"):
            for id in re.findall(r"run (c\d+-\d+) end", record.body)[-1:]:
                closed[id] = record.closed_at
    late = {
        story.id: f"{(closed[story.id] or 0.0) - story.left_at:.1f} s later: {story.asked}, {story.ends}"
        for story in crowd.stories
        if story.left_at is not None
        and story.id in closed
        and ((at := closed[story.id]) is None or at > story.left_at + CLOSED_WITHIN)
    }
    assert not late, f"{len(late)} were not closed in time: {dict(list(late.items())[:14])}"


def _check_audit(crowd: Crowd, path: Path) -> None:
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    started = Counter(entry["target"] for entry in entries if entry["action"] == "run.start")
    ended = Counter(entry["target"] for entry in entries if entry["action"] == "run.ended")
    assert started == ended
    assert set(started.values()) == {1}
    effects = {entry["target"]: entry["effect"] for entry in entries if entry["action"] == "run.ended"}
    for story in crowd.stories:
        if story.ends:
            assert effects[story.id] == story.ends[0].removeprefix("run."), story.id
