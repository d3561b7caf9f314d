"""The page keeps up: with 2,000 tokens a second, and with 1,000 live runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from halter import Agent
from halter.models.scripted import Scripted

from .browser import Tab
from .conftest import Open, Serve

AgentOn = Callable[..., Agent]
# Milliseconds that 19 of 20 frames may take; the tests share two processors with the page.
LONGEST = 250.0
RATE = 2_000  # tokens per second
MEASURE = """(seconds) => new Promise((resolve) => {
  const frames = []
  let last = performance.now()
  const end = last + seconds * 1000
  const frame = (now) => {
    frames.push(now - last)
    last = now
    if (now < end) return requestAnimationFrame(frame)
    frames.sort((one, other) => one - other)
    resolve({ p50: frames[Math.floor(frames.length * 0.5)], p95: frames[Math.floor(frames.length * 0.95)],
              longest: frames.at(-1), count: frames.length })
  }
  requestAnimationFrame(frame)
})"""
WORDS = "A **river** begins almost `nowhere`, high on a hillside, in the rain.\n\n- It finds other water\n\n"


def frames(tab: Tab, seconds: float, record_property: Callable[[str, object], None]) -> float:
    """The time of a slow frame: 19 of 20 were faster."""
    found = tab.page.evaluate(MEASURE, seconds)
    record_property("frames", found)
    print(found)
    return found["p95"]


def test_a_flood_of_2000_tokens_a_second_is_drawn_without_a_stutter(
    serve: Serve, open_page: Open, record_property: Callable[[str, object], None]
) -> None:
    served = serve(Agent(Scripted(WORDS * 8_000, pace=1 / RATE), name="flood"))
    tab = open_page(served, "#/chat")
    tab.chat("flood", "Go.")
    tab.see("It finds other water")
    lengths = [len(tab.page.locator(".body").text_content() or "")]
    slow = frames(tab, 1.5, record_property)
    lengths.append(len(tab.page.locator(".body").text_content() or ""))
    assert lengths[1] - lengths[0] > RATE * 1.5  # characters: it went on all the time
    assert slow < LONGEST
    tab.button("Stop").click()
    tab.see("Everything that was open has ended")


@pytest.mark.parametrize("count", [pytest.param(100, id="100"), pytest.param(1_000, id="1000", marks=pytest.mark.soak)])
def test_live_runs_are_shown_without_a_stutter(
    count: int, serve: Serve, open_page: Open, record_property: Callable[[str, object], None]
) -> None:
    served = serve(Agent(Scripted("A river begins almost nowhere. " * 200, pace=1.0), name="slow"))
    for number in range(count):
        served.start("slow", id=f"r{number}", tags=[f"t{number % 7}"])
    tab = open_page(served)
    tab.see(f"{count:,} live runs")
    assert frames(tab, 1.0, record_property) < LONGEST
    tab.page.evaluate("scrollTo(0, document.body.scrollHeight / 2)")
    assert frames(tab, 1.0, record_property) < LONGEST
    assert tab.page.get_by_role("row").count() < 60
    tab.page.evaluate("scrollTo(0, document.body.scrollHeight)")
    expect(tab.page.get_by_role("row", name=f"r{count - 1}")).to_be_visible()
    tab.page.get_by_label("Filter the live runs").fill("r7")
    tab.see("r7")
    tab.button("Stop all").click()
    tab.button("Stop them").click()
    tab.see(f"{count:,} runs stopped.")
