"""Node scripts against a real server."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halter.server.routes.browser import CLIENT

from ...conftest import require_service
from ...server.conftest import Serve, Served, agent_on, serve

__all__ = ["Script", "Serve", "Served", "agent_on", "serve"]

Script = Callable[..., Any]
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
def node() -> str:
    """The program `node`."""
    found = shutil.which("node")
    require_service("node", found is not None)
    assert found is not None
    return found


@pytest.fixture
def script(node: str, tmp_path: Path) -> Script:
    """`script(source, url=…, …)` runs a module in Node, where `halter` is a client; returns what it printed last."""

    def run(source: str, **given: Any) -> Any:
        path = tmp_path / "script.mjs"
        path.write_text(BEGIN + source)
        done = subprocess.run(
            [node, path], input=json.dumps(given), capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.strip().rsplit("\n", 1)[-1])

    return run
