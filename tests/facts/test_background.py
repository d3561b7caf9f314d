"""D46: learning is the runtime's own work: no user's stop touches it, a shutdown ends it, and nothing is half done.

The provider's record is looked at, and what is stored.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from halter import Agent, CancellationToken, CancelMode, CancelReason, Run, runtime
from halter.core.context import RunContext
from halter.facts import Facts
from halter.messages import Message
from halter.models import OpenAIChat
from halter.models.scripted import Scripted
from halter.proof.wire import Wire
from halter.request import ModelRequest
from halter.sessions import Sessions
from halter.testing import Sweep, cancel_sweep
from halter.testing.answers import chat_stream
from halter.testing.wire_probe import WireProbe

from ..bounds import T, assert_within
from ..sessions.troubled import troubled
from .parts import ANN, Kept, changes, learned

pytestmark = [pytest.mark.scenario("D46"), pytest.mark.usefixtures("quiet")]

SOURCE = Path(__file__).parents[2] / "src"
LEARNED = ["Is called Ann.", "Likes tea."]
LEARNS = "replay(learned.sse,3)"
GRACE = 0.3


@pytest.fixture(scope="session")
def wire_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    """A provider that also answers as a model that has learned something."""
    recordings = tmp_path_factory.mktemp("recordings")
    said = chat_stream(list(changes(*LEARNED)))
    (recordings / "learned.sse").write_bytes(said.payload)
    with Wire.start(recordings=recordings) as wire:
        yield wire


def model(url: str) -> OpenAIChat:
    return OpenAIChat("test-model", base_url=url, api_key="sk-test")


@pytest.fixture
def agent(wire: WireProbe) -> Callable[..., Agent[str]]:
    """An agent that answers as `says`, and learns as `learns`, but not before `until` is set."""

    def make(learns: str, says: str = "steady(5,1)", until: asyncio.Event | None = None) -> Agent[str]:
        learner = model(wire.url(learns)) if until is None else Waiting(wire.url(learns), until)
        return Agent(model(wire.url(says)), memory=Facts(learner))

    return make


class Waiting(OpenAIChat):
    """Has its answer no sooner than it may: whatever is done meanwhile, and however long that takes."""

    def __init__(self, url: str, until: asyncio.Event) -> None:
        super().__init__("test-model", base_url=url, api_key="sk-test")
        self._until = until

    async def respond(self, request: ModelRequest, ctx: RunContext) -> Message:
        answer = await super().respond(request, ctx)
        await self._until.wait()
        return answer


async def begun(wire: WireProbe, chats: Sessions, agent: Agent[str]) -> Run[Any]:
    """A turn that has completed, and what learns from it, once its model has begun to answer."""
    await agent.run("I am Ann.", session=chats.session("ann"))
    await wire.awaited("token", 2)
    [learning] = runtime().runs(tag="memory")
    return learning


async def known(chats: Sessions) -> list[str]:
    """By text, the oldest first."""
    return [fact.text for fact in reversed(await chats.facts.list(ANN))]


# --- a user's stop ------------------------------------------------------------------------------------------


async def cancel_the_next_run(chats: Sessions, agent: Agent[str]) -> None:
    run = agent.run("And now?", session=chats.session("ann")).start()
    await asyncio.sleep(0.02)
    run.cancel()
    assert (await run.finished()).is_cancelled


async def kill_the_next_run(chats: Sessions, agent: Agent[str]) -> None:
    run = agent.run("And now?", session=chats.session("ann")).start()
    await asyncio.sleep(0.02)
    run.cancel(mode=CancelMode.KILL)
    assert (await run.finished()).is_cancelled


async def cancel_all_runs(chats: Sessions, agent: Agent[str]) -> None:
    run = agent.run("And now?", session=chats.session("ann")).start()
    assert await runtime().cancel_all(wait=True) == [run.id]


async def cancel_all_of_the_session(chats: Sessions, agent: Agent[str]) -> None:
    run = agent.run("And now?", session=chats.session("ann")).start()
    assert await runtime().cancel_all(session=chats.session("ann"), wait=True) == [run.id]


async def cancel_the_task_that_awaits(chats: Sessions, agent: Agent[str]) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(agent.run("And now?", session=chats.session("ann")), 0.02)


STOPS = (
    cancel_the_next_run,
    kill_the_next_run,
    cancel_all_runs,
    cancel_all_of_the_session,
    cancel_the_task_that_awaits,
)


@pytest.mark.real_loop
@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: stop.__name__)
async def test_what_learns_goes_on_whatever_a_user_stops(
    wire: WireProbe, kept: Kept, agent: Callable[..., Agent[str]], stop: Callable[..., Awaitable[None]]
) -> None:
    is_stopped = asyncio.Event()
    learning = await begun(wire, kept.chats, agent(LEARNS, until=is_stopped))
    await stop(kept.chats, agent(LEARNS, says="stall(1)"))
    assert not learning.is_done
    is_stopped.set()
    assert (await learning.finished()).is_completed
    assert await known(kept.chats) == LEARNED


@pytest.mark.real_loop
async def test_what_learns_goes_on_wherever_it_is_kept(
    wire: WireProbe, chats: Sessions, agent: Callable[..., Agent[str]]
) -> None:
    is_stopped = asyncio.Event()
    learning = await begun(wire, chats, agent(LEARNS, until=is_stopped))
    await cancel_all_runs(chats, agent(LEARNS, says="stall(1)"))
    assert not learning.is_done
    is_stopped.set()
    assert (await learning.finished()).is_completed
    assert await known(chats) == LEARNED


@pytest.mark.real_loop
async def test_the_run_that_is_learned_from_can_be_stopped_no_more(
    wire: WireProbe, kept: Kept, agent: Callable[..., Agent[str]]
) -> None:
    """Its token is governed by somebody, who pulls it after the end; the run was kept in `async with`."""
    token = CancellationToken()
    async with agent(LEARNS).run("hi", session=kept.session("ann"), cancellation=token) as run:
        await run
    await wire.awaited("token", 2)
    token.cancel()
    run.cancel()
    [learning] = await learned()
    assert learning.is_completed
    assert await known(kept.chats) == LEARNED


@pytest.mark.real_loop
async def test_who_wants_to_can_stop_it_by_its_id(
    wire: WireProbe, kept: Kept, agent: Callable[..., Agent[str]]
) -> None:
    learning = await begun(wire, kept.chats, agent("stall(1)"))
    at = time.monotonic()
    assert await runtime().cancel(learning.id, wait=True)
    wire.assert_closed(T, since=at)
    assert await known(kept.chats) == []


# --- the end ------------------------------------------------------------------------------------------------


@pytest.mark.real_loop
async def test_a_shutdown_ends_it_within_the_grace_and_nothing_is_half_done(
    wire: WireProbe, chats: Sessions, agent: Callable[..., Agent[str]]
) -> None:
    await chats.facts.add(ANN, "Has a cat.")
    learning = await begun(wire, chats, agent("stall(1)"))
    at = time.monotonic()
    await runtime().shutdown(grace=GRACE)
    [*_, record] = wire.assert_closed(GRACE + T, since=at)
    assert record.closed_at is not None
    assert record.closed_at - at > GRACE / 2, "it had its time"
    result = await learning.finished()
    assert result.cancellation is not None
    assert result.cancellation.reason is CancelReason.SHUTDOWN
    assert await known(chats) == ["Has a cat."]
    await agent("replay(learned.sse)").run("And now?", session=chats.session("ann"))
    await learned()
    assert await known(chats) == ["Has a cat.", *LEARNED]


@pytest.mark.real_loop
async def test_a_shutdown_lets_it_end_by_itself_within_the_grace(
    wire: WireProbe, kept: Kept, agent: Callable[..., Agent[str]]
) -> None:
    learning = await begun(wire, kept.chats, agent("replay(learned.sse,1)"))
    await runtime().shutdown(grace=10)
    assert (await learning.finished()).is_completed
    assert await known(kept.chats) == LEARNED


# --- the end of a process -----------------------------------------------------------------------------------

PROGRAM = """
    import asyncio, sys, time
    import halter, uvloop
    from halter import Agent
    from halter.facts import Facts
    from halter.models import OpenAIChat
    from halter.sessions import FactScope, Sessions

    says, learns, where, loop, grace = sys.argv[1:]
    halter.configure(grace=float(grace))
    chats = Sessions(where)
    says, learns = (OpenAIChat("test-model", base_url=url, api_key="sk-test") for url in (says, learns))
    agent = Agent(says, memory=Facts(learns))

    async def main():
        print((await agent.run("I am Ann.", session=chats.session("ann"))).text)
        return time.monotonic()

    async def look():
        print(sorted(fact.text for fact in await chats.facts.list(FactScope("session", "ann"))))
        print([run.status.value for run in await chats.runs()])

    run_on = dict(asyncio=asyncio.run, uvloop=uvloop.run)[loop]
    returned = run_on(main())
    print(time.monotonic() - returned)
    run_on(look())
"""


def ran(*arguments: str) -> list[str]:
    """The lines that the program printed; it must have ended well, and said nothing on stderr."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(PROGRAM), *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout.splitlines()


@pytest.fixture
def loop(where: str) -> str:
    """Each once."""
    return "uvloop" if where.endswith(".db") else "asyncio"


def test_the_end_of_a_program_waits_for_what_is_about_to_be_learned(wire: WireProbe, loop: str, where: str) -> None:
    *_, known, runs = ran(wire.url("steady(5,1)"), wire.url("replay(learned.sse,1)"), where, loop, "10")
    assert known == str(sorted(LEARNED))
    assert runs == "['completed']"


@pytest.mark.parametrize("where", ["memory", "sqlite"], indirect=True)
def test_the_end_of_a_program_waits_no_longer_than_the_grace(wire: WireProbe, loop: str, where: str) -> None:
    said, took, known, _ = ran(wire.url("steady(5,1)"), wire.url("stall(1)"), where, loop, str(GRACE))
    assert said == "t0 t1 t2 t3 t4 "
    assert float(took) > GRACE / 2
    assert_within(GRACE + T, float(took))
    assert known == "[]"
    [_, record] = wire.requests()
    assert record.closed_how in ("eof", "reset")


# --- at every step ------------------------------------------------------------------------------------------


def test_it_may_be_stopped_at_any_step_and_has_learned_all_or_nothing() -> None:
    """What was missed is caught up by the next turn, and nothing is known twice."""

    async def embed(texts: list[str]) -> list[list[float]]:
        await asyncio.sleep(0.001)
        return [[1.0, 0.0] for _ in texts]

    async def scenario(sweep: Sweep) -> None:
        chats = troubled(0.001)
        await chats.facts.add(ANN, "Has a cat.")
        learner = Scripted(changes("Is called Ann.", replace=[([1], "Has two cats.")]))
        agent = Agent("scripted:Hello.", memory=Facts(learner, embed=embed))
        await agent.run("I am Ann.", session=chats.session("ann"))
        [learning] = runtime().runs(tag="memory")
        sweep.cancel = learning.cancel
        stopped = await learning.finished()
        known = await looked_at(chats)
        assert known in ((["Has a cat."], 0), (["Has two cats.", "Is called Ann."], 2))
        assert known[1] == 2 or not stopped.is_completed
        await agent.run("And now?", session=chats.session("ann"))
        await learned()
        assert await looked_at(chats) == (["Has two cats.", "Is called Ann."], 4)

    async def looked_at(chats: Sessions) -> tuple[list[str], int]:
        return sorted(await known(chats)), (await chats._store.known("ann")).get(ANN, 0)  # pyright: ignore

    assert cancel_sweep(scenario) > 30
