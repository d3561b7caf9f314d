"""`halter chat` through a real pty with real keys, against the recording provider's record."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest

from halter.testing.wire_probe import WireProbe

from ..bounds import T, assert_within
from .conftest import Open
from .pty import Terminal

ESCAPE = "\x1b"
ESCAPE_WAIT = 0.05  # seconds
LATEST = 2.0  # of any stop: the terminal has its own program to wake on a busy machine
pytestmark = pytest.mark.timeout(240)
# Arrows, Alt keys, focus reports, a paste, a mouse click, an answer of the terminal.
NO_ESCAPES = (
    "\x1b[D\x1b[C",
    "\x1bf\x1bb",
    "\x1b[I\x1b[O",
    "\x1b[200~pasted \x1b bytes\x1b[201~",
    "\x1b[<0;5;5M",
    "\x1b[?1;2c",
)

# The provider behaves as the last thing that was said says; summaries stall.
APP = """
from urllib.parse import quote

from halter import Agent, tool
from halter.models.openai import OpenAIChat


class Told:
    name, price = "told", None

    async def respond(self, request, ctx):
        said = [m.text for m in request.messages if m.role == "user"][-1]
        mode = "stall(0)" if "<conversation>" in said else said.splitlines()[-1]
        url = f"{BASE}/{quote(mode, safe='')}/{TAG}/v1"
        return await OpenAIChat("m", base_url=url, api_key="").respond(request, ctx)


@tool
async def wait_long() -> str:
    import asyncio
    await asyncio.sleep(300)


@tool
def hold_the_loop() -> str:
    import time
    time.sleep(4)


@tool(approval="always")
def launch(where: str) -> str:
    return f"launched to {where}"


agent = Agent(Told(), name="pilot", tools=[wait_long, hold_the_loop, launch])
"""


@pytest.fixture
def app(home: Path, wire: WireProbe) -> str:
    base = f"http://127.0.0.1:{wire.wire.port}"
    (home / "work/app.py").write_text(f"BASE, TAG = {base!r}, {wire.tag!r}\n" + APP)
    return "app.py:agent"


def ready(chat: Terminal) -> None:
    chat.until(lambda: any(line.startswith("›") for line in chat.lines), "the prompt")


class Turns:
    """Turns of one chat, each stopped by a key in its phase."""

    def __init__(self, chat: Terminal, wire: WireProbe) -> None:
        self.chat = chat
        self.wire = wire
        self.stops = 0
        self.took: list[float] = []  # seconds from a key to the close

    def stop(self, mode: str, *, has: str = "tokens_sent", shows: str = "", key: str = ESCAPE) -> None:
        """Says what the provider should do, and presses the key once its record has this."""
        at_first = len(self.wire.requests())
        self.chat.press(f"{mode}\r")
        self.until(lambda: len(self.wire.requests()) > at_first and bool(getattr(self.wire.requests()[-1], has)), mode)
        if shows:
            self.chat.until(shows)
        at = self.chat.press(key)
        self.stops += 1
        self.chat.until(lambda: self.chat.everything.count("■ stopped") == self.stops, "the receipt")
        if has != "finished_at":
            self.until(lambda: self.wire.requests()[-1].closed_at is not None, "the close")
            closed = self.wire.requests()[-1]
            assert closed.closed_how in ("eof", "reset")
            self.took.append((closed.closed_at or 0.0) - at)
            assert_within(LATEST, self.took[-1], mode)
        assert len(self.wire.requests()) == at_first + 1
        assert self.chat.process.poll() is None

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        self.chat.until(is_so, what)


@pytest.mark.scenario("H75", "H76", "H77", "H78", "C36", "D45")
def test_a_key_stops_the_turn_in_every_phase_ten_times_in_a_row(terminal: Open, app: str, wire: WireProbe) -> None:
    chat = terminal("chat", app)
    ready(chat)
    turns = Turns(chat, wire)
    turns.stop("no-headers", has="started")
    turns.stop("stall(0)", has="started")
    turns.stop("steady(10000,5)", shows="t5 ")
    turns.stop("stall(3)", shows="t2", key="\x03")
    turns.stop("steady(1000000,0)")
    turns.stop("tool-call(wait_long)", has="finished_at", shows="○ wait_long")
    turns.stop("tool-call(hold_the_loop)", has="finished_at", shows="○ hold_the_loop", key="\x03")
    turns.stop('tool-call(launch,{"where":"moon"})', has="finished_at", shows="allow it?")
    chat.press("/compact\r")
    chat.until("compacted before the next request")
    turns.stop("steady(20,1)", has="started", shows="compacting")
    turns.stop("stall(1)", shows="t0", key="\x03")
    assert turns.stops == 10
    assert_within(ESCAPE_WAIT + T, median(turns.took), "a stop by a key, at the median")

    # A draft survives a stop, and so do the terminal's modes and the conversation.
    chat.press("stall(2)\r")
    chat.until("t0 t1")
    chat.press("half a thou")
    chat.until("› half a thou")
    chat.press(ESCAPE)
    turns.stops += 1
    chat.until(lambda: chat.everything.count("■ stopped") == turns.stops, "the receipt")
    assert "› half a thou" in chat.text
    chat.press("\x15" + "steady(30,1)\r")
    chat.until("t29")
    chat.until("─ ")
    roles = [message["role"] for message in json.loads(wire.requests()[-1].body)["messages"]]
    assert roles.count("user") >= 2
    chat.press("/receipt\r")
    chat.until("open at the stop")

    chat.press("\x03")
    chat.until("Ctrl-C again leaves")
    chat.press("\x03")
    assert chat.exit_code() == 130
    assert chat.is_restored
    assert b"\x1b[?2004l" in chat.raw[-400:]


@pytest.mark.scenario("H77", "H76", "K104")
def test_what_is_no_escape_key_stops_nothing_and_hostile_text_steers_nothing(
    terminal: Open, app: str, wire: WireProbe
) -> None:
    chat = terminal("chat", app)
    ready(chat)
    chat.press("earlier\x15stall(2)\r")
    wire.wait("token", 1, 30.0)
    for keys in (
        "\x1b[D\x1b[C",
        "\x1bf\x1bb",
        "\x1b[I\x1b[O",
        "\x1b[200~pasted \x1b bytes\x1b[201~",
        "\x1b[<0;5;5M",
        "\x1b[?1;2c",
    ):
        chat.press(keys)
    chat.press("\x1b")
    time.sleep(0.01)  # split in two reads, within the escape wait
    chat.press("[D")
    chat.until("pasted")
    assert "[I" not in chat.text
    assert "1;2c" not in chat.text
    assert wire.requests()[0].open
    chat.press("\x05\x15")
    chat.press(ESCAPE)
    chat.until("■ stopped after")

    # Approvals: a no, and a yes; words that are neither are neither.
    call = 'tool-call(launch,{"where":"\\u202e\\u001b]0;owned\\u0007moon"})'
    chat.press(f"{call}\r")
    chat.until("allow it?")
    assert "\\u202e\\u001b]0;owned" in chat.text.replace("\n", "")
    chat.press("you should\r")
    chat.until("n and Enter does not")
    chat.press("n the moon is far\r")
    chat.until("denied")
    chat.until("The reason given: the moon is far")
    chat.press(f"{call}\r")
    chat.until("↳ no")
    chat.until("allow it?")
    chat.press("y\r")
    chat.until("● launch")
    chat.until("launched to")
    assert b"\x1b]0;" not in chat.raw
    assert b"\x07" not in chat.raw
    assert "\u202e".encode() not in chat.raw

    # No staircase, and nothing is left behind by a resize.
    chat.press("a line that I am typing")
    chat.until("I am typing")
    for columns in (40, 120, 60, 80):
        chat.resize(columns, 24)
        chat.until(lambda: sum("I am typing" in line for line in chat.lines) == 1, "one prompt")
        chat.until(lambda: sum(line.startswith("pilot · told") for line in chat.lines) <= 2, "one status line")
    chat.press("\x15\x04")
    assert chat.exit_code() == 0
    assert chat.is_restored


@pytest.mark.scenario("H79")
def test_a_closed_window_and_a_signal_leave_no_run(terminal: Open, app: str, wire: WireProbe) -> None:
    chats = {"hangup": terminal("chat", app, "--say", "stall(2)"), "term": terminal("chat", app, "--say", "stall(3)")}
    wire.wait("token", 2, 30.0)
    since = time.monotonic()
    chats["hangup"].hang_up()
    os.kill(chats["term"].process.pid, signal.SIGTERM)
    wire.assert_closed(within=1.0, since=since)
    assert chats["hangup"].exit_code() == 129
    assert chats["term"].exit_code() == 143
    assert chats["term"].is_restored


@pytest.mark.scenario("H79")
def test_ctrl_z_and_fg_work_under_a_shell(home: Path, app: str, wire: WireProbe) -> None:
    from .pty import halter

    (home / ".bashrc").write_text("PS1='$ '\n")
    shell = Terminal(["bash", "--noprofile", "-i"], cwd=home / "work", env={**os.environ})
    try:
        shell.press(f"{' '.join(halter('chat', app))}\r")
        shell.until("pilot · told")
        shell.press("stall(2)\r")
        wire.wait("token", 1, 30.0)
        shell.press("\x1a")
        shell.until("Stopped")
        shell.press("fg\r")
        shell.until("Esc stops")
        shell.press(ESCAPE)
        shell.until("■ stopped after")
        wire.assert_closed()
        shell.press("\x04")
        shell.until(lambda: shell.text.rstrip().endswith("$"), "the shell's prompt")
        shell.press("echo back $?\r")
        shell.until("back 0")
    finally:
        shell.close()


@pytest.mark.scenario("D44")
def test_a_chat_that_was_killed_in_a_turn_goes_on_with_continue(terminal: Open, app: str, wire: WireProbe) -> None:
    chat = terminal("chat", app)
    ready(chat)
    chat.press("steady(3,1)\r")
    chat.until("─ ")
    chat.press("stall(2)\r")
    wire.wait("token", 2, 30.0)
    chat.process.kill()
    chat.process.wait()
    again = terminal("chat", app, "--continue")
    again.until("t0 t1 t2")
    again.until("› stall(2)")
    ready(again)
    again.press("steady(2,1)\r")
    again.until("─ ")
    said = json.loads(wire.requests()[-1].body)["messages"]
    users = [message["content"] for message in said if message["role"] == "user"]
    assert "steady(3,1)" in str(users[0])
    assert "steady(2,1)" in str(users[-1])
    again.press("/sessions\r")
    again.until("/resume N")
    again.press("/undo\r")
    again.until("taken back")
    again.until("› steady(2,1)")
    again.press("\x15\x04")
    assert again.exit_code() == 0


def test_without_a_terminal_it_says_what_to_use_instead(home: Path) -> None:
    from .pty import halter

    ended = subprocess.run(halter("chat"), stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert ended.returncode == 2
    assert b"halter ask" in ended.stderr
