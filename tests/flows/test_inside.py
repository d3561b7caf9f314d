"""What a flow may hold, on real sockets and in a real process: crews, teams, flows; the provider's record tells."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from halter import Agent, Run, events
from halter.core.runnable import Runnable
from halter.crews import Crew, Member, Task
from halter.flows import Flow, and_, listen, start
from halter.models import OpenAIChat
from halter.models.scripted import Scripted
from halter.teams import RoundRobin
from halter.terminations import MaxMessages
from halter.testing.wire_probe import WireProbe

from ..bounds import T
from ..compose.parts import log_of, speaker
from ..core.conftest import check_log as check_log
from ..stopping.conftest import port_of
from ..stopping.forms import AsyncForm, BlockingForm, after_tokens, forms
from ..system.conftest import Script

virtual = pytest.mark.virtual_time


class Two(Flow):
    """The first, and when it is through, the second."""

    def __init__(self, first: Runnable[Any], second: Runnable[Any]) -> None:
        self.first = first
        self.second = second

    @start()
    async def one(self) -> Any:
        return (await self.first.run("go")).output

    @listen(one)
    async def two(self) -> Any:
        return (await self.second.run("go")).output


class Both(Flow):
    """Two crews at once."""

    def __init__(self, first: Runnable[Any], second: Runnable[Any]) -> None:
        self.first = first
        self.second = second

    @start()
    async def one(self) -> None:
        await self.first.run("rivers")

    @start()
    async def two(self) -> None:
        await self.second.run("rivers")

    @listen(and_(one, two))
    async def never(self) -> None:
        await self.second.run("rivers")


def crew(model: Any, *names: str) -> Crew:
    """A task for each name, done by a member of that name."""
    members = [Member(model, role=name, goal="write", name=name) for name in names]
    return Crew(
        [Task(description="Write on {topic}.", name=f"task {member.name}", agent=member) for member in members],
        name="crew",
    )


KINDS = {
    "crew": lambda model: crew(model, "ann", "bob"),
    "team": lambda model: RoundRobin([Agent(model, name="ann"), Agent(model, name="bob")], until=MaxMessages(3)),
    "flow": lambda model: Two(Agent(model, name="ann"), Agent(model, name="bob")),
    "crew in flow": lambda model: Two(crew(model, "ann"), Agent(model, name="bob")),
}


@pytest.mark.scenario("A1", "A10", "C34")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", forms(), ids=repr)
def test_a_stop_closes_the_innermost_socket_and_no_next_step_begins(
    wire: WireProbe, kind: str, form: AsyncForm | BlockingForm
) -> None:
    model = OpenAIChat("any", base_url=wire.url("steady(1000,5)"), api_key="any")
    inner = KINDS[kind](model)
    stopped = form.stop(lambda: Two(inner, inner).run("go"), after_tokens(4), port_of(wire.url()))
    stopped.assert_real()
    assert len(wire.assert_closed(T, since=stopped.asked)) == 1
    time.sleep(0.05)
    wire.assert_no_requests_after(stopped.asked)
    assert stopped.result.text.startswith("t0 t1 t2 t3 ")
    assert stopped.result.messages[-1].text == stopped.result.text
    assert stopped.result.messages[-1].interrupted
    assert (stopped.result.state.done, stopped.result.state.pending[0].step) == ((), "one")


@pytest.mark.scenario("E54")
@virtual
async def test_a_flow_with_crews_inside_is_one_stream_with_every_chunk_attributed(check_log: Any) -> None:
    """Two crews at once, of two tasks each: the agent by its name, the task by the crew's."""
    model = Scripted("one two three", pace=1)
    run = Both(crew(model, "ann", "bob"), crew(model, "cat", "dan")).run()
    seen: list[tuple[str | None, str | None]] = []
    async for event in run:
        if isinstance(event, events.TextDelta):
            seen.append((event.agent, event.task))
    check_log(await log_of(run))
    assert {mark: seen.count(mark) for mark in seen} == {
        (name, f"task {name}"): 3 * times for name, times in {"ann": 1, "bob": 1, "cat": 2, "dan": 2}.items()
    }
    log = await log_of(run)
    assert {event.root_id for event in log} == {run.id}


@virtual
async def test_the_text_of_a_crew_in_a_flow_is_its_last_tasks_and_after_a_stop_what_was_cut() -> None:
    """Also where the first task is cut."""
    model = Scripted("one two three", pace=1)
    flow = Two(crew(model, "ann", "bob"), speaker("last", "four"))
    run = flow.run("go")
    assert [text async for text in run.text_stream()] == ["one ", "two ", "three", "four"]
    for at, text, done in ((1.5, "one ", ()), (4.5, "one ", ()), (6.5, "one two three", ("one",))):
        run = flow.run("go").start()
        await asyncio.sleep(at)
        run.cancel()
        result = await run.finished()
        assert (result.text, result.state.done) == (text, done)
        assert result.messages[-1].text == text


@pytest.mark.scenario("B12", "B22", "J89")
@pytest.mark.loops
@pytest.mark.parametrize("how", ["aclose", "thread", "consumer"])
async def test_crews_at_once_in_a_flow_are_all_closed(wire: WireProbe, how: str) -> None:
    """By `aclose()`, from a thread, and with the consumer's task: both sockets, within 250 ms."""
    model = OpenAIChat("any", base_url=wire.url("stall(1)"), api_key="any")
    run = Both(crew(model, "ann"), crew(model, "bob")).run()
    reading = asyncio.create_task(_read(run))
    await wire.awaited("token", 2)
    asked = time.monotonic()
    if how == "aclose":
        await run.aclose()
    elif how == "thread":
        threading.Thread(target=run.cancel).start()
    else:
        reading.cancel()
    result = await run.finished()
    assert len(wire.assert_closed(T, since=asked)) == 2
    assert result.is_cancelled
    assert [pending.step for pending in result.state.pending] == ["one", "two"]
    await asyncio.wait([reading])


async def _read(run: Run[Any]) -> None:
    async for _ in run:
        pass


INTERRUPTED = """
import asyncio, sys
from halter import Agent
from halter.flows import Flow, listen, start
from halter.models import OpenAIChat

class Report(Flow):
    writer = Agent(OpenAIChat("any", base_url=sys.argv[1], api_key="any"), name="writer")

    @start()
    async def outline(self):
        return "an outline"

    @listen(outline)
    async def write(self):
        return (await self.writer.run("go")).text

    @listen(write)
    async def publish(self):
        print("published")

async def main():
    try:
        async for text in run.text_stream():
            if text == "t3 ":
                print("ready", flush=True)
    finally:
        print(run.status, run.outcome and run.outcome.state.done)

run = Report().run()
try:
    if sys.argv[2] == "async":
        asyncio.run(main())
    else:
        with run:
            for text in run.text_stream():
                if text == "t3 ":
                    print("ready", flush=True)
except KeyboardInterrupt:
    print("interrupted", run.status, run.outcome.state.done, run.text.startswith("t0 t1 t2 t3"))
"""


@pytest.mark.scenario("J91")
@pytest.mark.parametrize("form", ["async", "blocking"])
def test_a_real_ctrl_c_closes_the_socket_before_the_exception_leaves(wire: WireProbe, form: str) -> None:
    done = Script()(INTERRUPTED, wire.url("steady(1000,10)"), form, interrupt=1)
    assert "interrupted cancelled ('outline',) True" in done.quietly()
    assert "published" not in done.out
    assert len(wire.requests()) == 1
    assert wire.requests()[0].closed_how in ("eof", "reset")
    assert done.took < 2
