"""`examples/react/use_run.js` with React, in Chromium: start, stop, and a reload in the middle."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi import FastAPI
from playwright.sync_api import expect
from starlette.responses import HTMLResponse, Response

from halter import Agent
from halter.server import mount
from halter.sessions import Sessions
from halter.testing.wire_probe import WireProbe

from ...conftest import require_service
from ..node import find_programs, installed
from .browser import PATIENCE, Chromium
from .conftest import Serve

AgentOn = Callable[..., Agent]
HOOK = Path(__file__).parents[3] / "examples" / "react" / "use_run.js"
WITHIN = 1.0  # seconds
PACKAGES = {
    "react": "react/cjs/react.production.js",
    "scheduler": "scheduler/cjs/scheduler.production.js",
    "react-dom": "react-dom/cjs/react-dom.production.js",
    "react-dom/client": "react-dom/cjs/react-dom-client.production.js",
}
NAMES = "useCallback, useEffect, useRef, useState, createElement, createRoot"
# React is published for bundlers: each of its files becomes a module here.
MODULE = """
{imports}
const module = {{ exports: {{}} }}
const process = {{ env: {{}} }}
const require = (name) => ({{ {names} }})[name];
(function (exports) {{ {source} }})(module.exports)
export default module.exports
export const {{ {exported} }} = module.exports
"""
PAGE = """<!doctype html><title>React</title><div id="root"></div>
<script type="importmap">{{ "imports": {imports} }}</script>
<script type="module">
  import { createElement as h } from "react"
  import { createRoot } from "react-dom/client"
  import { Halter } from "/client.js"
  import { useRun } from "/use_run.js"
  const halter = new Halter()
  function App() {
    const { state, outcome, error, start, stop } = useRun(halter)
    return h("main", null,
      h("button", { onClick: () => start("agent", "Go.") }, "Start"),
      h("button", { onClick: () => stop("enough") }, "Stop"),
      h("p", { id: "text" }, state?.messages.map((message) => message.text).join("") ?? ""),
      h("p", { id: "end" }, outcome ? `${outcome.status}, ${outcome.receipt?.resources.length ?? 0} open` : ""),
      h("p", { id: "error" }, error?.message ?? ""))
  }
  createRoot(document.getElementById("root")).render(h(App))
</script>"""


def module(packages: Path, name: str) -> str:
    """A package as an ES module."""
    source = (packages / PACKAGES[name]).read_text(encoding="utf-8")
    needed = sorted(set(re.findall(r'require\("([^"]+)"\)', source)))
    return MODULE.format(
        imports="\n".join(f'import m{place} from "{each}"' for place, each in enumerate(needed)),
        names=", ".join(f'"{each}": m{place}' for place, each in enumerate(needed)),
        source=source,
        exported=NAMES,
    )


def app_with_react(agent: Agent) -> FastAPI:
    require_service("Node with npm", find_programs())
    packages = installed() / "node_modules"
    app = FastAPI()
    mount(app, agent, sessions=Sessions(), grace=0)
    imports = "{" + ", ".join(f'"{name}": "/modules/{name}"' for name in PACKAGES) + "}"

    @app.get("/react")
    async def page() -> Response:
        return HTMLResponse(PAGE.replace("{imports}", imports).replace("{{", "{").replace("}}", "}"))

    @app.get("/use_run.js")
    async def hook() -> Response:
        return Response(HOOK.read_text(encoding="utf-8"), media_type="text/javascript")

    @app.get("/modules/{name:path}")
    async def of_package(name: str) -> Response:
        return Response(module(packages, name), media_type="text/javascript")

    return app


@pytest.mark.scenario("G66", "J84")
def test_the_hook_starts_survives_a_reload_and_stops(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, chromium: Chromium
) -> None:
    served = serve.app(app_with_react(agent_on("steady(3000,10)")))  # type: ignore[attr-defined]
    tab = chromium.tab(served.url)
    try:
        tab.page.goto(f"{served.url}/react")
        tab.button("Start").click()
        expect(tab.page.locator("#text")).to_contain_text("t20", timeout=PATIENCE)
        tab.page.reload()
        expect(tab.page.locator("#text")).to_contain_text("t60", timeout=PATIENCE)
        expect(tab.page.locator("#text")).to_contain_text("t0 t1 t2")
        tab.button("Stop").click()
        expect(tab.page.locator("#end")).to_contain_text(re.compile(r"cancelled, [1-9]"), timeout=PATIENCE)
        wire.assert_closed(WITHIN)
        assert len(wire.requests()) == 1
    finally:
        tab.close()
    assert tab.problems == []
