"""The settings of docs/deploying.md for nginx and HAProxy: streams pass at once, and leaving is noticed."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path

import httpx
import pytest

from halter import Agent
from halter.testing.wire_probe import WireProbe

from .conftest import Serve, Served, frames_of

AgentOn = Callable[..., Agent]
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
AGENTS = "agents.example"  # the name that the page gives the server
START = 10.0  # seconds that a proxy may take
WITHIN = 1.0  # seconds from a client's leaving to the end of its run


def settings(language: str) -> str:
    [found] = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def nginx(place: Path, port: int, behind: str) -> list[str]:
    site = settings("nginx").replace("127.0.0.1:8000", behind).replace("listen 8080", f"listen 127.0.0.1:{port}")
    temporary = "".join(
        f"{kind}_temp_path {place}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (place / "nginx.conf").write_text(
        f"daemon off; pid {place}/pid; error_log {place}/errors;\n"
        f"events {{}}\nhttp {{ access_log off;\n{temporary}{site}}}\n"
    )
    return ["nginx", "-c", str(place / "nginx.conf")]


def haproxy(place: Path, port: int, behind: str) -> list[str]:
    (place / "haproxy.cfg").write_text(
        settings("haproxy").replace("127.0.0.1:8000", behind).replace("127.0.0.1:8081", f"127.0.0.1:{port}")
    )
    return ["haproxy", "-db", "-f", str(place / "haproxy.cfg")]


PROXIES = {"nginx": nginx, "haproxy": haproxy}


@pytest.fixture(params=PROXIES)
def behind_a_proxy(
    request: pytest.FixtureRequest,
    serve: Serve,
    agent_on: AgentOn,
    tmp_path: Path,
    require: Callable[[str, bool], None],
) -> Generator[Served]:
    """A server as its clients see it, through the proxy."""
    name: str = request.param
    require(name, shutil.which(name) is not None)
    served = serve(agent_on("stall"), allowed_hosts=(AGENTS, "localhost", "127.0.0.1"))
    port = free_port()
    command = PROXIES[name](tmp_path, port, served.url.removeprefix("http://"))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"Host": AGENTS}, timeout=10)
    try:
        until = time.monotonic() + START
        while not _answers(client):
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < until, f"{name} does not answer"
            time.sleep(0.02)
        through = Served(str(client.base_url))
        through.client.close()
        through.client = client
        yield through
    finally:
        client.close()
        process.terminate()
        process.communicate(timeout=10)


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/v1/agents").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.timeout(60)
def test_a_stream_passes_at_once_and_a_client_that_leaves_stops_its_run(
    behind_a_proxy: Served, wire: WireProbe
) -> None:
    body = {"agent": "agent", "input": "Go.", "stream": True, "id": "r"}
    with behind_a_proxy.client.stream("POST", "/v1/runs", json=body) as response:
        assert any(frame.event == "text.delta" for frame in frames_of(response))
    left = time.monotonic()
    [record] = wire.wait("closed", 1)
    assert record.closed_at is not None
    assert record.closed_at - left < WITHIN
    run = behind_a_proxy.until("r", "cancelled")
    assert run["cancellation"]["reason"] == "client_disconnect"


@pytest.mark.timeout(60)
def test_a_stop_passes_and_the_stream_ends_with_it(behind_a_proxy: Served, wire: WireProbe) -> None:
    body = {"agent": "agent", "input": "Go.", "stream": True, "id": "r"}
    origin = {"Origin": f"http://{AGENTS}"}
    with behind_a_proxy.client.stream("POST", "/v1/runs", json=body, headers=origin) as response:
        frames = frames_of(response)
        assert any(frame.event == "text.delta" for frame in frames)
        assert behind_a_proxy.cancel("r").json()["status"] == "cancelled"
        assert [frame.event for frame in frames][-1] == "run.cancelled"
    wire.assert_closed()
