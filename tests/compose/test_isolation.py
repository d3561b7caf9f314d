"""The runs of one composition are each other's strangers, and their streams are their own."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from halter import Agent, Message, Run, events, runtime
from halter.core.context import RunContext
from halter.core.home import LIVE
from halter.models.scripted import Scripted

from .kinds import KINDS, PAIRS, SOME_TRIPLES, Kind, each
from .parts import log_of

virtual = pytest.mark.virtual_time


class Echo:
    """A model that says what it was asked, word by word."""

    name = "echo"

    async def respond(self, request: Any, ctx: RunContext) -> Message:
        reply = ctx.reply()
        for word in request.messages[-1].text.split(" "):
            await asyncio.sleep(0)
            reply.text(f"{word} ")
        return reply.finish()


def echo(name: str) -> Agent:
    return Agent(Echo(), name=name)


def paced(name: str) -> Agent:
    """Each at a pace of its own, by its place: of what comes in the same instant, the order would be open."""
    place = sum(2**depth for depth, step in enumerate(name.split(".")) if step == "b")
    return Agent(Scripted("one two", "three four", pace=1 + 0.0137 * place), name=name)


async def check_own(run: Run[Any], marker: str) -> None:
    """The log is dense, holds this tree's runs and no other, and no marker but its own."""
    log = [event async for event in run]
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    assert {event.root_id for event in log} == {run.id}
    started = {event.run_id for event in log if isinstance(event, events.Started)}
    assert {event.run_id for event in log} == started
    said = "".join(event.text for event in log if isinstance(event, events.TextDelta))
    assert marker in said
    assert said.count("<") == said.count(marker)


def story(log: list[events.Event]) -> list[Any]:
    """What happened, without ids and times."""
    return [(event.seq, event.type, getattr(event, "agent", None), getattr(event, "text", None)) for event in log]


@pytest.mark.scenario("E51", "D39")
@each([*KINDS, *SOME_TRIPLES])
@virtual
async def test_fifty_runs_at_once_of_one_object_each_get_their_own_events(kind: Kind) -> None:
    """Nothing foreign, nothing missing."""
    whole = kind.make(echo)
    markers = [f"<run{number}>" for number in range(50)]
    await asyncio.gather(*(check_own(whole.run(f"say {marker}"), marker) for marker in markers))
    assert not LIVE


@pytest.mark.scenario("E51", "E53")
@each([*KINDS, *SOME_TRIPLES])
def test_one_object_on_loops_in_four_threads_keeps_them_apart(kind: Kind) -> None:
    """And on the background loop meanwhile."""
    whole, failed = kind.make(echo), []

    async def main(thread: int) -> None:
        markers = [f"<{thread}.{number}>" for number in range(5)]
        await asyncio.gather(*(check_own(whole.run(f"say {marker}"), marker) for marker in markers))

    def work(thread: int) -> None:
        try:
            asyncio.run(main(thread))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    assert "<blocking>" in str(whole.run("say <blocking>").result(5).output)
    for thread in threads:
        thread.join(20)
    assert failed == []


@pytest.mark.scenario("D39")
@each([*KINDS, *SOME_TRIPLES])
@virtual
async def test_run_again_after_a_stop_and_twenty_at_once_it_does_what_a_fresh_one_does(kind: Kind) -> None:
    """The same events in the same order."""

    async def tale(whole: Any) -> list[Any]:
        return story(await log_of(whole.run("go").start()))

    fresh, used = await tale(kind.make(paced)), kind.make(paced)
    assert await tale(used) == fresh
    stopped = used.run("go").start()
    await asyncio.sleep(1.5)
    await stopped.aclose()
    assert await tale(used) == fresh
    assert await asyncio.gather(*(tale(used) for _ in range(20))) == [fresh] * 20


@pytest.mark.scenario("E53")
@each([*KINDS, *SOME_TRIPLES])
@virtual
async def test_stopping_one_run_changes_nothing_in_another(kind: Kind) -> None:
    """Event by event, as if it had been alone."""
    whole = kind.make(paced)
    alone = story(await log_of(whole.run("go").start()))
    victim, other = whole.run("go").start(), whole.run("go").start()
    await asyncio.sleep(1.5)
    victim.cancel()
    assert story(await log_of(other)) == alone
    assert victim.is_cancelled


@pytest.mark.scenario("E54")
@each([*KINDS, *PAIRS])
@virtual
async def test_the_roots_stream_has_every_event_once_and_a_parts_has_its_own_alone(kind: Kind) -> None:
    """Each with its parent's id and its own name; a sibling's are not seen."""
    run = kind.make(paced).run("go").start()
    await asyncio.sleep(0.5)
    parts = {found.id: found for found in runtime().runs() if found.id != run.id}
    views = {id: [event async for event in part.events()] for id, part in parts.items()}
    log = await log_of(run)
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    parent_of = {event.run_id: event.parent_id for event in log}
    names = {event.run_id: event.name for event in log if isinstance(event, events.Started)}
    assert parent_of.pop(run.id) is None
    assert set(parent_of.values()) <= set(names)
    for event in log:
        if isinstance(event, events.AgentEvent):
            assert event.agent == names[event.run_id]
    for id, seen in views.items():
        family = {id}
        for run_id, parent_id in parent_of.items():
            if parent_id in family:
                family.add(run_id)
        assert [event.seq for event in seen] == [event.seq for event in log if event.run_id in family]


@pytest.mark.scenario("E55")
@each([*KINDS, *SOME_TRIPLES])
@virtual
async def test_each_reader_gets_all_of_it_and_a_late_one_too(kind: Kind) -> None:
    """A slow one delays nobody."""
    run = kind.make(paced).run("go").start()
    alone = asyncio.get_running_loop().time()

    async def slowly() -> list[events.Event]:
        seen = []
        async for event in run.events():
            seen.append(event)
            await asyncio.sleep(10)
        return seen

    async def quickly() -> tuple[list[events.Event], float]:
        return await log_of(run), asyncio.get_running_loop().time() - alone

    slow, (quick, took) = await asyncio.gather(slowly(), quickly())
    assert slow == quick == await log_of(run)
    assert took < 20


@pytest.mark.scenario("E56")
@each(KINDS)
@pytest.mark.real_loop("asyncio")
async def test_an_observer_that_fails_breaks_nothing(kind: Kind, caplog: pytest.LogCaptureFixture) -> None:
    def raises(event: events.Event) -> None:
        raise LookupError("an observer's own")

    with runtime().observe(raises):
        assert "<mine>" in str((await kind.make(echo).run("say <mine>")).output)
