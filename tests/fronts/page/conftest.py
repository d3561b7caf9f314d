"""Node scripts and a browser, against a real server."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from halter.server.routes.browser import CLIENT

from ...conftest import require_service
from ...server.conftest import Serve, Served
from ..node import find_programs
from .browser import CHROMIUM, Chromium, Tab

__all__ = ["Open", "Script", "Serve", "Served"]

Script = Callable[..., Any]
Open = Callable[..., Tab]
BEGIN = f"""
import {{ Fold, FrameSplitter, Halter }} from {json.dumps(str(CLIENT / "client.js"))}
const given = JSON.parse(await new Promise((resolve) => {{
  let text = ""
  process.stdin.on("data", (piece) => (text += piece)).on("end", () => resolve(text))
}}))
const halter = new Halter({{ url: given.url, ...given.options }})
const print = (value) => console.log(JSON.stringify(value))
const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds))
"""


@pytest.fixture(scope="session")
def programs() -> None:
    """Node and npm; no package is needed."""
    require_service("Node with npm", find_programs())


@pytest.fixture
def script(programs: None, tmp_path: Path) -> Script:
    """`script(source, url=…, …)` runs a module in Node, where `halter` is a client; returns what it printed last."""

    def run(source: str, **given: Any) -> Any:
        path = tmp_path / "script.mjs"
        path.write_text(BEGIN + source)
        done = subprocess.run(
            ["node", path], input=json.dumps(given), capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.strip().rsplit("\n", 1)[-1])

    return run


@pytest.fixture(scope="module")
def chromium() -> Generator[Chromium]:
    """One browser for the tests of a module. It is closed with them: Playwright leaves a loop in its thread."""
    require_service("Chromium", shutil.which(CHROMIUM) is not None)
    with Chromium.started() as browser:
        yield browser


@pytest.fixture
def open_page(chromium: Chromium) -> Generator[Open]:
    """`open_page(served, "#/chat", width=, height=, theme=)`: a tab; nothing in it may fail or be refused."""
    tabs: list[Tab] = []

    def open(served: Served, place: str = "", **options: Any) -> Tab:
        tabs.append(chromium.tab(served.url, **options))
        tabs[-1].go(place)
        return tabs[-1]

    yield open
    for tab in tabs:
        tab.close()
    assert [problem for tab in tabs for problem in tab.problems] == []
