"""`halter serve` as a process: it greets, drains, survives nothing less than it must, and explains mistakes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import httpx
import pytest

from halter.testing.wire_probe import WireProbe

from .conftest import Served

Start = Callable[..., tuple[subprocess.Popen[str], Served]]


@pytest.fixture
def start(tmp_path: Path) -> Generator[Start]:
    """`start(app_text, *options)`: a `halter serve` process, and a client of it."""
    running: list[subprocess.Popen[str]] = []
    clients: list[Served] = []

    def begin(text: str, *options: str) -> tuple[subprocess.Popen[str], Served]:
        (tmp_path / "app.py").write_text(text)
        command = [sys.executable, "-m", "halter", "serve", "app.py", "--port", "0", *options]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout is not None
        greeting = process.stdout.readline()
        found = re.search(r"http://\S+", greeting)
        assert found, process.communicate(timeout=10)
        clients.append(Served(found[0]))
        return process, clients[-1]

    yield begin
    for served in clients:
        served.client.close()
    for process in running:
        process.kill()
        process.communicate()


def app(url: str) -> str:
    return (
        "from halter import Agent\n"
        "from halter.models.openai import OpenAIChat\n"
        f"agent = Agent(OpenAIChat('m', base_url={url!r}, api_key=''), name='agent')\n"
    )


@pytest.mark.scenario("G70")
def test_sigterm_refuses_new_runs_then_stops_the_live_ones_and_exits_with_0(start: Start, wire: WireProbe) -> None:
    process, served = start(app(wire.url("stall")), "--grace", "1s")
    served.start(id="r")
    wire.wait("token")
    with served.events("r", **{"Last-Event-ID": "0"}) as frames:
        next(frames)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        assert served.client.get("/readyz").status_code == 503
        assert served.start(id="s").status_code == 503
        assert served.run("r")["status"] == "running"
        last = list(frames)[-1]
    assert (last.event, last.data["reason"]) == ("run.cancelled", "shutdown")
    wire.assert_closed()
    assert process.wait(10) == 0
    assert len(wire.requests()) == 1


@pytest.mark.scenario("G70")
def test_a_run_that_ends_within_the_grace_completes(start: Start, wire: WireProbe) -> None:
    process, served = start(app(wire.url("steady(60,10)")), "--grace", "10s")
    served.start(id="r")
    wire.wait("token")
    with served.events("r") as frames:
        next(frames)
        process.send_signal(signal.SIGTERM)
        assert list(frames)[-1].event == "run.completed"
    assert process.wait(10) == 0


@pytest.mark.scenario("G70")
def test_after_kill_9_runs_are_owner_lost_and_their_session_goes_on(start: Start, wire: WireProbe) -> None:
    process, served = start(app(wire.url("stall")), "--sessions", "chats.db")
    bodies: dict[str, dict[str, Any]] = {"r": {"input": "Hello.", "session": "chat"}, "s": {"input": "Hello."}}
    for id, body in bodies.items():
        served.start(id=id, **body)
    wire.wait("token", count=2)
    process.kill()
    process.wait()
    _, served = start(app(wire.url("steady(5,5)")), "--sessions", "chats.db")
    for id, body in bodies.items():
        run = served.until(id, "cancelled")
        assert run["cancellation"]["reason"] == "owner_lost"
        assert served.cancel(id).json()["effective"] is True
        again = served.start(id=id, **body)
        assert (again.status_code, again.json()["status"]) == (200, "cancelled")  # it never starts twice
        assert served.start(id=id, input="Something else.").status_code == 409
        with served.events(id, **{"Last-Event-ID": "7.3"}) as frames:
            assert [frame.event for frame in frames] == ["gap", "snapshot", "run.cancelled"]
    assert served.start(id="t", session="chat", input="Again.").status_code == 201
    served.until("t", "completed")
    roles = [each["role"] for each in served.client.get("/v1/sessions/chat/messages").json()["messages"]]
    assert roles == ["user", "assistant", "user", "assistant"]


def test_a_closed_terminal_ends_the_server_as_sigterm_does(start: Start, wire: WireProbe) -> None:
    process, served = start(app(wire.url("stall")), "--grace", "0s")
    served.start(id="r")
    wire.wait("token")
    process.send_signal(signal.SIGHUP)
    assert process.wait(10) == 0
    wire.assert_closed()


STUBBORN = """
import asyncio
from halter import Agent, tool
from halter.models.scripted import Scripted, calls

@tool
async def stay() -> str:
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

agent = Agent(Scripted(calls("stay"), "Done."), name="agent", tools=[stay])
"""


def test_a_third_ctrl_c_ends_the_process_even_if_a_tool_refuses_to_end(start: Start) -> None:
    process, served = start(STUBBORN, "--grace", "60s")
    served.start(id="r")
    with served.events("r", **{"Last-Event-ID": "0"}) as frames:
        next(frame for frame in frames if frame.event == "tool.started")
    for status in (503, None, None):
        process.send_signal(signal.SIGINT)
        while status is not None and served.client.get("/readyz").status_code != status:
            time.sleep(0.01)
        time.sleep(0.1)  # two signals that come together are one
    assert process.wait(5) == 1


def test_the_commands_that_the_server_prints_start_stream_and_stop_a_run(
    tmp_path: Path, wire: WireProbe, start: Start
) -> None:
    process, served = start(app(wire.url("stall")))
    assert process.stdout is not None
    printed = "".join(process.stdout.readline() for _ in range(6)).replace("\\\n", " ").splitlines()
    commands = {line.split()[0]: line.split(maxsplit=1)[1] for line in printed}
    assert list(commands) == ["open", "start", "stream", "stop", "list"]
    assert commands["open"].split()[0] == served.url + "/"

    def curl(name: str, *options: str) -> str:
        command = commands[name].replace("curl", f"curl -s {' '.join(options)}")
        return subprocess.run(["sh", "-c", command], check=False, capture_output=True, text=True, timeout=20).stdout

    assert json.loads(curl("start"))["id"] == "first"
    wire.wait("token")
    assert "event: snapshot" in curl("stream", "--max-time 1")
    assert json.loads(curl("stop"))["status"] == "cancelled"
    halter = f"{sys.executable} -m {commands['list']}"
    assert "first" in subprocess.run(halter.split(), check=False, capture_output=True, text=True, timeout=20).stdout


def test_logs_are_json_lines_if_asked_for(start: Start, wire: WireProbe) -> None:
    process, served = start(app(wire.url("stall")), "--grace", "0s", "--log-format", "json")
    served.start(id="r")
    wire.wait("token")
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=10)
    lines = [json.loads(line) for line in errors.splitlines()]
    assert any("draining" in line["message"] for line in lines)
    (ended,) = (line for line in lines if line.get("run_id") == "r" and "status" in line)
    assert (ended["message"], ended["status"], ended["reason"]) == (
        "agent cancelled: shutdown",
        "cancelled",
        "shutdown",
    )
    assert ended["stopped_after_ms"] >= 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["missing.py"], "no file 'missing.py'"),
        (["no.such.module"], "no module 'no.such.module'"),
        (["app.py:poat"], "did you mean 'poet'?"),
        (["app.py", "--port", "many"], "--port must be a number"),
        (["app.py", "--retain", "soon"], "--retain must be a time"),
        (["app.py", "--host", "0.0.0.0"], "--keys FILE"),
        (["app.py", "--keys", "none.json"], "no such file"),
        (["app.py", "--sessions", "none/of/these.db"], "--sessions: the session file"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path, arguments: list[str], says: str) -> None:
    (tmp_path / "app.py").write_text("from halter import Agent\npoet = Agent('scripted:Hi', name='poet')\n")
    command = [sys.executable, "-m", "halter", "serve", *arguments]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_second_worker_process_is_refused(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "from halter import Agent\nfrom halter.server import create_app\n"
        "app = create_app(Agent('scripted:Hi', name='poet'))\n"
    )
    command = [sys.executable, "-m", "uvicorn", "app:app", "--workers", "2", "--port", "0"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        assert any("another worker process" in line for line in process.stdout)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_keys_are_made_listed_and_revoked_by_command(tmp_path: Path, wire: WireProbe, start: Start) -> None:
    def keys(*arguments: str) -> str:
        command = [sys.executable, "-m", "halter", "keys", *arguments, "--keys", "keys.json"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=30).stdout

    key = keys("add", "anna", "--tenant", "acme").strip()
    assert "acme" in keys("ls")
    assert key not in keys("ls")
    _, served = start(app(wire.url()), "--keys", "keys.json")

    def ask() -> int:
        answer: httpx.Response = served.client.get("/v1/runs", headers={"Authorization": f"Bearer {key}"})
        return answer.status_code

    assert ask() == 200
    keys("revoke", key.split("_")[1])
    assert ask() == 401


def test_metrics_count_what_happened(start: Start, wire: WireProbe) -> None:
    _, served = start(app(wire.url("stall")))
    served.start(id="r")
    wire.wait("token")
    served.cancel("r")
    text = served.client.get("/metrics").text
    values: dict[str, Any] = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert values['halter_runs_total{agent="agent",reason="user_stop",status="cancelled"}'] == "1.0"
    assert values['halter_stop_seconds_count{reason="user_stop"}'] == "1.0"
    assert values["halter_live_runs"] == "0.0"
