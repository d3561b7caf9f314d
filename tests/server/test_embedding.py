"""`create_app`, `mount` and `EventStream` in apps, test clients and processes that others have made."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from fastapi import BackgroundTasks, FastAPI, Request
from starlette.testclient import TestClient

from halter import Agent
from halter.models.scripted import Scripted
from halter.server import EventStream, create_app, mount
from halter.server import sole_process as locks
from halter.server.audit import AuditLog
from halter.server.bodies import StartBody
from halter.server.principal import Principal
from halter.server.server import Server
from halter.sessions import Sessions


def poet(name: str = "poet", pace: float = 0.0) -> Agent:
    return Agent(Scripted("A river begins.", pace=pace), name=name)


def test_an_app_lives_again_after_its_end(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    app = create_app(poet(), sessions=Sessions(), audit=str(audit), allowed_hosts=("*",))
    for life in range(2):
        with TestClient(app) as client:
            assert client.get("/readyz").status_code == 200
            answer = client.post("/v1/runs?wait=5", json={"agent": "poet", "input": "Go.", "id": f"r{life}"})
            assert answer.json()["status"] == "completed", answer.text
    assert [entry.target for entry in reversed(AuditLog(audit).newest("", action="run.ended", limit=9))] == ["r0", "r1"]


def test_background_tasks_of_a_route_run_behind_its_event_stream() -> None:
    app, seen = FastAPI(), list[str]()

    @app.post("/ask")
    async def ask(request: Request, tasks: BackgroundTasks) -> EventStream:  # pyright: ignore[reportUnusedFunction]
        tasks.add_task(seen.append, "done")
        return EventStream(poet().run("Go."), request)

    with TestClient(app) as client:
        assert "run.completed" in client.post("/ask").text
    assert seen == ["done"]


# --- several servers in one process ---------------------------------------------------------------------------


@pytest.fixture
def two_mounts() -> tuple[FastAPI, Server, Server]:
    app = FastAPI()
    one = mount(app, poet("one", pace=60.0), prefix="/one", sessions=Sessions(), grace=30.0)
    return app, one, mount(app, poet("two", pace=60.0), prefix="/two", sessions=Sessions(), grace=30.0)


def test_two_mounts_share_the_lock_of_their_worker_process(
    two_mounts: tuple[FastAPI, Server, Server], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(locks, "_is_worker", lambda: True)
    monkeypatch.setattr(locks.tempfile, "gettempdir", lambda: str(tmp_path))
    with TestClient(two_mounts[0]) as client:
        assert [client.get(f"/{name}/readyz").status_code for name in ("one", "two")] == [200, 200]
        assert _is_locked(next(tmp_path.iterdir()))
    assert not _is_locked(next(tmp_path.iterdir()))


def _is_locked(path: Path) -> bool:
    """Whether another process, which knows nothing of this one's lock, finds the file locked."""
    fcntl = pytest.importorskip("fcntl")
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


@pytest.mark.scenario("G70")
def test_one_signal_drains_all_servers_of_a_process_and_a_second_one_ends_their_grace(
    two_mounts: tuple[FastAPI, Server, Server],
) -> None:
    app, *servers = two_mounts

    async def drained() -> None:
        ended = asyncio.Event()
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
        async with app.router.lifespan_context(app):
            for name, server in zip(("one", "two"), servers, strict=True):
                await server.begin(StartBody(agent=name, input="Go."), Principal(), is_waiting=False)
            os.kill(os.getpid(), signal.SIGTERM)
            async with asyncio.timeout(5):
                while not all(server.is_draining for server in servers):  # noqa: ASYNC110
                    await asyncio.sleep(0)
                assert not ended.is_set()
                os.kill(os.getpid(), signal.SIGTERM)
                await ended.wait()
            assert [server.store.live for server in servers] == [0, 0]

    before = signal.getsignal(signal.SIGTERM)
    try:
        asyncio.run(drained())
    finally:
        signal.signal(signal.SIGTERM, before)
