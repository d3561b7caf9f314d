"""The same chat over a server: text, stops, and a connection that is lost."""

from __future__ import annotations

import pytest

from halter import Agent
from halter.models.openai import OpenAIChat
from halter.models.scripted import Scripted
from halter.testing.wire_probe import WireProbe

from ..server.conftest import Serve
from .conftest import Open

pytestmark = pytest.mark.timeout(240)


@pytest.mark.scenario("H75", "H78")
def test_over_a_server_escape_stops_the_run_there(terminal: Open, serve: Serve, wire: WireProbe) -> None:
    slow = Agent(OpenAIChat("m", base_url=wire.url("steady(10000,5)"), api_key=""), name="slow")
    served = serve([slow, Agent(Scripted("A **red** line."), name="quick")])
    chat = terminal("chat", "--server", served.url, "--agent", "slow")
    chat.until("slow ·")
    for stops in (1, 2):
        chat.press("Count\r")
        chat.until(lambda: "t3 " in chat.text)
        chat.until("t3 ")
        chat.press("\x1b")
        chat.until(lambda stops=stops: chat.everything.count("■ stopped") == stops, "the receipt")  # type: ignore[misc]
        wire.assert_closed()
    chat.press("/sessions\r")
    chat.until("1   ")
    chat.press("/undo\r")
    chat.until("taken back")
    chat.until("› Count")
    chat.press("\x15\x04")
    assert chat.exit_code() == 0

    chat = terminal("chat", "--server", served.url)
    assert chat.exit_code() == 2
    chat.until("with --agent")
