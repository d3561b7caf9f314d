"""D40, D41, D42, D50: a turn on a stored session is stopped, and what the provider is asked in the next one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from halter import Agent, events
from halter.core.history import MARKER, MAY_HAVE_RUN, NOT_RUN
from halter.sessions import Sessions
from halter.testing.wire_probe import WireProbe

from ..agents.conversations import CHECKS, check_history
from ..agents.test_the_next_turn import FORMATS, NEXT, PROMPT, Hesitant, check_by_sdk_of, check_told, look
from ..stopping.adapters import ADAPTERS, Adapter
from .contract import Open
from .talks import check_agrees, results, stored, until

pytestmark = [pytest.mark.real_loop, pytest.mark.scenario("D40", "D41", "D42", "D50")]
CALLS = 'tool-call(look, {"city": "Kyoto"})'


@pytest.fixture
def chats(sqlite_store: Open) -> Sessions:
    """Written and read back; the contract of the stores has the rest."""
    return Sessions(sqlite_store())


@pytest.fixture(params=ADAPTERS, ids=lambda adapter: adapter.name)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    return request.param


async def asked_next(adapter: Adapter, wire: WireProbe, chats: Sessions) -> dict[str, Any]:
    """The body of the next request on the session, as the provider has read it."""
    agent = Agent(adapter.model(wire.url("steady(3,1)")), tools=[look])
    before = await stored(chats)
    result = await agent.run(NEXT, session=chats.session("s"))
    assert (await stored(chats)) == result.messages
    assert result.messages[: len(before)] == before
    return json.loads(wire.requests()[-1].body)


async def stopped_at(chats: Sessions, agent: Agent[Any], moment: type[events.Event], times: int = 1) -> None:
    """The session's run, stopped when so many such events were seen."""
    async with agent.run(PROMPT, session=chats.session("s"), grace=1) as run:
        async for event in run.events():
            times -= isinstance(event, moment)
            if times == 0:
                run.cancel("enough")
                times = -1
        await run.finished()
    await check_agrees(chats, run)


async def test_what_was_said_before_the_stop_is_told(adapter: Adapter, wire: WireProbe, chats: Sessions) -> None:
    await stopped_at(chats, Agent(adapter.model(wire.url("steady(200,2)"))), events.TextDelta, 5)
    said = await stored(chats)
    assert [(message.role, message.interrupted) for message in said] == [("user", False), ("assistant", True)]
    assert said[1].text.startswith("t0 t1 t2 ")
    body = await asked_next(adapter, wire, chats)
    check_told(adapter, body, [])
    assert json.dumps(said[1].text.strip())[1:-1] in json.dumps(body)


async def test_a_call_that_was_stopped_while_it_ran(adapter: Adapter, wire: WireProbe, chats: Sessions) -> None:
    await stopped_at(chats, Agent(adapter.model(wire.url(CALLS)), tools=[look]), events.ToolStarted)
    said = await stored(chats)
    check_history(said)
    assert results(said) == [MAY_HAVE_RUN]
    check_told(adapter, await asked_next(adapter, wire, chats), [MAY_HAVE_RUN])


async def test_a_call_that_was_stopped_before_it_began(adapter: Adapter, wire: WireProbe, chats: Sessions) -> None:
    agent = Agent(adapter.model(wire.url(CALLS)), tools=[look], hooks=Hesitant())
    await stopped_at(chats, agent, events.ToolCalled)
    said = await stored(chats)
    check_history(said)
    assert results(said) == [NOT_RUN]
    check_told(adapter, await asked_next(adapter, wire, chats), [NOT_RUN])


async def test_a_plain_second_turn_has_the_first_answer(adapter: Adapter, wire: WireProbe, chats: Sessions) -> None:
    agent = Agent(adapter.model(wire.url("steady(3,1)")))
    first = await agent.run(PROMPT, session=chats.session("s"))
    body = await asked_next(adapter, wire, chats)
    name = FORMATS.get(adapter.name, adapter.name)
    assert CHECKS[name](body) == []
    check_by_sdk_of(name, body)
    written = json.dumps(body)
    assert written.index(PROMPT) < written.index(first.text.strip()) < written.index(NEXT)
    assert MARKER not in written


async def test_a_turn_that_was_rolled_back_was_never_there(adapter: Adapter, wire: WireProbe, chats: Sessions) -> None:
    agent = Agent(adapter.model(wire.url("steady(200,2)")))
    run = agent.run(PROMPT, session=chats.session("s"), keep="rollback").start()
    await until(lambda: len(run.text) > 6)
    run.cancel()
    await run.finished()
    written = json.dumps(await asked_next(adapter, wire, chats))
    assert PROMPT not in written
    assert MARKER not in written
    assert "t0 t1" not in written.partition(NEXT)[0]
