"""Servers that do what they like: names, contents, changes, deaths; and many agents on one connection."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from halter import Agent, RunResult, events
from halter.errors import ConfigurationError
from halter.messages import Image, Message, Text, ToolResult
from halter.models.scripted import Scripted, calls
from halter.tools import mcp_server, mcp_tools
from halter.tools.mcp_names import named

from .processes import until

SERVER = Path(__file__).with_name("mcp_odd_server.py")
pytestmark = [pytest.mark.real_loop, pytest.mark.filterwarnings("ignore::ResourceWarning")]


def command(tmp_path: Path) -> list[str]:
    return [sys.executable, str(SERVER), str(tmp_path / "log"), str(tmp_path / "dead")]


def sent(tmp_path: Path, method: str) -> list[dict[str, Any]]:
    log = tmp_path / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [each for each in map(json.loads, lines) if each["method"] == method]


def results(result: RunResult[Any]) -> list[ToolResult]:
    return [part for message in result.messages for part in message.parts if isinstance(part, ToolResult)]


async def called(tools: Any, name: str, /, **arguments: Any) -> ToolResult:
    [result] = results(await Agent(Scripted(calls(name, **arguments), "done"), tools=tools).run("go"))
    return result


# --- names --------------------------------------------------------------------------------------------------


async def test_names_are_made_valid_and_told_apart_and_the_server_hears_its_own(tmp_path: Path) -> None:
    async with mcp_tools(command(tmp_path)) as tools:
        names = [tool.name for tool in tools]
        assert len(set(names)) == len(names)
        assert all(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}", name) for name in names)
        assert names[1:3] == ["files_read_all", "_1st"]
        assert re.fullmatch(r"files_read_all_[0-9a-f]{8}", names[0])
        await called(tools, names[0])
    [call] = sent(tmp_path, "tools/call")
    assert call["params"]["name"] == "files.read/all"


def test_a_server_with_two_tools_of_one_name_is_a_clear_error() -> None:
    with pytest.raises(ConfigurationError, match="two tools of the name 'a'"):
        named(["a", "b", "a"])


async def test_a_prefix_and_a_filter_choose_and_name_the_tools(tmp_path: Path) -> None:
    async with mcp_tools(command(tmp_path), prefix="odd_", only=("*e", "count"), without=["die"]) as tools:
        assert [tool.name for tool in tools] == ["odd_picture", "odd_change", "odd_count", "odd_drop_table"]


@pytest.mark.parametrize("options", [{"only": ("cuont",)}, {"without": ("cuont",)}])
async def test_a_pattern_that_fits_no_tool_is_an_error_that_names_the_near_one(tmp_path: Path, options: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"'cuont'.*did you mean 'count'"):
        async with mcp_tools(command(tmp_path), **options):
            pass


@pytest.mark.parametrize(
    "options",
    [{"prefix": "a.b"}, {"prefix": "1"}, {"headers": {"a": "b"}}, {"only": 3}, {"transport": "udp"}, {"token": "t"}],
)
async def test_options_that_cannot_be_are_refused(tmp_path: Path, options: Any) -> None:
    with pytest.raises(ConfigurationError):
        async with mcp_tools(command(tmp_path), **options):
            pass


async def test_two_tools_of_one_name_in_an_agent_are_both_named(tmp_path: Path) -> None:
    async with mcp_tools(command(tmp_path)) as one, mcp_tools(command(tmp_path)) as other:
        with pytest.raises(ConfigurationError, match=r"MCP tool .* of .*prefix"):
            Agent(Scripted("a"), tools=[one, other])


# --- contents -----------------------------------------------------------------------------------------------


async def test_a_picture_is_attached_and_what_is_no_text_is_named(tmp_path: Path) -> None:
    async with mcp_tools(command(tmp_path)) as tools:
        picture = await called(tools, "picture")
        odd = await called(tools, "odd")
    assert picture.attachments == (Image(data=b"\x89PNG\r\n\x1a\n-a picture-"),)
    assert picture.content == "Here:\n[attached: image/png, 19 bytes]"
    assert odd.content.splitlines() == [
        "(note://1)",
        "a note",
        "(resource blob://2 application/zip: 3 bytes, not shown)",
        "(audio audio/wav: 3 bytes, not shown)",
        "(image image/png: 3 bytes, not shown)",
        "(resource note://3: third — more)",
    ]


async def test_results_and_progress_are_bounded(tmp_path: Path) -> None:
    async with mcp_tools(command(tmp_path), max_result=1_000) as tools:
        assert len((await called(tools, "long")).content) < 1_100
        run = Agent(Scripted(calls("busy"), "done"), tools=tools).run("go")
        shown = [event.text async for event in run if isinstance(event, events.ToolProgress)]
    assert 1 <= len(shown) < 500
    assert max(map(len, shown)) < 1_100


# --- who is asked -------------------------------------------------------------------------------------------


async def test_tools_that_change_or_destroy_by_their_servers_hints_ask_and_others_do_not(tmp_path: Path) -> None:
    script = Scripted(tuple(calls(name) for name in ("drop_table", "append", "count", "files_read_all")), "done")
    async with mcp_tools(command(tmp_path)) as tools:
        run = Agent(script, tools=tools).run("go")
        asked: list[str] = []
        async for event in run:
            if isinstance(event, events.InputRequested):
                asked.append(event.prompt)
                run.answer(event.request_id, False)
        by_name = {tool.name: tool.rules.risks for tool in tools}
    assert sorted("drop_table" in prompt for prompt in asked) == [False, True]
    assert any("append" in prompt for prompt in asked)
    assert by_name["drop_table"] == {"destroys", "network"}
    assert by_name["files_read_all"] == {"reads", "network"}
    assert by_name["count"] == frozenset()


async def test_approval_of_the_caller_counts_instead_of_the_hints(tmp_path: Path) -> None:
    async with mcp_tools(command(tmp_path), approval="never") as tools:
        assert not (await called(tools, "drop_table")).is_error


# --- changes and deaths -------------------------------------------------------------------------------------


async def test_changed_tools_are_listed_anew_and_a_tool_that_went_says_so(tmp_path: Path) -> None:
    async with mcp_server(command(tmp_path)) as server:
        old = server.tools
        await called(old, "change")
        await until(lambda: "new" in [tool.name for tool in server.tools])
        assert "odd" not in [tool.name for tool in server.tools]
        assert not (await called(server.tools, "new")).is_error
        gone = await called(old, "odd")
        assert gone.is_error
        assert "no tool 'odd' any more" in gone.content
        assert [tool for tool in server.tools if tool.name == "count"] == [tool for tool in old if tool.name == "count"]


@pytest.mark.scenario("C37")
async def test_a_dead_server_fails_its_call_and_the_next_call_starts_it_anew(tmp_path: Path) -> None:
    async with mcp_tools(command(tmp_path)) as tools:
        before = await called(tools, "count")
        died = await called(tools, "die")
        assert died.is_error
        assert "was lost during this call: part of it may have taken effect" in died.content
        after = await called(tools, "count")
    assert not after.is_error
    assert after.content != before.content
    assert len(sent(tmp_path, "started")) == 2


async def test_a_server_that_stays_dead_is_told_of_at_once_and_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with mcp_tools(command(tmp_path)) as tools:
        (tmp_path / "dead").touch()
        await called(tools, "die")
        failed = await called(tools, "count")
        assert "could not be connected again" in failed.content
        waiting = await called(tools, "count")
        assert "It can be tried again in" in waiting.content
        monkeypatch.setattr("halter.tools.mcp_connection.FIRST_DELAY", 0.0)
        monkeypatch.setattr("halter.tools.mcp_connection.MOST_FAILURES", 2)
        given_up = await called(tools, "count")
        assert "was given up after 2 failures" in given_up.content


async def test_a_stop_of_one_agent_ends_only_its_own_call_on_a_shared_connection(tmp_path: Path) -> None:
    async with mcp_tools(command(tmp_path)) as tools:
        agent = Agent(Scripted(calls("hang"), "done"), tools=tools)
        one, other = agent.run("one").start(), agent.run("other").start()
        await until(lambda: len(sent(tmp_path, "tools/call")) == 2)
        one.cancel("enough")
        await one.finished()
        assert not (await called(tools, "count")).is_error
        assert not other.is_done
        [cancelled] = sent(tmp_path, "notifications/cancelled")
        asked = [each["id"] for each in sent(tmp_path, "tools/call")]
        assert cancelled["params"]["requestId"] in asked[:2]
        other.cancel("done")
        await other.finished()
    assert len({each["params"]["requestId"] for each in sent(tmp_path, "notifications/cancelled")}) == 2


# --- resources and prompts ----------------------------------------------------------------------------------


async def test_resources_and_prompts_are_context_or_tools(tmp_path: Path) -> None:
    async with mcp_server(command(tmp_path), resources=True, prompts=True, prefix="odd_") as server:
        assert server.instructions == "Be odd."
        assert [each.uri for each in await server.resources()] == ["note://1"]
        assert await server.read("note://1") == ["(note://1)\na note"]
        assert await server.prompt("greet", {"who": "Ada"}) == (Message("user", (Text("Greet Ada."),)),)
        tools = server.tools
        assert (await called(tools, "odd_list_resources")).content == "note://1: first. A note."
        assert (await called(tools, "odd_read_resource", uri="note://1")).content == "(note://1)\na note"
        assert (await called(tools, "odd_list_prompts")).content == "greet(who): Greets."
        got = await called(tools, "odd_get_prompt", name="greet", arguments={"who": "Bo"})
        assert got.content == "Greet Bo."
