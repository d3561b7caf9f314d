"""Tools of an MCP server, in a process of its own, over its standard streams."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from halter import Agent, RunResult, events
from halter.errors import ConfigurationError, McpTimeout, ToolError
from halter.messages import ToolResult
from halter.models.scripted import Scripted, calls
from halter.tools.mcp import mcp_tools
from halter.tools.mcp_arguments import McpArguments

from ..bounds import T, assert_within
from .processes import alive, new_name, until

SERVER = Path(__file__).with_name("mcp_server.py")
pytestmark = [pytest.mark.real_loop, pytest.mark.filterwarnings("ignore::ResourceWarning")]


def command(log: Path) -> list[str]:
    return [sys.executable, str(SERVER), str(log)]


def sent(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def told(result: RunResult[Any]) -> list[tuple[str, bool]]:
    parts = [part for message in result.messages for part in message.parts if isinstance(part, ToolResult)]
    return [(part.content, part.is_error) for part in parts]


async def test_an_agent_calls_the_tools_of_a_server(tmp_path: Path) -> None:
    """A result, a failure that the server tells of, arguments that are no object."""
    script = Scripted((calls("greet", who="Ada"), calls("fail")), "done")
    async with mcp_tools(command(tmp_path / "log")) as tools:
        assert [tool.name for tool in tools] == ["greet", "hang", "fail", "keep", "keep_exactly"]
        result = await Agent(script, tools=tools).run("go")
    assert told(result) == [("Hello, Ada", False), ("it broke", True)]


@pytest.mark.scenario("C37")
async def test_a_stop_tells_the_server_and_does_not_wait_for_it(tmp_path: Path) -> None:
    """It is told which request to cancel, ignores that, and the call ends all the same; the connection goes on."""
    log = tmp_path / "log"
    async with mcp_tools(command(log)) as tools:
        agent = Agent(Scripted(calls("hang"), "done"), tools=tools)
        async with agent.run("go") as run:
            async for event in run:
                if isinstance(event, events.ToolStarted):
                    while not any(message["method"] == "tools/call" for message in sent(log)):  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
                    began = time.monotonic()
                    run.cancel("enough")
        result = await run.finished()
        assert_within(T, time.monotonic() - began, "the stop")
        assert result.receipt is not None
        assert result.receipt.confirmed
        after = await Agent(Scripted(calls("greet"), "done"), tools=tools).run("go on")
        assert told(after) == [("Hello, you", False)]
    [asked] = [each for each in sent(log) if each["method"] == "tools/call" and each["params"]["name"] == "hang"]
    [cancelled] = [each for each in sent(log) if each["method"] == "notifications/cancelled"]
    assert cancelled["params"]["requestId"] == asked["id"]


@pytest.mark.scenario("C37")
async def test_a_time_out_of_a_call_tells_the_server_too(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with mcp_tools(command(log), timeout=0.2) as tools:
        result = await Agent(Scripted(calls("hang"), "done"), tools=tools).run("go")
        await until(lambda: any(each["method"] == "notifications/cancelled" for each in sent(log)))
    assert result.text == "done"
    assert told(result)[0][1]
    assert [each["method"] for each in sent(log)].count("notifications/cancelled") == 1


async def test_a_tool_of_a_server_may_need_a_yes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with mcp_tools(command(log), approval="always") as tools:
        run = Agent(Scripted(calls("greet"), "done"), tools=tools).run("go")
        async for event in run:
            if isinstance(event, events.InputRequested):
                run.answer(event.request_id, False)
    assert not any(each["method"] == "tools/call" for each in sent(log))


async def asked_and_told(
    tmp_path: Path, name: str, approval: Any, *given: dict[str, Any]
) -> tuple[list[str], list[str]]:
    """What somebody was asked, and refused; and what the model was told of each call."""
    script = Scripted(*(calls(name, **each) for each in given), "done")
    async with mcp_tools(command(tmp_path / "log"), approval=approval) as tools:
        run = Agent(script, tools=tools).run("go")
        asked: list[str] = []
        async for event in run:
            if isinstance(event, events.InputRequested):
                asked.append(event.prompt)
                run.answer(event.request_id, False)
        return asked, [content for content, _ in told(await run)]


@pytest.mark.scenario("K103")
@pytest.mark.parametrize("approval", [{"path": ("notes/*",)}, ("notes/*",)], ids=["named", "first"])
async def test_neither_a_key_before_nor_one_beside_the_path_makes_it_fit_a_pattern(
    tmp_path: Path, approval: Any
) -> None:
    asked, answers = await asked_and_told(
        tmp_path,
        "keep",
        approval,
        {"path": "notes/a"},
        {"text": "notes/a", "path": "/etc/passwd"},
        {"aside": "notes/a", "path": "/etc/passwd"},
        {"path": "notes/a", "file": "/etc/passwd"},
        {"text": "notes/a"},
    )
    assert asked == [
        'May keep be called with {"path":"/etc/passwd","text":"notes/a"}?',
        'May keep be called with {"path":"/etc/passwd","aside":"notes/a"}?',
        'May keep be called with {"path":"notes/a","file":"/etc/passwd"}?',
    ]
    refused = "This call was not allowed."
    sent_default = '{"path": "notes/today", "text": "notes/a"}'
    assert answers == ['{"path": "notes/a"}', refused, refused, refused, sent_default]


@pytest.mark.scenario("K103")
async def test_keys_that_the_schema_does_not_allow_are_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    asked, answers = await asked_and_told(
        tmp_path, "keep_exactly", "always", {"path": "a", "pathh": "b"}, {"path": "a"}
    )
    assert answers[0] == "The call was not made: there is no argument 'pathh'. There are: path, text."
    assert len(asked) == 1


@pytest.mark.scenario("K103")
async def test_a_predicate_sees_the_defaults_of_the_schema_and_they_are_sent(tmp_path: Path) -> None:
    def is_outside(path: str, **_: object) -> bool:
        return not path.startswith("notes/")

    asked, answers = await asked_and_told(tmp_path, "keep", is_outside, {"text": "a"}, {"path": "/etc/passwd"})
    assert answers[0] == '{"path": "notes/today", "text": "a"}'
    assert asked == ['May keep be called with {"path":"/etc/passwd"}?']
    defaults = {"path": {"default": None}, "lines": {"default": [1]}, "text": {}}
    kept = McpArguments({"properties": defaults})
    kept.read("{}", ("lines",))["lines"].append(2)
    assert kept.read('{"text": "a"}', kept.names) == {"path": None, "lines": [1], "text": "a"}


@pytest.mark.scenario("K103")
async def test_a_tool_without_the_argument_that_patterns_name_always_asks(tmp_path: Path) -> None:
    asked, _ = await asked_and_told(tmp_path, "greet", {"path": "*"}, {}, {"path": "x"})
    assert len(asked) == 2


def test_a_schema_that_names_nothing_and_one_with_patterns_are_read_as_json_schema_says() -> None:
    assert McpArguments({}).read('{"a": 1}', ("a",)) == {"a": 1}
    closed = McpArguments({"properties": {"b": {}}, "patternProperties": {"^x-": {}}, "additionalProperties": False})
    assert list(closed.read('{"x-1": 1, "b": 2}', ())) == ["b", "x-1"]
    for wrong in ('{"y": 1}', "[1]", "{", "[" * 100_000):
        with pytest.raises(ToolError):
            closed.read(wrong, ())
    odd = McpArguments({"patternProperties": {"\\p{L}": {}}, "additionalProperties": False})
    assert odd.read('{"y": 1}', ()) == {"y": 1}, "the server judges what Python cannot"


async def test_what_is_no_server_is_a_clear_error() -> None:
    with pytest.raises(ConfigurationError, match="a command, a URL or a Client"):
        async with mcp_tools([]):
            pass


# --- the server's process -----------------------------------------------------------------------------------

STUBBORN = """
import os, runpy, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", sys.argv[3]], env={}, start_new_session=True)
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0])
finally:
    signal.pause()  # though its stdin is closed
"""


@pytest.fixture
def name() -> Iterator[str]:
    name = new_name()
    yield name
    left = alive(name)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, "processes were left behind"


async def test_a_server_ends_with_its_block_and_all_that_it_has_started(tmp_path: Path, name: str) -> None:
    """Also one that ignores the end of its stdin, and TERM."""
    stubborn = [sys.executable, "-c", STUBBORN, str(SERVER), str(tmp_path / "log"), name]
    async with mcp_tools(stubborn) as tools:
        result = await Agent(Scripted(calls("greet"), "done"), tools=tools).run("go")
        assert told(result) == [("Hello, you", False)]
        await until(lambda: len(alive(name)) == 2)
    assert alive(name) == []


async def test_the_tools_of_all_pages_are_listed(tmp_path: Path) -> None:
    async with mcp_tools(command(tmp_path / "log")) as tools:
        assert [tool.name for tool in tools] == ["greet", "hang", "fail", "keep", "keep_exactly"]


async def test_what_the_block_raises_comes_out_as_it_is(tmp_path: Path) -> None:
    error = LookupError("mine")
    with pytest.raises(LookupError) as raised:
        async with mcp_tools(command(tmp_path / "log")):
            raise error
    assert raised.value is error


async def test_pages_that_do_not_end_are_a_clear_error(tmp_path: Path) -> None:
    text = SERVER.read_text().replace("TOOLS[3:]", "TOOLS[3:], 'nextCursor': 'more'")
    (endless := tmp_path / "endless.py").write_text(text)
    with pytest.raises(ConfigurationError, match="more than 100 pages"):
        async with mcp_tools([sys.executable, str(endless), str(tmp_path / "log")]):
            pass


async def test_a_server_that_dies_in_a_call_fails_that_call(tmp_path: Path, name: str) -> None:
    log = tmp_path / "log"
    async with mcp_tools([*command(log), name]) as tools:
        run = Agent(Scripted(calls("hang"), "done"), tools=tools).run("go").start()
        await until(lambda: any(message["method"] == "tools/call" for message in sent(log)))
        (server,) = alive(name)
        os.kill(server, signal.SIGKILL)
        result = await run
    assert result.text == "done"
    assert told(result)[0][1]


async def test_a_server_that_cannot_be_started_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no-such-server.* could not be started: .*No such file"):
        async with mcp_tools([str(tmp_path / "no-such-server")]):
            pass


async def test_a_large_message_is_written_whole(tmp_path: Path) -> None:
    """More than a pipe holds, from several calls at once."""
    who = "x" * 300_000
    script = Scripted(tuple(calls("greet", who=who) for _ in range(4)), "done")
    async with mcp_tools(command(tmp_path / "log"), max_result=1_000_000) as tools:
        result = await Agent(script, tools=tools).run("go")
    assert told(result) == [(f"Hello, {who}", False)] * 4


@pytest.mark.parametrize("silent", ["initialize", "tools/list"])
async def test_a_server_that_never_answers_is_given_up_by_name_and_ended(tmp_path: Path, silent: str) -> None:
    log = tmp_path / "log"
    with pytest.raises(McpTimeout, match=r"mcp_server\.py .* has not answered within 0\.5 s") as raised:
        async with mcp_tools([*command(log), silent], connect_timeout=0.5):
            pass
    assert str(SERVER) in raised.value.server
    assert isinstance(raised.value, TimeoutError)
    await until(lambda: not alive(str(log)))


async def test_a_time_out_of_the_block_is_not_taken_for_one_of_its_server(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="mine"):
        async with mcp_tools(command(tmp_path / "log"), connect_timeout=30):
            raise TimeoutError("mine")
