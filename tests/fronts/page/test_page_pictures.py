"""The pictures of docs/dashboard.md: `make pictures` writes them."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from playwright.sync_api import expect

from halter import Agent, tool
from halter.models.scripted import Scripted, calls
from halter.tools.filesystem import files

from .browser import Tab
from .conftest import Open, Serve

PICTURES = Path(__file__).parents[3] / "docs" / "pictures"
LARGEST = 100_000  # bytes
RIVER = """## Where a river begins

A river begins **almost nowhere**, high on a hillside, in the rain. It finds other water, and it becomes a stream
([the Elbe](https://en.wikipedia.org/wiki/Elbe)):

| river | length |
|---|---|
| Rhine | 1,233 km |
| Elbe | 1,094 km |

Below the last hill it slows down, and it carries the hill with it, grain by grain, to the sea.

"""
SETTINGS = '[river]\nname = "Rhine"\nlength = 1200\nsource = "Tomasee"\n'


@tool
async def measure(river: str) -> str:
    """Measures a river."""
    for done in range(0, 101, 2):
        await asyncio.sleep(0.5)
        print(f"{done} % of the {river}")
    return "1,094 km"


def crew(place: Path) -> list[Agent]:
    """Agents for every view."""
    (place / "rivers.toml").write_text(SETTINGS)
    change = calls("edit_file", path="rivers.toml", old="length = 1200", new="length = 1233")
    poet = Agent(Scripted(RIVER * 40, pace=0.02), name="poet", description="Writes on rivers, slowly.")
    surveyor = Agent(
        Scripted(calls("measure", river="Elbe"), "It is out.", pace=0.02),
        name="surveyor",
        description="Measures rivers.",
        tools=[measure],
    )
    editor = Agent(
        Scripted(change, "The length is right now.", pace=0.02),
        name="editor",
        description="Asks before it changes a file.",
        tools=files(place, write=True),
    )
    both = (calls("surveyor", input="Measure the Elbe."), calls("poet", input="Write on the Elbe."))
    atlas = Agent(
        Scripted(both, "Done.", pace=0.02),
        name="atlas",
        description="Has a surveyor and a poet below it.",
        tools=[surveyor, poet],
    )
    return [atlas, editor, poet, surveyor]


@pytest.mark.soak
def test_the_pictures_of_the_docs_are_those_of_the_page(serve: Serve, tmp_path: Path, open_page: Open) -> None:
    rivers = Path(tempfile.mkdtemp(prefix="rivers-"))  # it is shown
    served = serve(crew(rivers))
    place = PICTURES if os.environ.get("HALTER_PICTURES") == "1" else tmp_path
    place.mkdir(exist_ok=True)
    taken: list[Path] = []

    def take(tab: Tab, name: str) -> None:
        taken.append(place / f"{name}.png")
        tab.page.screenshot(path=taken[-1])

    size = {"width": 1_100, "height": 640}
    served.start("atlas", id="atlas-of-1842", tags=["atlas"], input="An atlas of rivers, please.")
    served.start("poet", id="elbe", session="elbe", input="Write on the Elbe.")
    served.start("editor", id="lengths", input="Correct the length of the Rhine.")
    live = open_page(served, **size)
    live.see("waits for your answer")
    live.page.wait_for_timeout(6_000)
    served.start("surveyor", id="rhine", input="Measure the Rhine.")
    served.start("poet", id="oder")
    live.page.wait_for_timeout(4_000)
    served.cancel("oder", message="it flows the other way")
    live.see("Ended lately")
    live.page.wait_for_timeout(600)
    take(live, "live")
    run = open_page(served, "#/run/atlas-of-1842", **{**size, "height": 760}, theme="dark")
    run.see("Where a river begins")
    run.button("Stop").click()
    expect(run.page.get_by_role("region", name="Receipt of the stop")).to_be_visible()
    run.page.wait_for_timeout(300)
    take(run, "receipt")
    approval = open_page(served, "#/run/lengths", **{**size, "height": 740})
    expect(approval.page.locator("ins")).to_be_visible()
    approval.page.evaluate("scrollTo(0, 0)")
    take(approval, "approval")
    phone = open_page(served, "#/chat", width=360, height=700)
    phone.chat("poet", "Write on the Elbe, please.")
    phone.see("grain by grain")
    take(phone, "phone")
    phone.button("Stop").click()
    phone.see("Everything that was open has ended")
    shutil.rmtree(rivers)
    assert [path.name for path in taken if path.stat().st_size > LARGEST] == []


def test_the_docs_show_the_pictures_that_are_there() -> None:
    page = (PICTURES.parent / "dashboard.md").read_text(encoding="utf-8")
    shown = {path.name for path in PICTURES.iterdir() if f"(pictures/{path.name})" in page}
    assert shown == {path.name for path in PICTURES.iterdir()}
    assert all(path.stat().st_size <= LARGEST for path in PICTURES.iterdir())
