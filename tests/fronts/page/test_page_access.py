"""Every view passes axe-core; dark ones, which have the same elements, its rules on colours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from halter import Agent, tool
from halter.models.scripted import Scripted, calls
from halter.testing.wire_probe import WireProbe

from ...conftest import require_service
from ..node import find_programs, installed
from .browser import Tab
from .conftest import Open, Serve

AgentOn = Callable[..., Agent]
RUN = """async (rules) => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"], ...(rules && { runOnly: rules }) })
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(" | ").slice(0, 600)}`)
}"""


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core."""
    require_service("Node with npm", find_programs())
    return Path(installed(), "node_modules", "axe-core", "axe.min.js").read_text(encoding="utf-8")


def check(tab: Tab, axe: str, what: str, rules: list[str] | None) -> None:
    tab.page.wait_for_timeout(80)
    tab.page.evaluate("() => document.getAnimations().forEach((each) => each.cancel())")
    if not tab.page.evaluate("() => 'axe' in window"):
        tab.page.evaluate(axe)
    assert (what, tab.page.evaluate(RUN, rules)) == (what, [])


@pytest.mark.parametrize(("theme", "rules"), [("light", None), ("dark", ["color-contrast", "link-in-text-block"])])
def test_no_view_has_violations(
    theme: str, rules: list[str] | None, serve: Serve, agent_on: AgentOn, wire: WireProbe, open_page: Open, axe: str
) -> None:
    @tool(approval="always", approval_prompt=lambda: "May I?\n\n--- a\n+++ a\n@@ -1 +1 @@\n-one\n+two")
    async def change() -> str:
        """Changes."""
        return "changed"

    text = "# Title\n\n- [link](https://example.com)\n\n| a |\n|---|\n| 1 |\n\n```py\nx = 1\n```\n\n> quote `code`"
    poet = Agent(Scripted(text), name="poet", description="Writes.")
    clerk = Agent(Scripted(calls("change"), "Done."), name="clerk", tools=[change])
    served = serve([agent_on("steady(3000,10)"), poet, clerk])
    tab = open_page(served, theme=theme, motion="reduce")
    for place in ("live", "chat", "sessions", "runs", "figures", "audit"):
        tab.go(f"#/{place}")
        check(tab, axe, f"empty {place}", rules)
    served.client.post("/v1/runs?wait=5", json={"agent": "poet", "input": "Go.", "session": "s", "id": "done"})
    served.start("clerk", id="asks")
    for id in ("stopped", "live"):
        served.start(id=id, tags=["demo"], session=id)
    wire.wait("token", 2)
    served.cancel("stopped", message="enough")
    for place in ("live", "chat/s", "sessions", "runs", "figures", "audit", "run/asks", "run/stopped", "run/live"):
        tab.go(f"#/{place}")
        check(tab, axe, place, rules)
    tab.button("Stop…").click()
    check(tab, axe, "stop dialog", rules)
    tab.page.keyboard.press("Escape")
    tab.button("Stop all").click()
    check(tab, axe, "stop all dialog", rules)
