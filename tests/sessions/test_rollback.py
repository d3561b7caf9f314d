"""D43: `keep="rollback"`: a turn that does not complete was never there, byte for byte."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from halter import Agent, CancelMode, Message, Run, RunContext, tool
from halter.models.scripted import Answer, Scripted, calls
from halter.request import ModelRequest
from halter.sessions import Sessions

from .places import memory_store as memory_store
from .places import open_store as open_store
from .talks import PACE, WORDS, asked, check_agrees, exported, stored, talker, until
from .talks import chats as chats

pytestmark = [pytest.mark.real_loop, pytest.mark.scenario("D43")]


class Broken(Scripted):
    """Breaks when it has said its words."""

    async def respond(self, request: ModelRequest, ctx: RunContext) -> Message:
        await super().respond(request, ctx)
        raise RuntimeError("it broke")


@tool
async def work() -> str:
    """Takes a while."""
    await asyncio.sleep(10)
    return "worked"


ROLLBACK: dict[str, Any] = {"keep": "rollback", "grace": 0.5}


def speaks(chats: Sessions, **options: Any) -> Run[Any]:
    return talker(WORDS * 30).run("hello", session=chats.session("s"), **ROLLBACK, **options)


def works(chats: Sessions) -> Run[Any]:
    agent = Agent(Scripted("x", calls("work"), pace=0.001), tools=[work])
    return agent.run("hello", session=chats.session("s"), **ROLLBACK)


async def _stopped(run: Run[Any], mode: CancelMode = CancelMode.IMMEDIATE) -> None:
    run.start()
    await until(lambda: len(run.text) > 8)
    run.cancel(mode=mode)


async def _stopped_at_its_tool(run: Run[Any]) -> None:
    run.start()
    await until(lambda: any(call.began_at for call in run._execution.calls))
    run.cancel()


async def by_a_stop(chats: Sessions) -> Run[Any]:
    run = speaks(chats)
    await _stopped(run)
    return run


async def by_a_kill(chats: Sessions) -> Run[Any]:
    run = speaks(chats)
    await _stopped(run, CancelMode.KILL)
    return run


async def by_its_timeout(chats: Sessions) -> Run[Any]:
    """In its turn: on a busy machine that may begin later."""
    for timeout in (0.1, 1.0, 4.0):
        run = speaks(chats, timeout=timeout).start()
        if (await run.finished()).messages:
            break
    return run


async def by_a_failure(chats: Sessions) -> Run[Any]:
    agent = Agent(Broken("some words", pace=0.001))
    return agent.run("hello", session=chats.session("s"), **ROLLBACK).start()


async def during_a_tool(chats: Sessions) -> Run[Any]:
    run = works(chats)
    await _stopped_at_its_tool(run)
    return run


async def by_an_interruption(chats: Sessions) -> Run[Any]:
    run = speaks(chats).start()
    await until(lambda: len(run.text) > 8)
    other = talker("x", pace=0).run("other", session=chats.session("s"), on_busy="interrupt")
    other.start()
    other.cancel()
    run.cancel()
    await other.finished()
    return run


WAYS = [by_a_stop, by_a_kill, by_its_timeout, by_a_failure, during_a_tool, by_an_interruption]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_it_was_never_there(way: Any, chats: Sessions) -> None:
    if way is during_a_tool:  # a script counts the answers before its own
        before = (Message.user("before"), Message.assistant("Yes."))
    else:
        before = (Message.user("before"), Message("assistant", Message.assistant("Yes.").parts, interrupted=True))
    await chats.create("s", messages=before, title="kept", metadata={"a": 1})
    was = json.dumps(await exported(chats), default=repr)
    run = await way(chats)
    result = await run.finished()
    assert not result.is_completed
    now = json.dumps(await exported(chats), default=repr)
    assert now == was
    assert result.messages == before == await stored(chats)
    await check_agrees(chats, run)
    assert (await chats.get("s")).holder is None


@pytest.mark.virtual_time
async def test_a_turn_that_completes_stays() -> None:
    chats = Sessions()
    result = await talker("yes").run("hello", session=chats.session("s"), keep="rollback")
    assert await stored(chats) == result.messages
    assert asked(result.messages) == ["hello"]


@pytest.mark.virtual_time
async def test_the_first_turn_of_a_session_rolled_back_leaves_it_empty() -> None:
    chats = Sessions()
    run = await by_a_stop(chats)
    await run.finished()
    assert await stored(chats) == ()
    assert (await chats.get("s")).title == ""


@pytest.mark.virtual_time
@pytest.mark.parametrize("answers", [(WORDS,), ("x", calls("work"))], ids=["words", "a call"])
async def test_without_a_session_the_result_has_what_was_there_before(answers: tuple[Answer, ...]) -> None:
    history = (Message.user("before"), Message.assistant("Yes."))
    agent = Agent(Scripted(*answers, pace=PACE), tools=[work])
    run = agent.run("hello", history=history, keep="rollback").start()
    await asyncio.sleep(0.1)
    run.cancel()
    result = await run.finished()
    assert result.is_cancelled
    assert result.messages == history
