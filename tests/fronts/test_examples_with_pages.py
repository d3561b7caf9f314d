"""The examples with pages and scripts in Node: what they import runs against the servers that they show."""

from __future__ import annotations

import runpy
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from halter import Agent
from halter.testing.wire_probe import WireProbe

from ..server.conftest import Serve
from .node import Node, installed

AgentOn = Callable[..., Agent]
EXAMPLES = Path(__file__).parents[2] / "examples"
IMPORTS = """
import { Chat } from "@ai-sdk/react"
import { createElement } from "react"
import { renderToString } from "react-dom/server"
"""


@pytest.fixture
def copied(node: Node, tmp_path: Path) -> Generator[Path]:
    """The examples, where Node finds the packages."""
    place = installed() / "examples" / tmp_path.name
    for name in ("fastapi-react", "ag-ui"):
        shutil.copytree(EXAMPLES / name, place / name)
    yield place
    shutil.rmtree(place)


def test_the_page_in_react_draws_itself_and_its_stop_button_stops_the_run(
    serve: Serve, node: Node, copied: Path
) -> None:
    app: Any = runpy.run_path(str(EXAMPLES / "fastapi-react" / "main.py"))["app"]
    served = serve.app(app)  # type: ignore[attr-defined]
    source = """
    const { App } = await import(`${given.at}/App.js`)
    const { messagesOf, stopRuns, transportTo } = await import(`${given.at}/chat.js`)
    const server = given.url
    const chat = new Chat({ id: "c", transport: transportTo("poet", { server }) })
    const sent = chat.sendMessage({ text: "Write on rivers." })
    while (!chat.messages[1]?.parts.some((part) => part.text?.startsWith("A river"))) await sleep(5)
    const before = await messagesOf("poet", "c", { server })
    const stopped = await stopRuns("c", { server })
    await sent
    const loaded = await messagesOf("poet", "c", { server })
    const page = renderToString(createElement(App, { id: "c", loaded }))
    say({ before, loaded, page, stopped, metadata: chat.messages[1].metadata })
    """
    with node.loaded(IMPORTS) as worker:
        found = worker.run(source, url=served.url, at=str(copied / "fastapi-react" / "src"))
    [run] = found["stopped"]
    assert (run["status"], run["cancellation"]["message"]) == ("cancelled", "the stop button")
    assert found["metadata"]["status"] == "cancelled"
    assert [each["role"] for each in found["before"]] == ["user"]  # the answer on its way is resumed
    assert [each["role"] for each in found["loaded"]] == ["user", "assistant"]
    assert "A river" in found["page"]
    assert "Stop</button>" in found["page"]
    assert served.client.get("/api/hello").json() == {"hello": "there"}


def test_ctrl_c_stops_the_conversation_in_the_terminal(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, copied: Path
) -> None:
    served = serve(agent_on("steady(2000,10)", name="poet"))
    command = ["node", str(copied / "ag-ui" / "chat.mjs"), f"{served.url}/v1/ag-ui/poet", "Write on rivers."]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.read(2)
        process.send_signal(signal.SIGINT)
        left = time.monotonic()
        assert process.stdout.read().endswith("[stopped]\n")
    assert process.returncode == 0
    wire.assert_closed(1.0, since=left)
