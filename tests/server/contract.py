"""What every `RunStore` must do: functions over a store, so that each implementation runs the same ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from halter import Agent, RunContext, runnable
from halter.core.run import Run
from halter.core.runnable import Runnable
from halter.messages import Message
from halter.models.scripted import Scripted
from halter.outcome import Cancellation, CancelReason, RunStatus
from halter.server.port import RunFilter, RunInfo, RunKey, RunPlan, RunStore

SLOW = Agent(Scripted("one two three four five six seven eight nine ten " * 20, pace=0.02), name="slow")
QUICK = Agent(Scripted("done"), name="quick")
STOP = Cancellation(message="enough", actor="anna")


@runnable
async def asks(ctx: RunContext) -> str:
    return await ctx.ask("which?")


def plan(id: str, *, tenant: str = "", fingerprint: str = "f", **fields: Any) -> RunPlan:
    defaults = {"agent": "slow", "kind": "agent", "actor": "anna", "created_at": time.time()}
    return RunPlan(key=RunKey(tenant, id), fingerprint=fingerprint, **{**defaults, **fields})


def making(what: Runnable[Any], id: str) -> Callable[[], Run[Any]]:
    return lambda: what.run("Go.", id=id)


async def begin(store: RunStore, id: str, what: Runnable[Any] = SLOW, **fields: Any) -> RunInfo:
    return (await store.begin(plan(id, **fields), making(what, id))).info


async def a_start_is_new_once(store: RunStore) -> None:
    made: list[Run[Any]] = []

    def make() -> Run[Any]:
        made.append(SLOW.run("Go.", id="r"))
        return made[-1]

    results = [(await store.begin(plan("r", fingerprint=print), make)).result for print in ("f", "f", "g")]
    assert results == ["new", "same", "conflict"]
    assert len(made) == 1
    assert store.live == 1


async def what_a_start_raises_keeps_nothing(store: RunStore) -> None:
    def fail() -> Run[Any]:
        raise ValueError("no")

    try:
        await store.begin(plan("r"), fail)
    except ValueError:
        pass
    else:
        raise AssertionError("it did not raise")
    assert await store.get(RunKey("", "r")) is None
    assert (await store.begin(plan("r"), making(QUICK, "r"))).result == "new"


async def a_cancel_ends_it_and_is_told_alike_again(store: RunStore) -> None:
    await begin(store, "r")
    for _ in range(2):
        answer = await store.cancel(RunKey("", "r"), STOP)
        assert answer is not None
        assert answer.in_force
    info = await store.wait(RunKey("", "r"), 5)
    assert info is not None
    assert info.cancellation is not None
    assert (info.status, info.cancellation.message, info.cancellation.actor) == ("cancelled", "enough", "anna")


async def a_cancel_of_what_is_over_changes_nothing(store: RunStore) -> None:
    await begin(store, "r", QUICK)
    await store.wait(RunKey("", "r"), 5)
    answer = await store.cancel(RunKey("", "r"), STOP)
    assert answer is not None
    assert (answer.in_force, answer.info.status, answer.info.cancellation) == (False, "completed", None)


async def an_unknown_run_is_none_everywhere(store: RunStore) -> None:
    key = RunKey("", "nobody")
    assert await store.get(key) is None
    assert await store.cancel(key, STOP) is None
    assert await store.wait(key, 0) is None
    assert await store.feed(key) is None
    assert await store.programs(key) is None
    assert store.presence(key) is None
    assert await store.answer(key, "x", 1) is False
    assert await store.send(key, Message.user("x")) is False


async def a_question_is_answered_once(store: RunStore) -> None:
    key = RunKey("", "r")
    info = await begin(store, "r", asks)
    while not info.inputs:
        await asyncio.sleep(0.01)
        info = await store.get(key) or info
    asked = info.inputs[0].request_id
    assert [await store.answer(key, asked, word) for word in ("red", "blue")] == [True, False]
    ended = await store.wait(key, 5)
    assert ended is not None
    assert ended.output == "red"


async def a_tombstone_stops_what_comes_later_once(store: RunStore) -> None:
    assert await store.cancel(RunKey("", "r"), STOP, tombstone=True) is None
    assert (await store.begin(plan("r"), making(SLOW, "r"))).result == "stopped"
    info = await store.wait(RunKey("", "r"), 5)
    assert info is not None
    assert (info.status, info.started_at) == (RunStatus.CANCELLED, None)


async def another_epoch_stops_nothing(store: RunStore) -> None:
    info = await begin(store, "r")
    answer = await store.cancel(RunKey("", "r"), STOP, if_epoch=info.epoch + 1)
    assert answer is not None
    assert answer.wrong_epoch
    found = await store.get(RunKey("", "r"))
    assert found is not None
    assert found.status is not RunStatus.CANCELLED


async def tenants_do_not_meet(store: RunStore) -> None:
    await begin(store, "r", tenant="red")
    blue = RunKey("blue", "r")
    assert await store.get(blue) is None
    assert await store.cancel(blue, STOP) is None
    assert await store.feed(blue) is None
    assert list(await store.list(RunFilter(tenant="blue"))) == []
    assert [info.plan.key.id for info in await store.list(RunFilter(tenant="red"))] == ["r"]


async def runs_are_listed_by_what_is_asked(store: RunStore) -> None:
    for number in range(6):
        what = QUICK if number % 2 else SLOW
        await begin(store, f"r{number}", what, tags=("even",) if number % 2 == 0 else (), session=f"s{number % 3}")
    for number in (1, 3, 5):
        await store.wait(RunKey("", f"r{number}"), 5)

    async def ids(**which: Any) -> list[str]:
        return [info.plan.key.id for info in await store.list(RunFilter(tenant="", **which))]

    assert await ids() == ["r5", "r4", "r3", "r2", "r1", "r0"]
    assert await ids(tag="even") == ["r4", "r2", "r0"]
    assert await ids(session="s1") == ["r4", "r1"]
    assert await ids(status=RunStatus.COMPLETED) == ["r5", "r3", "r1"]
    assert await ids(is_live_only=True) == ["r4", "r2", "r0"]
    first = await store.list(RunFilter(tenant="", limit=4))
    assert [info.plan.key.id for info in first] + await ids(before=first[-1].plan.position, limit=4) == await ids()


async def a_feed_goes_on_from_any_event(store: RunStore) -> None:
    await begin(store, "r", QUICK)
    await store.wait(RunKey("", "r"), 5)
    every = await _numbers(store, 0)
    assert every == list(range(1, len(every) + 1))
    for after in every:
        assert await _numbers(store, after) == every[after:]


async def _numbers(store: RunStore, after: int) -> list[int]:
    feed = await store.feed(RunKey("", "r"))
    assert feed is not None
    opening = await feed.open(after)
    assert opening.gap is None
    found: list[int] = []
    while not opening.at_end and (batch := await feed.next_batch()):
        found += [event.seq for event in batch]
    feed.close()
    return found


async def a_feed_without_a_cursor_begins_with_the_state(store: RunStore) -> None:
    await begin(store, "r", QUICK)
    await store.wait(RunKey("", "r"), 5)
    feed = await store.feed(RunKey("", "r"))
    assert feed is not None
    opening = await feed.open(None)
    assert opening.snapshot.status is RunStatus.COMPLETED
    assert [message.text for message in opening.snapshot.messages] == ["done"]
    assert [event.type for event in await feed.next_batch()] == ["run.completed"]
    assert await feed.next_batch() == []


async def what_is_forgotten_was_never_there(store: RunStore) -> None:
    await begin(store, "r", QUICK)
    await store.wait(RunKey("", "r"), 5)
    await store.forget(RunKey("", "r"))
    assert await store.get(RunKey("", "r")) is None
    assert (await store.begin(plan("r"), making(QUICK, "r"))).result == "new"


async def all_runs_are_stopped_and_waited_for(store: RunStore) -> None:
    for number in range(20):
        await begin(store, f"r{number}")
    await store.cancel_all(Cancellation(reason=CancelReason.SHUTDOWN))
    await store.until_quiet(5)
    assert store.live == 0
    statuses = {info.status for info in await store.list(RunFilter(tenant="", limit=50))}
    assert statuses == {RunStatus.CANCELLED}


async def each_end_is_told_once(store: RunStore) -> None:
    told: list[str] = []
    store.on_ended = lambda info: told.append(info.plan.key.id)
    await begin(store, "a", QUICK)
    await begin(store, "b")
    await store.cancel(RunKey("", "b"), STOP)
    await store.until_quiet(5)
    assert sorted(told) == ["a", "b"]


CONTRACT = (
    a_start_is_new_once,
    what_a_start_raises_keeps_nothing,
    a_cancel_ends_it_and_is_told_alike_again,
    a_cancel_of_what_is_over_changes_nothing,
    an_unknown_run_is_none_everywhere,
    a_question_is_answered_once,
    a_tombstone_stops_what_comes_later_once,
    another_epoch_stops_nothing,
    tenants_do_not_meet,
    runs_are_listed_by_what_is_asked,
    a_feed_goes_on_from_any_event,
    a_feed_without_a_cursor_begins_with_the_state,
    what_is_forgotten_was_never_there,
    all_runs_are_stopped_and_waited_for,
    each_end_is_told_once,
)
