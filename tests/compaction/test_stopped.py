"""D45: a compaction that is stopped leaves the conversation as it was, and its socket closed."""

from __future__ import annotations

import time
from typing import Any

import pytest

from halter import Agent, CancelMode, Run, RunResult, RunStatus, events
from halter.compaction import Compaction
from halter.compaction.shape import BEGINNING
from halter.core.history import MARKER
from halter.messages import Message
from halter.testing import MemorySource, Sweep, SweepOutcome, cancel_sweep
from halter.testing.memory import chat_stream
from halter.testing.wire_probe import WireProbe

from ..agents.conversations import check_history
from ..agents.loops import in_real_time
from ..bounds import T
from ..stopping.adapters import ADAPTERS, Adapter
from .asking import ASKED, HISTORY, WINDOW, agent, compactions, finished, log_of, summary, too_long, unchanged

MODES = [CancelMode.IMMEDIATE, CancelMode.KILL, CancelMode.DRAIN_TOOLS]


@pytest.mark.scenario("D45", "I82")
@pytest.mark.parametrize("reactive", [False, True], ids=["before", "after a refusal"])
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_stopped_at_any_step_the_conversation_is_what_was_said(mode: CancelMode, reactive: bool) -> None:
    """One terminal event; each compaction that began has its end, behind that of its summary's own run."""

    async def scenario(sweep: Sweep) -> tuple[RunResult[Any], list[events.Event], MemorySource]:
        answers = [too_long()] if reactive else []
        source = MemorySource(*answers, summary(every=0.1), chat_stream("So it is.", every=0.1))
        run = agent(source, Compaction() if reactive else None).run(ASKED, history=HISTORY)
        sweep.cancel = lambda: run.cancel("enough", mode=mode)
        result = await run.finished()
        return result, await log_of(run), source

    cancel_sweep(scenario, check=_check)


def _check(outcome: SweepOutcome) -> None:
    result, log, source = outcome.result
    assert source.open_requests == []
    assert list(result.messages[: len(HISTORY)]) == HISTORY
    assert not any(message.text.startswith(BEGINNING) for message in result.messages)
    check_history(result.messages)
    assert [event for event in log if event.is_terminal and event.parent_id is None] == [log[-1]]
    marks = compactions(log)
    assert len(marks) in (0, 2)
    if marks and marks[1].outcome == "cancelled":
        at = log.index(marks[1])
        assert [event.type for event in log[at:]] == ["compaction.finished", "step.finished", "run.cancelled"]
        children = [event for event in log if event.parent_id is not None]
        assert not children or children[-1].is_terminal


# --- on real sockets ----------------------------------------------------------------------------------------


@pytest.fixture(params=ADAPTERS, ids=lambda adapter: adapter.name)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    return request.param


async def until_summarising(run: Run[Any]) -> None:
    async for event in run.events():
        if isinstance(event, events.TextDelta) and event.run_id != run.id:
            return


@pytest.mark.scenario("A3", "D42", "D45")
@in_real_time
async def test_a_stop_during_a_compaction_closes_the_summary_s_socket(adapter: Adapter, wire: WireProbe) -> None:
    """The provider sees the close within 250 ms, and no request after it; the history is what it was."""
    stalling = adapter.model(wire.url("stall(3)"))
    run = Agent(stalling, compaction=Compaction(window=WINDOW)).run(ASKED, history=HISTORY, grace=1)
    await until_summarising(run)
    asked = time.monotonic()
    run.cancel("enough")
    result = await run.finished()
    (record,) = wire.assert_closed(T, since=asked)
    wire.assert_no_requests_after(asked)
    assert "<conversation>" in record.body
    assert result.status is RunStatus.CANCELLED
    assert unchanged(result)
    assert finished(await log_of(run)).outcome == "cancelled"
    following = Agent(adapter.model(wire.url("steady(3,1)")))
    assert (await following.run("Go on.", history=result.messages)).text == "t0 t1 t2 "
    assert MARKER in wire.requests()[-1].body  # nothing of an answer had come, and yet it was one that was stopped


@pytest.mark.scenario("A7", "D45")
@pytest.mark.parametrize("mode", ["error-frame(3)", "cut(3)", "reset(3)", "eof(3)", "status(400)", "status(500)"])
@in_real_time
async def test_a_provider_that_breaks_in_a_compaction_changes_nothing(mode: str, wire: WireProbe) -> None:
    """The run goes on with the conversation as it is; nothing of half a summary is used."""
    adapter = ADAPTERS[0]
    breaking = adapter.model(wire.url(mode), max_retries=0)
    asked = Agent(adapter.model(wire.url("steady(3,1)")), compaction=Compaction(breaking, window=WINDOW))
    run = asked.run(ASKED, history=HISTORY)
    result = await run
    assert result.text == "t0 t1 t2 "
    assert unchanged(result)
    assert finished(await log_of(run)).outcome == "failed"
    sent = wire.requests()[-1].body
    assert HISTORY[0].text in sent
    assert BEGINNING not in sent


@in_real_time
async def test_every_provider_takes_a_conversation_that_was_compacted(adapter: Adapter, wire: WireProbe) -> None:
    """A summary by itself, then the answer; the second request is the short one."""
    history = [*HISTORY, Message.user("One more."), Message.assistant("Sure.")]
    asked = Agent(adapter.model(wire.url("steady(4,1)")), compaction=Compaction(window=WINDOW))
    run = asked.run(ASKED, history=history)
    result = await run
    assert result.text == "t0 t1 t2 t3 "
    first, second = wire.requests()
    assert "<conversation>" in first.body
    assert BEGINNING in second.body
    assert len(second.body) < 0.7 * len(first.body)
    assert finished(await log_of(run)).outcome == "ok"
