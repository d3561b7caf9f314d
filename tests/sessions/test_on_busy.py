"""D47: two runs at once on one session: decided before anything is answered, and no message is lost."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from halter import (
    Agent,
    CancelMode,
    CancelReason,
    Message,
    Run,
    RunContext,
    RunFailed,
    RunStatus,
    events,
    runnable,
    tool,
)
from halter.core.options import OnBusy
from halter.errors import BusyError, ConfigurationError, SessionBusy
from halter.models.scripted import Scripted, calls
from halter.sessions import Sessions

from .places import memory_store as memory_store
from .places import open_store as open_store
from .talks import PACE, WORDS, answered, asked, check_agrees, speaking, stored, talker, until
from .talks import chats as chats

pytestmark = [pytest.mark.scenario("D47"), pytest.mark.real_loop]
POLICIES: tuple[OnBusy, ...] = ("reject", "enqueue", "interrupt", "steer")


async def log_of(run: Run[Any]) -> list[events.Event]:
    return [event async for event in run.events()]


# --- reject -------------------------------------------------------------------------------------------------


@pytest.mark.virtual_time
async def test_a_run_that_is_refused_says_so_before_anything_else() -> None:
    chats, agent = Sessions(), talker()
    first = await speaking(agent.run("first", session=chats.session("s")))
    second = agent.run("second", session=chats.session("s"))
    with pytest.raises(SessionBusy) as caught:
        await second
    error = caught.value
    assert isinstance(error, RunFailed)
    assert isinstance(error, BusyError)
    assert (error.session_id, error.holder, error.run_id) == ("s", first.id, second.id)
    assert error.result is second.outcome
    assert second.status is RunStatus.FAILED
    assert [event.type for event in await log_of(second)] == ["run.queued", "run.failed"]
    assert await chats.run(second.id) is None
    assert second.outcome is not None
    assert second.outcome.messages == ()
    await first
    assert asked(await stored(chats)) == ["first"]


@pytest.mark.virtual_time
async def test_a_refused_run_is_refused_at_once() -> None:
    """Also where others wait already: they come before it."""
    chats, agent = Sessions(), talker()
    first = await speaking(agent.run("first", session=chats.session("s")))
    waiting = agent.run("second", session=chats.session("s"), on_busy="enqueue").start()
    await asyncio.sleep(0.05)
    before = asyncio.get_running_loop().time()
    with pytest.raises(SessionBusy):
        await agent.run("third", session=chats.session("s"))
    assert asyncio.get_running_loop().time() == before
    await first
    await waiting
    assert asked(await stored(chats)) == ["first", "second"]


# --- enqueue ------------------------------------------------------------------------------------------------


async def test_fifty_that_wait_are_all_answered_in_their_order(chats: Sessions) -> None:
    agent = talker("yes", pace=0)
    count = 50 if "memory" in repr(chats) else 12
    runs = [agent.run(f"number {n}", session=chats.session("s"), on_busy="enqueue").start() for n in range(count)]
    for run in runs:
        assert (await run).text == "yes"
    said = await stored(chats)
    assert asked(said) == [f"number {n}" for n in range(count)]
    assert answered(said) == ["yes"] * count


@pytest.mark.virtual_time
async def test_those_that_wait_have_their_turns_in_the_order_in_which_they_came() -> None:
    chats, agent = Sessions(), talker("yes")
    runs: list[Run[Any]] = []
    for n in range(10):
        runs.append(agent.run(f"number {n}", session=chats.session("s"), on_busy="enqueue").start())
        await asyncio.sleep(0.001)
    for run in runs:
        await run
        await check_agrees(chats, run)
    assert asked(await stored(chats)) == [f"number {n}" for n in range(10)]


@pytest.mark.virtual_time
async def test_who_waits_hears_what_was_said_meanwhile() -> None:
    chats = Sessions()
    first = talker("the first answer").run("first", session=chats.session("s")).start()
    await asyncio.sleep(0.01)
    second = await talker("no", "the second answer").run("second", session=chats.session("s"), on_busy="enqueue")
    assert second.text == "the second answer"  # a script counts the answers that it was shown
    assert first.is_done
    assert [message.text for message in second.messages] == ["first", "the first answer", "second", "the second answer"]


@pytest.mark.virtual_time
async def test_a_run_that_is_stopped_while_it_waits_leaves_nothing() -> None:
    chats, agent = Sessions(), talker()
    first = await speaking(agent.run("first", session=chats.session("s")))
    second = agent.run("second", session=chats.session("s"), on_busy="enqueue").start()
    third = agent.run("third", session=chats.session("s"), on_busy="enqueue").start()
    await asyncio.sleep(0.05)
    assert second.status is RunStatus.QUEUED
    second.cancel("never mind")
    result = await second.finished()
    assert not first.is_done
    assert result.is_cancelled
    assert result.messages == ()
    assert [event.type for event in await log_of(second)] == ["run.queued", "run.cancelling", "run.cancelled"]
    assert await chats.run(second.id) is None
    await first
    await third
    assert asked(await stored(chats)) == ["first", "third"]
    assert (await chats.get("s")).holder is None
    await agent.run("fourth", session=chats.session("s"))


@pytest.mark.virtual_time
@pytest.mark.parametrize("mode", [CancelMode.AFTER_TURN, CancelMode.DRAIN_TOOLS])
async def test_a_stop_that_lets_a_turn_end_lets_none_begin(mode: CancelMode) -> None:
    chats, agent = Sessions(), talker()
    first = await speaking(agent.run("first", session=chats.session("s")))
    second = agent.run("second", session=chats.session("s"), on_busy="enqueue").start()
    await asyncio.sleep(0.05)
    second.cancel(mode=mode)
    assert (await second.finished()).is_cancelled
    await first
    assert asked(await stored(chats)) == ["first"]


@pytest.mark.virtual_time
async def test_the_time_of_a_run_is_over_also_while_it_waits() -> None:
    chats, agent = Sessions(), talker()
    first = await speaking(agent.run("first", session=chats.session("s")))
    result = await agent.run("second", session=chats.session("s"), on_busy="enqueue", timeout=0.05).finished()
    assert result.cancellation is not None
    assert result.cancellation.reason is CancelReason.TIMEOUT
    assert not first.is_done
    await first
    assert asked(await stored(chats)) == ["first"]
    await agent.run("third", session=chats.session("s"))


@pytest.mark.virtual_time
async def test_what_is_sent_to_a_run_that_waits_is_heard_when_its_turn_has_come() -> None:
    chats = Sessions()
    first = await speaking(talker().run("first", session=chats.session("s")))
    agent = talker("so", "it", "is")
    second = agent.run("second", session=chats.session("s"), on_busy="enqueue").start()
    await asyncio.sleep(0.05)
    assert second.send("and this")
    await first
    result = await second
    assert result.undelivered == ()
    assert asked(await stored(chats)) == ["first", "second", "and this"]


# --- interrupt ----------------------------------------------------------------------------------------------


async def test_who_interrupts_stops_the_holder_and_goes_on_from_what_it_has_said(chats: Sessions) -> None:
    agent = talker(WORDS * 20, "yes")
    first = await speaking(agent.run("first", session=chats.session("s")))
    second = await agent.run("second", session=chats.session("s"), on_busy="interrupt")
    stopped = await first.finished()
    assert stopped.cancellation is not None
    assert stopped.cancellation.reason is CancelReason.SUPERSEDED
    said = await stored(chats)
    assert [message.text for message in said] == ["first", stopped.text, "second", "yes"]
    assert [message.interrupted for message in said] == [False, True, False, False]
    assert second.messages == said
    await check_agrees(chats, first)


@pytest.mark.virtual_time
async def test_who_interrupts_comes_before_those_who_only_wait() -> None:
    chats, agent = Sessions(), talker("yes")
    first = await speaking(talker().run("first", session=chats.session("s")))
    waiting = agent.run("waits", session=chats.session("s"), on_busy="enqueue").start()
    await asyncio.sleep(0.03)
    await agent.run("interrupts", session=chats.session("s"), on_busy="interrupt")
    assert first.is_cancelled
    await waiting
    assert asked(await stored(chats)) == ["first", "interrupts", "waits"]


@pytest.mark.virtual_time
async def test_of_two_that_interrupt_the_last_one_has_the_last_word() -> None:
    """And the first of them says that it was stopped."""
    chats, agent = Sessions(), talker()
    first = await speaking(agent.run("first", session=chats.session("s")))
    second = agent.run("second", session=chats.session("s"), on_busy="interrupt").start()
    third = agent.run("third", session=chats.session("s"), on_busy="interrupt").start()
    assert (await third).is_completed
    reasons = [(await run.finished()).cancellation for run in (first, second)]
    assert [reason.reason for reason in reasons if reason] == [CancelReason.SUPERSEDED] * 2
    assert asked(await stored(chats))[-1] == "third"
    assert (await chats.get("s")).holder is None


@pytest.mark.virtual_time
async def test_what_was_to_be_said_is_kept_whenever_a_run_is_interrupted() -> None:
    """Also between its turn and its first word."""
    for ticks in range(30):
        chats, agent = Sessions(), talker("yes")
        first = agent.run("first", session=chats.session("s")).start()
        for _ in range(ticks):
            await asyncio.sleep(0)
        await agent.run("second", session=chats.session("s"), on_busy="interrupt")
        result = await first.finished()
        said = await stored(chats)
        assert asked(said) == ["first", "second"], ticks
        assert tuple(said[: len(result.messages)]) == result.messages
        assert said[1].interrupted == result.is_cancelled


async def test_what_was_to_be_said_is_kept_in_any_place(chats: Sessions) -> None:
    agent = talker("yes")
    for each in range(8):
        session = chats.session(f"s{each}")
        first = agent.run("first", session=session).start()
        await asyncio.sleep(each / 2_000)
        await agent.run("second", session=session, on_busy="interrupt")
        # Over connections of its own, the second may be there before the first, which comes behind it then, or is
        # refused, and says so.
        result = await first.finished()
        kept = [] if isinstance(result.error, SessionBusy) else ["first"]
        said = asked(await chats.history(f"s{each}"))
        assert sorted(said) == [*kept, "second"], (said, result)


@pytest.mark.virtual_time
async def test_an_interrupted_run_with_a_tool_is_sealed_before_the_next_begins() -> None:
    @tool
    async def work() -> str:
        await asyncio.sleep(60)
        return "worked"

    chats = Sessions()
    first = Agent(Scripted(calls("work")), tools=[work]).run("first", session=chats.session("s")).start()
    await asyncio.sleep(0.1)
    result = await talker("yes").run("second", session=chats.session("s"), on_busy="interrupt")
    assert first.is_cancelled
    roles = [message.role for message in result.messages]
    assert roles == ["user", "assistant", "tool", "user", "assistant"]


# --- steer --------------------------------------------------------------------------------------------------


def test_who_steers_says_something() -> None:
    """Known before anything begins, not only when the session is taken."""
    with pytest.raises(ConfigurationError, match="the input must be text"):
        runnable(nothing).run(session=Sessions().session("s"), on_busy="steer")


async def nothing(ctx: RunContext) -> None:
    """Takes no input."""


@tool
async def look() -> str:
    """Takes a while."""
    await asyncio.sleep(0.2)
    return "seen"


def looker() -> Agent[str]:
    return Agent(Scripted(calls("look"), "then this", "and that", pace=0.01), tools=[look])


class Waiting:
    """A tool that waits until it may end. Threads may look at what it has, and let it go on."""

    def __init__(self) -> None:
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    async def wait(self) -> str:
        """Waits."""
        self.has_begun.set()
        await until(self.may_end.is_set)
        return "waited"

    @property
    def agent(self) -> Agent[str]:
        return Agent(Scripted(calls("wait"), "then this", "and that", pace=0.01), tools=[tool(self.wait)])


async def test_what_steers_is_heard_at_the_next_turn_and_both_end_alike(chats: Sessions) -> None:
    waiting = Waiting()
    first = waiting.agent.run("first", session=chats.session("s")).start()
    await until(waiting.has_begun.is_set)
    second = waiting.agent.run("second", session=chats.session("s"), on_busy="steer").start()
    await until(lambda: first._execution.steering)
    waiting.may_end.set()
    result = await second
    assert result.text == (await first).text
    assert result.is_completed
    said = await stored(chats)
    assert asked(said) == ["first", "second"]
    assert [message.role for message in said] == ["user", "assistant", "tool", "user", "assistant"]
    steered = [event for event in await log_of(second) if isinstance(event, events.Custom)]
    assert [(event.name, event.data) for event in steered] == [("session.steered", {"run_id": first.id})]
    assert (await log_of(second))[-1].type == "run.completed"


@pytest.mark.virtual_time
async def test_what_comes_too_late_to_steer_has_a_turn_of_its_own() -> None:
    """The holder's last answer is on its way, and it is the last that it may give."""
    chats = Sessions()
    agent = Agent(Scripted(WORDS, "yes", pace=PACE), max_turns=1)
    first = await speaking(agent.run("first", session=chats.session("s")))
    second = await agent.run("second", session=chats.session("s"), on_busy="steer")
    assert second.text == "yes"
    assert (await first).text == WORDS
    assert (await first).undelivered != ()
    assert [message.text for message in await stored(chats)] == ["first", WORDS, "second", "yes"]


@pytest.mark.virtual_time
async def test_a_run_that_steers_one_that_is_stopped_is_stopped_as_well() -> None:
    chats, agent = Sessions(), looker()
    first = agent.run("first", session=chats.session("s")).start()
    await asyncio.sleep(0.1)
    second = agent.run("second", session=chats.session("s"), on_busy="steer").start()
    await until(lambda: "and" in first.text or "then" in first.text)
    first.cancel("enough")
    results = [await run.finished() for run in (first, second)]
    assert [result.status for result in results] == [RunStatus.CANCELLED] * 2
    assert asked(await stored(chats)) == ["first", "second"]


@pytest.mark.virtual_time
async def test_a_steering_run_that_is_stopped_takes_its_message_back() -> None:
    """If nobody has heard it yet; equal messages of others stay."""
    chats, agent = Sessions(), looker()
    first = agent.run("first", session=chats.session("s")).start()
    await asyncio.sleep(0.1)
    others = [agent.run("the same", session=chats.session("s"), on_busy="steer").start() for _ in range(2)]
    await asyncio.sleep(0.02)
    others[1].cancel()
    assert (await others[1].finished()).is_cancelled
    assert (await others[0]).text == (await first).text
    assert asked(await stored(chats)) == ["first", "the same"]


@pytest.mark.virtual_time
@pytest.mark.parametrize("on_busy", POLICIES)
async def test_a_free_session_is_taken_at_once_whatever_the_policy(on_busy: OnBusy) -> None:
    chats = Sessions()
    result = await talker("yes").run("hello", session=chats.session("s"), on_busy=on_busy)
    assert [message.text for message in await stored(chats)] == ["hello", "yes"]
    assert result.text == "yes"


@pytest.mark.virtual_time
async def test_of_equal_messages_only_its_own_is_taken_back() -> None:
    """The other comes too late, and has a turn of its own: its sender knows which of them was heard."""
    chats = Sessions()
    first = await speaking(
        Agent(Scripted(WORDS, "yes", pace=PACE), max_turns=1).run("first", session=chats.session("s"))
    )
    agent = talker("no", "yes")
    others = [agent.run("the same", session=chats.session("s"), on_busy="steer").start() for _ in range(2)]
    await asyncio.sleep(0.01)
    others[1].cancel()
    assert (await others[1].finished()).is_cancelled
    assert (await others[0]).text == "yes"
    assert first.is_completed
    assert asked(await stored(chats)) == ["first", "the same"]


# --- in one tree --------------------------------------------------------------------------------------------


@pytest.mark.virtual_time
@pytest.mark.parametrize("on_busy", POLICIES)
async def test_a_run_under_the_holder_is_refused(on_busy: OnBusy) -> None:
    """It would wait for ever, or stop or answer itself."""
    chats, inner = Sessions(), talker("inner")

    @runnable
    async def outer(ctx: RunContext, input: Any) -> str:
        ctx.say(Message.user(input))
        with pytest.raises(SessionBusy):
            await ctx.start(inner, "again", session=chats.session("s"), on_busy=on_busy)
        other = await ctx.start(inner, "elsewhere", session=chats.session("t"), on_busy=on_busy)
        return other.text

    assert (await outer.run("hello", session=chats.session("s"))).output == "inner"
    assert asked(await stored(chats)) == ["hello"]
    assert asked(await stored(chats, "t")) == ["elsewhere"]


# --- on several loops ---------------------------------------------------------------------------------------


def test_runs_of_several_threads_and_loops_have_their_turns(chats: Sessions) -> None:
    """Each with a loop of its own, and one in the blocking form; nobody's message is lost."""
    agent = talker("yes", pace=0.001)
    failed: list[BaseException] = []

    async def some(thread: int) -> None:
        for n in range(3):
            await agent.run(f"{thread}.{n}", session=chats.session("s"), on_busy="enqueue")

    def work(thread: int) -> None:
        try:
            if thread % 2:
                asyncio.run(some(thread))
            else:
                for n in range(3):
                    agent.run(f"{thread}.{n}", session=chats.session("s"), on_busy="enqueue").result(20)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failed == []
    said = asyncio.run(stored(chats))
    assert sorted(asked(said)) == sorted(f"{thread}.{n}" for thread in range(4) for n in range(3))
    assert answered(said) == ["yes"] * 12
    for thread in range(4):
        assert [text for text in asked(said) if text.startswith(f"{thread}.")] == [f"{thread}.{n}" for n in range(3)]


def test_a_run_of_one_loop_interrupts_that_of_another() -> None:
    chats, agent = Sessions(), talker(WORDS * 30, "yes")
    first = agent.run("first", session=chats.session("s")).start()  # on the background loop
    for _ in first.text_stream():
        break
    assert asyncio.run(_interrupt(chats, agent)).text == "yes"
    assert first.is_cancelled
    assert asked(asyncio.run(stored(chats))) == ["first", "second"]


async def _interrupt(chats: Sessions, agent: Agent[str]) -> Any:
    return await agent.run("second", session=chats.session("s"), on_busy="interrupt")


def test_a_run_of_one_loop_steers_that_of_another() -> None:
    chats, waiting = Sessions(), Waiting()
    first = waiting.agent.run("first", session=chats.session("s")).start()
    assert waiting.has_begun.wait(20)

    async def steer() -> Any:
        second = waiting.agent.run("second", session=chats.session("s"), on_busy="steer").start()
        await until(lambda: first._execution.steering)
        waiting.may_end.set()
        return await second

    assert asyncio.run(steer()).text == first.result(20).text
    assert asked(asyncio.run(stored(chats))) == ["first", "second"]
