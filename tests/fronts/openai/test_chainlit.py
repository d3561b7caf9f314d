"""The example with Chainlit, in a browser: its stop button stops the model."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from halter import Agent
from halter.testing.wire_probe import WireProbe

from ...conftest import require_service
from ...server.conftest import Serve, Served
from ..page.browser import CHROMIUM, PATIENCE, Chromium

ROOT = Path(__file__).parents[3]
CHAINLIT = Path(os.environ.get("HALTER_CHAINLIT") or ROOT / ".venv-chainlit" / "bin" / "chainlit")


@pytest.fixture
def chainlit(tmp_path: Path) -> Generator[Callable[[Served], str]]:
    """`chainlit(served)`: the URL of the example's page, which talks with this server."""
    require_service("Chainlit (make .venv-chainlit/.ready)", CHAINLIT.exists())
    require_service("Chromium", shutil.which(CHROMIUM) is not None)
    running: list[subprocess.Popen[bytes]] = []

    def start(served: Served) -> str:
        port = _free_port()
        environment = {**os.environ, "HALTER_URL": served.url, "HALTER_AGENT": "agent", "HOME": str(tmp_path)}
        command = [str(CHAINLIT), "run", str(ROOT / "examples/chainlit/app.py"), "--headless", "--port", str(port)]
        running.append(subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL))
        _wait_for(port)
        return f"http://127.0.0.1:{port}"

    yield start
    for process in running:
        process.terminate()
        process.wait(20)


@pytest.mark.scenario("G66")
@pytest.mark.timeout(120)
def test_the_stop_button_of_chainlit_closes_the_models_connection(
    serve: Serve, agent_on: Callable[..., Agent[Any]], wire: WireProbe, chainlit: Callable[[Served], str]
) -> None:
    served = serve(agent_on("steady(400,50)"))
    url = chainlit(served)
    with Chromium.started() as browser:
        tab = browser.tab(url)
        tab.page.goto(url)
        tab.page.locator("#chat-input").press_sequentially("Go.", timeout=4 * PATIENCE)
        tab.page.locator("#chat-submit:not([disabled])").click()
        tab.see("t3")
        tab.page.locator("#stop-button").click()
        wire.assert_closed(within=5.0)
        tab.close()
    (run,) = served.client.get("/v1/runs").json()["runs"]
    assert (run["status"], run["cancellation"]["reason"]) == ("cancelled", "client_disconnect")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def _wait_for(port: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("Chainlit did not start")
