"""The dashboard, by clicking what a person clicks; the provider's record shows the stops."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from halter import Agent, tool
from halter.models.openai import OpenAIChat
from halter.models.scripted import Scripted, calls
from halter.server import KeyFile
from halter.server.routes.browser import CLIENT, PAGE
from halter.testing.wire_probe import WireProbe
from halter.tools.filesystem import files
from halter.tools.process import shell

from .browser import PATIENCE, Tab
from .conftest import Open, Serve

AgentOn = Callable[..., Agent]
MOST_BYTES = 150_000
VIEWS = ("live", "chat", "sessions", "runs", "figures", "audit")
WITHIN = 1.0  # seconds from the click until the provider is closed: the browser shares the processors with the tests


def click_and_closed(tab: Tab, wire: WireProbe, name: str = "Stop") -> None:
    """Clicks the button, and sees that the provider's connections end."""
    clicked = time.monotonic()
    tab.button(name).click()
    wire.assert_closed(WITHIN + time.monotonic() - clicked, since=clicked)


def test_the_page_and_all_that_it_loads_are_small() -> None:
    served = [path for path in PAGE.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in (*served, CLIENT / "client.js")) <= MOST_BYTES


@pytest.mark.scenario("G66")
def test_a_chat_streams_and_stop_closes_the_provider_and_shows_the_receipt(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, open_page: Open
) -> None:
    served = serve(agent_on("steady(3000,10)"))
    tab = open_page(served, "#/chat")
    tab.chat("agent", "Write on rivers.")
    tab.see("t0 t1 t2")
    expect(tab.page.locator(".mine")).to_have_text("Write on rivers.")
    click_and_closed(tab, wire)
    receipt = tab.page.get_by_role("region", name="Receipt of the stop")
    expect(receipt).to_contain_text("Everything that was open has ended")
    expect(receipt.locator(".threads")).to_contain_text(re.compile("socket.*closed", re.DOTALL))
    expect(tab.page.locator("#news")).to_contain_text("Stopped after", timeout=PATIENCE)
    assert served.client.get("/v1/runs").json()["runs"][0]["status"] == "cancelled"


def test_a_stop_with_a_mode_and_a_message_is_on_record(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, open_page: Open
) -> None:
    served = serve(agent_on("steady(3000,10)"))
    served.start(id="r")
    wire.wait("token")
    tab = open_page(served, "#/run/r")
    tab.see("t0 t1")
    tab.button("Stop…").click()
    dialog = tab.page.get_by_role("dialog", name="Stop this run")
    dialog.get_by_label("Kill").check()
    dialog.get_by_label("Why").fill("not what I meant")
    dialog.get_by_role("button", name="Stop", exact=True).click()
    tab.see("anonymous — somebody pressed stop: not what I meant (kill)")
    wire.assert_closed(WITHIN)
    stop = served.run("r")["cancellation"]
    assert (stop["mode"], stop["message"]) == ("kill", "not what I meant")


@pytest.mark.scenario("J84")
def test_a_chat_survives_a_reload_in_the_middle(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, open_page: Open
) -> None:
    served = serve(agent_on("steady(200,10)"))
    tab = open_page(served, "#/chat")
    tab.chat("agent", "Write on rivers.")
    tab.see("t20")
    tab.page.reload()
    tab.see("t60")
    expect(tab.page.locator(".mine")).to_have_count(1)
    tab.see("t199")
    shown = tab.page.locator(".body .said").inner_text().split()
    assert shown == [f"t{number}" for number in range(200)]
    assert len(wire.requests()) == 1
    tab.page.reload()
    tab.see("t199")
    expect(tab.page.locator(".mine")).to_have_text("Write on rivers.")
    expect(tab.page.locator(".said:not(.mine)")).to_have_count(1)


@pytest.mark.scenario("J84")
def test_a_chat_goes_on_while_another_view_is_open(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, open_page: Open
) -> None:
    served = serve(agent_on("steady(3000,10)"))
    tab = open_page(served, "#/chat")
    tab.chat("agent", "Write on rivers.")
    tab.see("t20")
    session = tab.page.evaluate("location.hash")
    tab.page.get_by_role("link", name="Live", exact=True).click()
    tab.see("1 run")
    tab.page.evaluate("(hash) => (location.hash = hash)", session)
    tab.see("t60")
    expect(tab.page.locator(".mine")).to_have_count(1)
    click_and_closed(tab, wire)


def test_a_change_is_approved_with_its_diff_in_view(serve: Serve, tmp_path: Path, open_page: Open) -> None:
    place = tmp_path / "rivers.toml"
    place.write_text('title = "Rivers"\nlength = 1200\n')
    change = calls("edit_file", path="rivers.toml", old="1200", new="1233")
    served = serve(Agent(Scripted(change, "It is right now."), name="agent", tools=files(tmp_path, write=True)))
    tab = open_page(served, "#/chat")
    tab.chat("agent", "Correct the length.")
    question = tab.page.get_by_role("region", name="Approval")
    expect(question.locator("del")).to_have_text("-length = 1200\n")
    expect(question.locator("ins")).to_have_text("+length = 1233\n")
    assert place.read_text().count("1200") == 1
    question.get_by_role("button", name="Allow", exact=True).click()
    tab.see("It is right now.")
    expect(question).to_contain_text("Answered: yes")
    assert "1233" in place.read_text()


def test_a_question_is_answered_with_words_and_a_tools_output_is_shown(serve: Serve, open_page: Open) -> None:
    @tool
    async def ask(ctx) -> str:  # type: ignore[no-untyped-def]
        """Asks."""
        ctx.progress("looking…\n")
        return f"it is {await ctx.ask('Which colour?')}"

    served = serve(Agent(Scripted(calls("ask"), "I see."), name="agent", tools=[ask]))
    tab = open_page(served, "#/chat")
    tab.chat("agent", "Go.")
    question = tab.page.get_by_role("region", name="Question")
    question.get_by_label("Your answer").fill("green")
    question.get_by_role("button", name="Answer").click()
    tab.see("I see.")
    expect(tab.page.locator("details.tool")).to_contain_text("looking…")
    expect(tab.page.locator("details.tool")).to_contain_text("it is green")


def test_the_process_of_a_tool_is_shown_while_it_runs(serve: Serve, open_page: Open) -> None:
    tools = [shell(approval="never")]
    served = serve(Agent(Scripted(calls("shell", command="sleep 73"), "Done."), name="agent", tools=tools))
    served.start(id="r")
    tab = open_page(served, "#/run/r")
    call = tab.page.locator("details.tool")
    expect(call).to_contain_text(re.compile(r"running, process \d+ for .* s"), timeout=PATIENCE)
    [program] = served.client.get("/v1/runs/r/processes").json()["processes"]
    expect(call).to_contain_text(f"process {program['pid']} for")
    expect(call).to_contain_text("$ sleep 73")
    tab.button("Stop").click()
    expect(call).not_to_contain_text("process ")


def test_a_live_run_is_steered(serve: Serve, open_page: Open) -> None:
    @tool(approval="always")
    async def send() -> str:
        """Sends."""
        return "sent"

    served = serve(Agent(Scripted(calls("send"), "Done."), name="agent", tools=[send]))
    served.start(id="r", session="s")
    tab = open_page(served, "#/run/r")
    tab.page.get_by_label("A message to the running agent").fill("Be brief.")
    tab.button("Send").click()
    tab.see("It is told at its next turn.")
    tab.button("Do not allow").click()
    tab.see("Done.")
    messages = served.client.get("/v1/sessions/s/messages").json()["messages"]
    assert "Be brief." in [part.get("text") for message in messages for part in message["parts"]]


def test_a_question_shows_what_a_remembered_answer_holds_for(serve: Serve, open_page: Open) -> None:
    @tool(risk="changes", approval_prompt=lambda path: "May I?")
    async def save(path: str) -> str:
        """Saves a file."""
        return "saved"

    served = serve(Agent(Scripted(calls("save", path="a*"), "Done."), name="agent", tools=[save]))
    served.start(id="r")
    tab = open_page(served, "#/run/r")
    question = tab.page.get_by_role("region", name="Approval")
    expect(question).to_contain_text('{"path":"a[*]"}')
    question.get_by_role("button", name="Allow for this session").click()
    tab.see("Done.")


def test_live_runs_are_a_tree_and_stop_all_stops_them(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, open_page: Open
) -> None:
    inner = agent_on("steady(3000,10)", name="writer", description="Writes.")
    chief = Agent(Scripted(calls("writer", input="Go."), "Done."), name="chief", tools=[inner])
    served = serve([chief, inner])
    served.start("chief", id="a")
    served.start("writer", id="b")
    wire.wait("token", 2)
    tab = open_page(served)
    grid = tab.page.get_by_role("treegrid", name="Live runs")
    expect(grid.get_by_role("row")).to_have_count(3)
    expect(grid.locator('[aria-level="2"]')).to_contain_text("writer")
    tab.see("2 live runs")
    tab.button("Stop all").click()
    tab.see("2 runs are live")
    click_and_closed(tab, wire, "Stop them")
    tab.see("2 runs stopped.")
    tab.see("Nothing is running")
    ended = tab.page.get_by_role("list", name="Runs that ended lately")
    expect(ended.get_by_role("listitem")).to_have_count(2)


def test_runs_are_filtered_sessions_searched_and_the_audit_log_paged(serve: Serve, open_page: Open) -> None:
    served = serve([Agent("scripted:A river.", name="poet"), Agent("scripted:A hill.", name="painter")])
    for agent, id, tag in (("poet", "p1", "wet"), ("poet", "p2", "dry"), ("painter", "q1", "wet")):
        served.client.post("/v1/runs?wait=5", json={"agent": agent, "input": f"Go, {id}.", "id": id, "tags": [tag]})
    body = {"agent": "poet", "input": "On the Elbe, please.", "session": "trip", "user": "ann", "id": "s1"}
    served.client.post("/v1/runs?wait=5", json=body)
    tab = open_page(served, "#/runs")
    tab.see("4 runs")
    tab.page.get_by_label("Tag").fill("wet")
    tab.button("Filter").click()
    tab.see(re.compile("2 runs"))
    tab.page.get_by_label("Agent").fill("poet")
    tab.page.keyboard.press("Enter")
    expect(tab.page.locator("tbody tr")).to_have_count(1)
    assert "agent=poet" in tab.page.evaluate("location.hash")
    tab.page.get_by_label("Status").select_option("failed")
    tab.see("No run fits")
    tab.go("#/sessions")
    tab.page.get_by_label("Words").fill("Elbe")
    tab.button("Search").click()
    expect(tab.page.get_by_role("list", name="Messages found")).to_contain_text("On the Elbe, please.")
    tab.page.get_by_role("list", name="Messages found").get_by_role("link", name="trip").click()
    tab.see("A river.")
    tab.go("#/audit")
    tab.see("8 entries")
    tab.page.get_by_label("Action").select_option("run.start")
    tab.see("4 entries")
    tab.page.get_by_label("Run, session or user").fill("p1")
    tab.page.keyboard.press("Enter")
    expect(tab.page.locator("tbody tr")).to_have_count(1)
    tab.go("#/figures")
    tab.see("Half of 4 runs wrote at least")


def test_all_is_done_by_keyboard_alone(serve: Serve, agent_on: AgentOn, wire: WireProbe, open_page: Open) -> None:
    served = serve(agent_on("steady(3000,10)"))
    for id in ("a", "b", "c"):
        served.start(id=id)
    wire.wait("token", 3)
    tab = open_page(served)
    page = tab.page
    rows = page.get_by_role("row")
    expect(rows).to_have_count(3)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Filter the live runs")).to_be_focused()
    page.keyboard.press("Tab")
    expect(rows.nth(0)).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.locator('[aria-selected="true"]')).to_contain_text("b")
    page.keyboard.press("s")
    tab.see("2 live runs")
    assert served.until("b", "cancelled")["cancellation"]["reason"] == "user_stop"
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(page.locator("main h1")).to_contain_text("agent")
    page.keyboard.press("m")
    dialog = page.get_by_role("dialog", name="Stop this run")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.keyboard.press("Escape")
    expect(page.locator("main h1")).to_have_text("Live runs")
    page.keyboard.press("Shift+S")
    expect(page.get_by_role("dialog", name="Stop all runs")).to_be_visible()
    page.keyboard.press("Enter")
    tab.see("Nothing is running")
    page.keyboard.press("2")
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.get_by_label("Single keys act").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("1")
    expect(page.locator("main h1")).to_have_text("New chat")
    wire.assert_closed(WITHIN)


def test_on_a_phone_nothing_is_wider_than_the_screen(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, open_page: Open
) -> None:
    served = serve(agent_on("steady(3000,10)", name="an_agent_with_quite_a_long_name_for_a_phone"))
    long = "a-long-tag-without-any-place-to-break-it-on-a-phone-at-all"
    served.start("an_agent_with_quite_a_long_name_for_a_phone", id="r", tags=[long], session="s", user="ann")
    wire.wait("token")
    tab = open_page(served, width=360, height=640)
    for place in (*VIEWS, "run/r", "chat/s"):
        tab.go(f"#/{place}")
        tab.page.wait_for_timeout(80)
        widths = tab.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert widths[0] <= 360, place
    tab.go("#/live")
    click_and_closed(tab, wire, "Stop an_agent_with_quite_a_long_name_for_a_phone r")


def test_a_server_with_keys_asks_for_one_and_a_lacking_scope_is_explained(
    serve: Serve, tmp_path: Path, open_page: Open
) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    key = keys.add("anna", tenant="acme", scopes=("run", "read", "stop"))
    served = serve(Agent("scripted:Hello.", name="poet"), auth=keys)
    tab = open_page(served, "#/runs")
    dialog = tab.page.get_by_role("dialog", name="API key")
    for given in ("wrong", key):
        dialog.get_by_label("Key").fill(given)
        tab.button("Use it").click()
    tab.see("No runs yet")
    tab.see("no live runs")
    tab.page.reload()
    tab.see("No runs yet")
    assert tab.page.evaluate("[sessionStorage.getItem('halter.key'), localStorage.length]") == [key, 0]
    tab.go("#/audit")
    tab.see("this key lacks the scope 'admin'")


def test_a_failed_run_and_an_unknown_one_are_told_plainly(serve: Serve, open_page: Open) -> None:
    nowhere = OpenAIChat("m", base_url="http://127.0.0.1:9/v1", api_key="")
    served = serve(Agent(nowhere, name="agent"))
    served.client.post("/v1/runs?wait=20", json={"agent": "agent", "input": "Go.", "id": "r", "timeout": 0.5})
    tab = open_page(served, "#/run/r")
    tab.see(re.compile("failed|stopped"))
    tab.go("#/run/unknown")
    tab.see("There is no run unknown, or it is not yours.")
