"""Compaction of conversations that are kept: what is stored, what the next run is told, and D45 on the stored bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from halter import Agent, events
from halter.compaction import Compaction
from halter.compaction.plan import HEADING
from halter.compaction.shape import is_summary
from halter.core.ports import HttpRequest
from halter.errors import ContextTooLong
from halter.messages import Message, ToolResult
from halter.models.prices import context_window
from halter.sessions import Sessions
from halter.testing import Answer, MemorySource
from halter.testing.memory import chat_stream, cut, error_status, stalled

from ..agents.conversations import bodies_of, check_bodies, check_history
from ..agents.loops import in_real_time
from ..sessions.talks import until
from ..sessions.troubled import Troubled, delayed, troubled
from .asking import (
    ASKED,
    HISTORY,
    SUMMARY,
    WINDOW,
    agent,
    finished,
    is_for_a_summary,
    log_of,
    model,
    said_in,
    summarising,
    summary,
    too_long,
)
from .talk import calling, long_talk, returned

Chats = Callable[[], Sessions]


@pytest.fixture(params=["memory", "sqlite"])
def chats(request: pytest.FixtureRequest, tmp_path: Path) -> Chats:
    """Makes sessions, within the loop that uses them."""
    return lambda: Sessions("memory" if request.param == "memory" else tmp_path / "chat.db")


async def kept(chats: Sessions, history: list[Message] = HISTORY) -> None:
    await chats.create("s", messages=history)


async def stored(chats: Sessions) -> bytes:
    return msgspec.json.encode(await chats.history("s", full=True))


@pytest.mark.virtual_time
async def test_a_compaction_is_stored_behind_what_it_stands_for() -> None:
    """However slow the place is: killed in between, it would stand for words that nobody has."""
    done: list[str] = []

    async def look() -> None:
        done.extend(store.done)

    store: Any = Troubled(write=delayed(1.0), compact=look)
    chats = Sessions(store)
    await kept(chats)
    await agent(MemorySource(summary(), chat_stream("So it is."))).run(ASKED, session=chats.session("s"))
    assert "write" in done


@pytest.mark.virtual_time
async def test_a_stop_does_not_cut_short_how_a_compaction_is_stored() -> None:
    """Nothing is half done in the place; what it came to, it came to."""
    ended: list[str] = []

    async def stopped_meanwhile() -> None:
        run.cancel("enough")
        try:
            await asyncio.sleep(1)
            ended.append("whole")
        except asyncio.CancelledError:
            ended.append("cut short")
            raise

    chats = troubled(compact=stopped_meanwhile)
    await kept(chats)
    run = agent(MemorySource(summary())).run(ASKED, session=chats.session("s"))
    assert (await run.finished()).is_cancelled
    await until(lambda: ended)
    assert ended == ["whole"]


@in_real_time
async def test_the_next_run_is_told_the_summary_and_the_whole_is_still_there(chats: Chats) -> None:
    """Compacted once; what was said can be read as it was."""
    async with chats() as kept_here:
        await kept(kept_here)
        source = MemorySource(summary(), chat_stream("So it is."), chat_stream("Again."))
        compacting = agent(source)
        await compacting.run(ASKED, session=kept_here.session("s"))
        result = await compacting.run("And then?", session=kept_here.session("s"))
        assert result.text == "Again."
        first, second, third = source.requests
        assert is_for_a_summary(first)
        # With what the user said next, in one message: roles alternate.
        assert said_in(second)[0].startswith(f"{HEADING}\n\n{SUMMARY}\n\n")
        assert said_in(third) == [*said_in(second), "So it is.", "And then?"]
        whole = await kept_here.history("s", full=True)
        assert list(whole[: len(HISTORY)]) == HISTORY
        assert not any(map(is_summary, whole))
        short = await kept_here.history("s")
        assert is_summary(short[0])
        assert short[1:] == whole[-len(short) + 1 :]
        check_history(whole)
        check_history(short)


@in_real_time
async def test_runs_on_a_session_compact_without_being_told_to(chats: Chats) -> None:
    """By the window of their model, if that is known; not with `compaction=None`."""
    window = context_window("openai:gpt-4")
    assert window == 8_192
    async with chats() as kept_here:
        await kept(kept_here, long_talk(16))
        source = summarising(chat_stream("Never."), chat_stream("So it is."))
        never = Agent(model(source, "gpt-4"), compaction=None)
        assert (await never.run(ASKED, session=kept_here.session("s"))).text == "Never."
        run = Agent(model(source, "gpt-4")).run("And then?", session=kept_here.session("s"))
        assert (await run).text == "So it is."
        assert finished(await log_of(run)).outcome == "ok"


@in_real_time
async def test_what_was_trimmed_once_may_be_summarised_later(chats: Chats) -> None:
    """A compaction of what a compaction has left, in another run: nothing is said twice, nothing is lost."""
    looked = [calling("c1"), returned("c1", text="sand " * 2_000), Message.assistant("Seen.")]
    history = [*HISTORY[:10], Message.user("look"), *looked, *HISTORY[10:14]]
    async with chats() as kept_here:
        await kept(kept_here, history)
        source = summarising(chat_stream("One."), chat_stream("Two."))
        compaction = Compaction(window=6_400, threshold=0.7, target=0.68)
        first = agent(source, compaction).run("One?", session=kept_here.session("s"))
        assert (await first).text == "One."
        trimming = finished(await log_of(first))
        assert (trimming.outcome, trimming.trimmed, trimming.summary) == ("ok", 1, None)
        smaller = Compaction(window=4_600, target=0.7)
        second = agent(source, smaller).run("Two?", session=kept_here.session("s"))
        assert (await second).text == "Two."
        summarising_it = finished(await log_of(second))
        assert summarising_it.summary == SUMMARY
        assert trimming.upto is not None
        assert summarising_it.upto is not None
        assert summarising_it.upto < trimming.upto, "it is cut inside what the first has left"
        told = await kept_here.history("s")
        assert sum(map(is_summary, told)) == 1
        whole = await kept_here.history("s", full=True)
        assert list(whole[: len(history)]) == history
        assert [message.text for message in whole[len(history) :]] == ["One?", "One.", "Two?", "Two."]
        (result,) = (part for message in told for part in message.parts if isinstance(part, ToolResult))
        assert len(result.content) <= 2_000, "it is still trimmed"
        kept_texts = [message.text for message in told[1:]]
        assert kept_texts == [message.text for message in whole][-len(kept_texts) :]
        check_bodies(bodies_of(told), len([part for message in told for part in message.tool_calls]))


@pytest.mark.scenario("D45")
@pytest.mark.parametrize("keep", ["partial", "rollback"])
@in_real_time
async def test_stopped_in_a_summary_the_stored_history_is_byte_for_byte_what_it_was(chats: Chats, keep: str) -> None:
    """And the next turn completes, with a compaction of its own."""
    async with chats() as kept_here:
        await kept(kept_here)
        before = await stored(kept_here)
        source = MemorySource(stalled(3, every=0.0), summary(), chat_stream("So it is."))
        compacting = agent(source)
        run = compacting.run(ASKED, session=kept_here.session("s"), keep=keep, grace=1)
        async for event in run.events():
            if isinstance(event, events.TextDelta):
                run.cancel("enough")
        assert (await run.finished()).is_cancelled
        assert source.open_requests == []
        after = await stored(kept_here)
        assert after == before if keep == "rollback" else after.startswith(before[:-1])
        assert not any(map(is_summary, await kept_here.history("s")))
        assert (await compacting.run("Go on.", session=kept_here.session("s"))).text == "So it is."
        whole = await kept_here.history("s", full=True)
        assert list(whole[: len(HISTORY)]) == HISTORY
        check_history(whole)


@pytest.mark.scenario("D45")
@pytest.mark.parametrize(
    "broken", [error_status(500), cut(3, every=0.0), chat_stream("They", finish="length")], ids=["500", "cut", "length"]
)
@in_real_time
async def test_a_summary_that_broke_is_not_stored(chats: Chats, broken: Any) -> None:
    """The history is the old one, byte for byte, and the new turn behind it."""
    async with chats() as kept_here:
        await kept(kept_here)
        before = await stored(kept_here)
        theirs = MemorySource(broken)
        small = model(theirs, max_retries=0)
        source = MemorySource(chat_stream("So it is."))
        compaction = Compaction(small, window=WINDOW)
        run = agent(source, compaction).run(ASKED, session=kept_here.session("s"))
        assert (await run).text == "So it is."
        assert finished(await log_of(run)).outcome == "failed"
        after = await kept_here.history("s", full=True)
        assert (await stored(kept_here)).startswith(before[:-1])
        assert await kept_here.history("s") == after
        assert [message.text for message in after[len(HISTORY) :]] == [ASKED, "So it is."]


@in_real_time
async def test_a_run_that_is_rolled_back_takes_its_compaction_with_it(chats: Chats) -> None:
    """The summary may speak of what was never said."""
    async with chats() as kept_here:
        await kept(kept_here)
        before = await stored(kept_here)
        source = MemorySource(summary(every=0.0), stalled(3, every=0.0))
        run = agent(source).run(ASKED, session=kept_here.session("s"), keep="rollback", grace=1)
        async for event in run.events():
            if isinstance(event, events.TextDelta) and event.run_id == run.id:
                run.cancel("enough")
        assert finished(await log_of(run)).outcome == "ok"
        assert await stored(kept_here) == before
        assert msgspec.json.encode(await kept_here.history("s")) == before


@in_real_time
async def test_after_an_input_that_no_request_can_hold_the_session_goes_on(chats: Chats) -> None:
    """It fails its own run; the next one has a summary of it, and not the same refusal."""
    async with chats() as kept_here:
        await kept(kept_here)

        def answer(request: HttpRequest) -> Answer:
            if b"<conversation>" in request.body:
                return summary()
            return too_long() if b"far too much" in request.body else chat_stream("As you like.")

        asked = Agent(model(MemorySource(answer, repeat=True)))
        failed = await asked.run("far too much " * 10_000, session=kept_here.session("s")).finished()
        assert isinstance(failed.error, ContextTooLong)
        assert (await asked.run("Never mind.", session=kept_here.session("s"))).text == "As you like."
        assert [message.text[:12] for message in (await kept_here.history("s", full=True))[len(HISTORY) :]] == [
            "far too much",
            "Never mind.",
            "As you like.",
        ]
