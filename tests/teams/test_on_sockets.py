"""Teams on real sockets, by the record of the provider: whoever stops them, wherever they are."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from halter import Agent, CancellationToken, events, tool
from halter.models import OpenAIChat
from halter.teams import Graph, RoundRobin, Selector, Swarm, Team
from halter.terminations import External, MaxMessages, TextMention
from halter.testing.wire_probe import WireProbe

from ..bounds import T, assert_within
from ..stopping.conftest import port_of
from ..stopping.forms import AsyncForm, BlockingForm, after_tokens, forms

STEADY, SILENT = "steady(1000,5)", "stall(1)"
SOURCE = Path(__file__).parents[2] / "src"


def asking(wire: WireProbe, mode: str, name: str, **options: Any) -> Agent:
    return Agent(OpenAIChat("any", base_url=wire.url(mode), api_key="any"), name=name, **options)


def pair(wire: WireProbe, mode: str) -> list[Agent]:
    return [asking(wire, mode, "ann"), asking(wire, mode, "ben")]


def team_of(wire: WireProbe, kind: str, mode: str) -> Team:
    """Four turns, of which the first is never over."""
    ann, ben = pair(wire, mode)
    match kind:
        case "round_robin":
            return RoundRobin([ann, ben], until=MaxMessages(4))
        case "selector":
            chooser = OpenAIChat("any", base_url=wire.url(mode), api_key="any")
            return Selector([ann, ben], choose=chooser, until=MaxMessages(4))
        case "swarm":
            return Swarm([ann, ben])
        case _:
            return Graph([ann, ben], [("ann", "ben")])


KINDS = pytest.mark.parametrize("kind", ["round_robin", "selector", "swarm", "graph"])


@pytest.mark.scenario("A1", "A10")
@KINDS
@pytest.mark.parametrize("form", forms(), ids=repr)
def test_a_stop_closes_the_socket_and_nobody_else_is_asked(
    wire: WireProbe, kind: str, form: AsyncForm | BlockingForm
) -> None:
    """In the first turn, or while somebody is chosen: one request was ever made."""
    team = team_of(wire, kind, STEADY)
    stopped = form.stop(lambda: team.run("count"), after_tokens(4), port_of(wire.url()))
    stopped.assert_real()
    assert len(wire.assert_closed(T, since=stopped.asked)) == 1
    time.sleep(0.05)
    wire.assert_no_requests_after(stopped.asked)


@pytest.mark.scenario("B12")
@KINDS
@pytest.mark.loops
async def test_a_token_that_is_cancelled_in_a_thread_is_heard_on_an_idle_loop(wire: WireProbe, kind: str) -> None:
    """Nobody else wakes the loop."""
    token = CancellationToken()
    run = team_of(wire, kind, SILENT).run("count", cancellation=token).start()
    await wire.awaited("token")
    asked: list[float] = []
    threading.Timer(0.02, lambda: (asked.append(time.monotonic()), token.cancel())).start()
    await run.finished()
    assert_within(T, time.monotonic() - asked[0])
    assert run.is_cancelled
    assert len(wire.assert_closed(T, since=asked[0])) == 1


@pytest.mark.scenario("B20")
@KINDS
@pytest.mark.real_loop("asyncio")
async def test_leaving_the_stream_ends_it_and_makes_no_more_requests(wire: WireProbe, kind: str) -> None:
    """`aclose()`, and an outer scope: neither waits for the turn, or for the turns after it."""
    team = team_of(wire, kind, STEADY)
    run = team.run("count").start()
    await wire.awaited("token")
    asked = time.monotonic()
    await run.aclose()
    assert_within(T, time.monotonic() - asked)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(team.run("count"), 0.1)
    wire.assert_closed(T)
    assert len(wire.requests()) <= 2


@pytest.mark.scenario("C27", "D39")
@pytest.mark.loops
async def test_a_stop_in_a_tool_call_leaves_a_team_that_works(wire: WireProbe) -> None:
    """The call is a real one of a real stream; the same object runs again at once."""
    began = asyncio.Event()

    @tool
    async def look() -> str:
        began.set()
        await asyncio.sleep(30)
        return "never"

    caller = asking(wire, "tool-call(look)", "ann", tools=[look])
    team = RoundRobin([caller, asking(wire, "steady(3,1)", "ben")], until=MaxMessages(2))
    for _ in range(2):
        began.clear()
        run = team.run("go").start()
        await asyncio.wait_for(began.wait(), 5)
        asked = time.monotonic()
        run.cancel()
        result = await run.finished()
        assert_within(T, time.monotonic() - asked)
        assert [message.role for message in result.messages] == ["user", "assistant", "tool"]
    assert len(wire.requests()) == 2


@pytest.mark.scenario("D39", "E51")
@pytest.mark.real_loop("asyncio")
async def test_one_object_twenty_times_at_once_on_sockets(wire: WireProbe) -> None:
    """Each hears its own words; those that are stopped take nothing from the others."""
    mode = "echo(6,5)"
    team = RoundRobin(pair(wire, mode), until=MaxMessages(2))
    runs = [team.run(f"[{number}]").start() for number in range(20)]
    await wire.awaited("token", 20, 10)
    for run in runs[::2]:
        run.cancel()
    results = [await run.finished() for run in runs]
    for number, result in enumerate(results):
        assert all(f"[{number}]" in message.text for message in result.messages if message.text)
        assert result.is_completed or number % 2 == 0
    assert [len(result.messages) for result in results[1::2]] == [3] * 10


@pytest.mark.scenario("A1")
@pytest.mark.loops
async def test_words_that_end_the_team_close_the_socket_they_came_from(wire: WireProbe) -> None:
    """In the middle of the answer; the team has completed."""
    team = RoundRobin(pair(wire, STEADY), until=TextMention("t20 "))
    run = team.run("count")
    result = await run
    done = time.monotonic()
    assert result.is_completed
    assert "t20 " in result.text
    assert len(result.text.split()) < 60
    (record,) = wire.assert_closed(T, since=done)
    assert record.tokens_sent < 100
    assert [event.type async for event in run.events()][-1] == "run.completed"


@pytest.mark.scenario("A1")
@pytest.mark.real_loop("asyncio")
async def test_told_from_a_thread_the_team_completes_while_the_provider_is_silent(wire: WireProbe) -> None:
    enough = External()
    run = RoundRobin(pair(wire, SILENT), until=enough).run("count").start()
    await wire.awaited("token")
    threading.Thread(target=enough.set).start()
    told = time.monotonic()
    result = await run
    assert_within(T, time.monotonic() - told)
    assert (result.is_completed, result.text) == (True, "t0 ")
    wire.assert_closed(T, since=told)


@pytest.mark.scenario("A1", "C34")
@pytest.mark.real_loop("asyncio")
async def test_all_branches_of_a_graph_are_closed(wire: WireProbe) -> None:
    graph = Graph([*pair(wire, STEADY), asking(wire, STEADY, "zoe")], [("ann", "zoe"), ("ben", "zoe")])
    run = graph.run("count").start()
    await wire.awaited("token", 2)
    asked = time.monotonic()
    run.cancel()
    result = await run.finished()
    assert len(wire.assert_closed(T, since=asked)) == 2
    assert result.receipt is not None
    assert [line.kind for line in result.receipt.resources].count("socket") == 2
    started = {event.name async for event in run.events() if isinstance(event, events.Started)}
    assert "zoe" not in started


# --- a signal, in a process of its own ----------------------------------------------------------------------

PROGRAM = """
import asyncio, signal, sys
from halter import Agent, CancellationToken
from halter.models import OpenAIChat
from halter.teams import RoundRobin
from halter.terminations import MaxMessages

members = [Agent(OpenAIChat("any", base_url=sys.argv[1], api_key="any"), name=name) for name in ("ann", "ben")]
team = RoundRobin(members, until=MaxMessages(4))


async def main():
    token = CancellationToken()
    before = signal.signal(signal.SIGINT, lambda *_: token.cancel("Ctrl-C"))
    try:
        async with team.run("count", cancellation=token) as run:
            async for text in run.text_stream():
                print(text, end="", flush=True)
    finally:
        signal.signal(signal.SIGINT, before)
    assert signal.getsignal(signal.SIGINT) is before
    result = run.outcome
    print("|", result.status, result.cancellation, result.state.turns, result.receipt.confirmed)
    again = team.run("count").start()
    await again.aclose()
    return 130


if len(sys.argv) > 2:
    import uvloop
    sys.exit(uvloop.run(main()))
sys.exit(asyncio.run(main()))
"""


@pytest.mark.scenario("B13", "J91")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_plain_signal_handler_that_cancels_a_token_stops_the_stream_at_once(wire: WireProbe, loop: str) -> None:
    """A real SIGINT: nothing is drained, nothing is said on stderr, and the program's own exit code is 130."""
    program = subprocess.Popen(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            textwrap.dedent(PROGRAM),
            wire.url("steady(2000,5)"),
            *(["uvloop"] if loop == "uvloop" else []),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        start_new_session=True,
    )
    killer = threading.Timer(20, program.kill)
    killer.start()
    try:
        wire.wait("token", timeout=15)
        assert program.stdout is not None
        assert program.stdout.read(3) == "t0 "
        asked = time.monotonic()
        program.send_signal(signal.SIGINT)
        printed, errors = program.communicate()
    finally:
        killer.cancel()
        killer.join()
        program.kill()
        program.wait()
    assert (program.returncode, errors) == (130, "")
    shown, _, ended = printed.partition("|")
    assert ended == " cancelled user_stop (Ctrl-C) () True\n"
    first = wire.requests()[0]
    assert first.closed_at is not None
    assert_within(T, first.closed_at - asked, "the provider's close")
    assert first.closed_how in ("eof", "reset")
    assert len(shown.split()) <= first.tokens_sent < 2000
