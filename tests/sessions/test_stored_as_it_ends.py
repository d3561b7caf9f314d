"""Each message is stored as it ends: somebody else sees it, over a connection of their own, while the run goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from halter import Agent, CancelMode, Message, RunContext, events, runnable, tool
from halter.core.history import UNFINISHED
from halter.core.owner import Owner
from halter.messages import ToolCall, ToolResult
from halter.models import OpenAIChat
from halter.models.scripted import Scripted, calls
from halter.sessions import RunRecord, Sessions
from halter.sessions.port import Taken

from ..agents.conversations import check_history
from .contract import Open
from .places import memory_store as memory_store
from .places import open_store as open_store
from .talks import answered, asked, record_of, results, stored

pytestmark = [pytest.mark.real_loop, pytest.mark.scenario("D44")]


@pytest.fixture
def place(open_store: Open) -> Callable[[], Sessions]:
    """Each call is somebody else who looks at the same sessions."""
    return lambda: Sessions(open_store())


class Asked(BaseHTTPRequestHandler):
    """A provider that looks into the store before it answers 400."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append(asyncio.run(stored(self.server.place())))  # pyright: ignore
        self.send_response(400)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def provider(place: Callable[[], Sessions]) -> Generator[HTTPServer]:
    server = HTTPServer(("127.0.0.1", 0), Asked)
    server.place, server.seen = place, []  # pyright: ignore
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


async def test_what_the_user_says_is_stored_before_the_provider_sees_it(
    place: Callable[[], Sessions], provider: HTTPServer
) -> None:
    url = f"http://127.0.0.1:{provider.server_port}/v1"
    agent = Agent(OpenAIChat("m", base_url=url, api_key="sk-very-secret", max_retries=0))
    result = await agent.run("hello", session=place().session("s")).finished()
    assert result.is_failed
    assert [asked(seen) for seen in provider.seen] == [["hello"]]  # pyright: ignore
    assert asked(await stored(place())) == ["hello"]


async def test_what_an_answer_calls_is_stored_before_a_tool_begins(place: Callable[[], Sessions]) -> None:
    seen: list[tuple[Message, ...]] = []

    @tool
    async def look() -> str:
        seen.append(await stored(place()))
        return "looked"

    await Agent(Scripted(("I look.", calls("look")), "done"), tools=[look]).run("hello", session=place().session("s"))
    (messages,) = seen
    assert [message.role for message in messages[:2]] == ["user", "assistant"]
    assert [call.name for call in messages[1].tool_calls] == ["look"]


async def test_each_result_is_stored_as_it_ends(place: Callable[[], Sessions]) -> None:
    """While another of the same turn still runs; in the end they are one message, in the order of the calls."""
    go_on = asyncio.Event()

    @tool
    async def wait(name: str) -> str:
        if name == "slow":
            await go_on.wait()
        return name

    three = tuple(calls("wait", name=name) for name in ("slow", "quick", "fast"))
    run = Agent(Scripted(three, "done"), tools=[wait]).run("hello", session=place().session("s")).start()
    other = place()
    async with asyncio.timeout(10):
        while sorted({*results(await stored(other))} - {UNFINISHED}) != ["fast", "quick"]:  # noqa: ASYNC110 - a database tells nobody
            await asyncio.sleep(0.01)
    assert not run.is_done
    assert (await other.get("s")).holder == run.id
    assert (await record_of(other, run)).status == "running"
    go_on.set()
    result = await run
    said = await stored(other)
    assert said == result.messages
    assert [part.content for part in said[2].parts if isinstance(part, ToolResult)] == ["slow", "quick", "fast"]
    assert (await record_of(other, run)).status == "completed"


async def test_an_answer_is_stored_before_the_next_request(place: Callable[[], Sessions]) -> None:
    """And, as the turn's own, before the run has ended."""
    seen: list[list[str]] = []

    @runnable
    async def body(ctx: RunContext) -> None:
        for n in range(3):
            ctx.text(f"answer {n}")
            ctx.close_reply()
            await ctx.committed()
            seen.append(answered(await stored(place())))

    await body.run(session=place().session("s"))
    assert seen == [["answer 0"], ["answer 0", "answer 1"], ["answer 0", "answer 1", "answer 2"]]


async def test_what_is_stored_when_a_run_is_over_is_all_of_it(place: Callable[[], Sessions]) -> None:
    """Whoever has been told of the end finds it stored, and the session free."""
    run = Agent(Scripted("one two three four", pace=0.01)).run("hello", session=place().session("s"))
    said: tuple[Message, ...] = ()
    async for event in run.events():
        if isinstance(event, events.TextDelta):
            run.cancel(mode=CancelMode.IMMEDIATE)
        if event.is_terminal:
            said = await stored(place())
            assert (await place().get("s")).holder is None
    assert run.outcome is not None
    assert said == run.outcome.messages
    assert (await record_of(place(), run)).status == "cancelled"


async def test_what_is_sent_to_a_run_is_stored_where_it_was_heard(place: Callable[[], Sessions]) -> None:
    @tool
    async def look() -> str:
        run.send("and this")
        return "looked"

    run = Agent(Scripted(calls("look"), "done", "again"), tools=[look]).run("hello", session=place().session("s"))
    result = await run
    said = await stored(place())
    assert said == result.messages
    assert [message.role for message in said] == ["user", "assistant", "tool", "user", "assistant"]


@pytest.mark.parametrize("by", ["the first use", "the next turn"])
async def test_a_repair_that_was_cut_short_is_repeated_whole(by: str, open_store: Open) -> None:
    """Its own turn, which was to be rolled back, was lost as well: what it had repaired by then stays repaired."""
    gone = f"{replace(Owner.here(), started=Owner.here().started + 1)}/1"
    store = open_store()
    chats = Sessions(store)
    if by == "the next turn":
        await chats.list()  # else what was lost is ended before that
    first = RunRecord(run_id="first", session_id="s", owner=gone, started_at=1.0)
    taken = await store.take(first, lease_for=60)
    assert isinstance(taken, Taken)
    await store.write(taken.lease, 0, [Message.user("hello"), Message("assistant", (ToolCall("1", "look", "{}"),))])
    second = RunRecord(run_id="second", session_id="s", owner=gone, keep="rollback", started_at=2.0)
    assert isinstance(await store.take(second, lease_for=60), Taken)  # and is gone before it has repaired anything
    result = await Agent(Scripted("no", "yes")).run("next", session=chats.session("s"))
    check_history(result.messages)
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "user", "assistant"]
