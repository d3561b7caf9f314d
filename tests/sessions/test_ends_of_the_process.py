"""The event loop, or the process, ends while a run has a session's turn: the session is sealed and free, or its next
turn repairs it, at once; and nothing is left behind, not even a warning."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from halter import Agent, Run, RunContext, RunStatus, runnable, tool
from halter.core.history import for_model
from halter.errors import RunCancelled, SessionsUnavailable
from halter.messages import Message
from halter.models.scripted import Scripted, calls
from halter.sessions import Sessions

from ..agents.conversations import bodies_of, check_bodies, check_history
from .talks import answered, asked, record_of, speaking, stored, talker, until
from .troubled import Times, Troubled, hang, troubled

SHARED = """
import asyncio, os, signal, sys, threading, time, logging
from halter import Agent, tool
from halter.models.scripted import Scripted, calls
from halter.sessions import Sessions

chats = Sessions(sys.argv[1], patience=3)

@tool
async def work() -> str:
    print("working", flush=True)
    await asyncio.sleep(30)
    return "worked"

talker = Agent(Scripted(" ".join(f"w{n}" for n in range(3000)), pace=0.005))
worker = Agent(Scripted(("I work.", calls("work")), "done"), tools=[work])

async def speaking(run):
    run.start()
    while len(run.text) < 8:
        await asyncio.sleep(0.002)
    return run
"""

ASYNCIO_RUN_ENDS = """
async def main():
    global run, other
    other = await speaking(talker.run("hello", session=chats.session("s")))
    run = worker.run("work", session=chats.session("t")).start()
    while not any(call.began_at for call in run._execution.calls):
        await asyncio.sleep(0.002)
asyncio.run(main())
print(run.status)
"""

A_KEYBOARD_INTERRUPT = """
async def main():
    other = worker.run("work", session=chats.session("t")).start()
    while not any(call.began_at for call in other._execution.calls):
        await asyncio.sleep(0.002)
    run = await speaking(talker.run("hello", session=chats.session("s")))
    asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGINT)
    await run
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""

A_LOOP_CLOSED_BY_HAND = """
loop = asyncio.new_event_loop()
async def main():
    global run, other
    run = await speaking(talker.run("hello", session=chats.session("s")))
    other = worker.run("work", session=chats.session("t")).start()
    while not any(call.began_at for call in other._execution.calls):
        await asyncio.sleep(0.002)
loop.run_until_complete(main())
loop.close()
print(run.status)
"""

THE_BLOCKING_FORM_IS_LEFT = """
run = talker.run("hello", session=chats.session("s")).start()
other = worker.run("work", session=chats.session("t")).start()
for _ in zip(run.text_stream(), range(5)):
    pass
while not any(call.began_at for call in other._execution.calls):
    time.sleep(0.002)
sys.exit(0)
"""

INTERRUPTED_IN_THE_BLOCKING_FORM = """
other = worker.run("work", session=chats.session("t")).start()
while not any(call.began_at for call in other._execution.calls):
    time.sleep(0.002)
interrupting = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
try:
    for text in talker.run("hello", session=chats.session("s")).text_stream():
        if interrupting.ident is None:
            interrupting.start()
except KeyboardInterrupt:
    print("interrupted")
"""

ENDS = {
    "asyncio.run": ASYNCIO_RUN_ENDS,
    "a keyboard interrupt": A_KEYBOARD_INTERRUPT,
    "a loop closed by hand": A_LOOP_CLOSED_BY_HAND,
    "the blocking form": THE_BLOCKING_FORM_IS_LEFT,
    "interrupted while it blocks": INTERRUPTED_IN_THE_BLOCKING_FORM,
}


def ended(program: str, where: str) -> str:
    """What the process has said, once it is over."""
    child = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", SHARED + program, where],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = child.communicate(timeout=50)
    lines = [line for line in err.splitlines() if "was stopped because its handle" not in line]
    assert not lines, err
    assert child.returncode == 0, err
    return out


@pytest.mark.scenario("D44", "J91")
@pytest.mark.parametrize("end", ENDS)
def test_a_process_ends_in_the_middle_of_two_turns(end: str, tmp_path: Path) -> None:
    where = str(tmp_path / "chats.db")
    ended(ENDS[end], where)
    asyncio.run(look_at(Sessions(where)))


async def look_at(chats: Sessions) -> None:
    """As the next process finds it."""
    for id, said in (("s", "w0 w1"), ("t", "I work.")):
        result = await talker("again").run("again", session=chats.session(id))
        assert result.is_completed
        messages = await stored(chats, id)
        assert messages == result.messages
        check_history(messages)
        assert len(asked(messages)) == 2
        assert answered(messages)[0].startswith(said) or (id == "s" and not answered(messages)[0])
        bodies = bodies_of(messages)
        check_bodies(bodies, sum(len(message.tool_calls) for message in messages))
        records = await chats.runs(session=id)
        assert [record.status for record in records] == ["completed", "cancelled"]
        assert all(record.ended_at for record in records)
        assert for_model(messages)[-2].text.startswith("[")


# --- in one process, in memory ------------------------------------------------------------------------------


def test_a_loop_that_was_closed_by_hand_frees_its_sessions() -> None:
    """Nobody waits until a lease has run out: that the loop is gone is known."""
    chats = Sessions()
    loop = asyncio.new_event_loop()
    run = loop.run_until_complete(speaking(talker().run("hello", session=chats.session("s"))))
    loop.close()

    async def go_on() -> None:
        async with asyncio.timeout(20):
            result = await talker("no", "yes").run("next", session=chats.session("s"), on_busy="enqueue")
        assert asked(result.messages) == ["hello", "next"]
        assert run.status is RunStatus.CANCELLED
        assert (await record_of(chats, run)).cancellation is not None

    asyncio.run(go_on())


def test_a_loop_that_was_closed_while_the_last_of_a_run_was_stored_ends_the_run() -> None:
    """What it had come to is its result, which says that its end may be stored nowhere."""
    loop = asyncio.new_event_loop()

    async def begin() -> Run[Any]:
        run = await speaking(talker().run("hello", session=troubled(close=hang).session("s")))
        run.cancel("enough")
        await until(lambda: run._execution.ended_as is not None)
        return run

    run = loop.run_until_complete(begin())
    assert not run.is_done
    loop.close()
    with pytest.raises(RunCancelled):
        run.result(20)
    assert run.text == "one two three "
    assert isinstance(run.outcome.error, SessionsUnavailable)


def test_after_the_end_of_asyncio_run_the_session_is_sealed_and_free() -> None:
    chats = Sessions()
    runs: list[Run[Any]] = []

    async def begin() -> None:
        runs.append(await speaking(talker().run("hello", session=chats.session("s"))))
        runs[0].kept_by_parent()

    asyncio.run(begin())
    (run,) = runs
    assert run.outcome is not None

    async def look() -> None:
        assert (await chats.get("s")).holder is None
        assert await stored(chats) == run.outcome.messages  # pyright: ignore
        assert (await record_of(chats, run)).status == "cancelled"

    asyncio.run(look())


def test_the_end_of_asyncio_run_waits_for_the_last_write_of_a_run_that_was_cancelled_before() -> None:
    """A server cancels all its tasks, and so does `asyncio.run`; what the write needs is closed behind that. Without a
    session there is no lease, whose renewal would be waited for anyway."""
    seen: list[str] = []

    async def connection() -> AsyncIterator[None]:
        try:
            yield
        finally:
            seen.append("closed")

    async def write() -> None:
        async for _ in connection():
            await asyncio.sleep(0.02)
            seen.append("written")

    @tool
    async def work() -> None:
        """Ends a little later, however often it is cancelled."""
        over = asyncio.Event()
        asyncio.get_running_loop().call_later(0.02, over.set)
        while not over.is_set():
            with suppress(asyncio.CancelledError):
                await over.wait()

    async def main() -> None:
        run = Agent(Scripted(calls("work")), tools=[work]).run("go", session=chats.record())
        async for event in run.events():
            if event.type == "tool.started":
                break
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await until(lambda: run.is_cancelling)

    chats = troubled(record=Times(write, first=2))  # the first one says that it has begun
    asyncio.run(main())
    assert seen == ["written", "closed"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("place", ["memory", "sqlite"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_in_a_forked_child_sessions_work(place: str, tmp_path: Path) -> None:
    """The child has its own copy of what is in memory; a turn in a file stays the parent's."""
    program = f"""
    chats = Sessions({"None" if place == "memory" else "sys.argv[1]"}, patience=3)
    async def child():
        print((await Agent("scripted:yes").run("hi", session=chats.session("own"))).text, flush=True)
        try:
            result = await Agent("scripted:yes").run("other", session=chats.session("s"))
            print("taken", len(result.messages), flush=True)
        except Exception as error:
            print(type(error).__name__, flush=True)
    run = talker.run("hello", session=chats.session("s")).start()
    while len(run.text) < 8:
        time.sleep(0.005)
    pid = os.fork()
    if pid == 0:
        asyncio.run(child())
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert not run.is_done
    run.cancel()
    assert len(run.text) > 8
    try:
        run.result(10)
    except Exception as error:
        print(type(error).__name__)
    print(Agent("scripted:yes").run("next", session=chats.session("s")).result(10).text)
    """
    out = ended(textwrap.dedent(program), str(tmp_path / "chats.db")).split()
    assert out[0] == "yes"
    assert out[1] == ("taken" if place == "memory" else "SessionBusy")
    assert out[-2:] == ["RunCancelled", "yes"]


def test_a_loop_that_did_not_answer_gives_its_turn_back_when_it_does() -> None:
    """Its run was given up meanwhile; what it had said is stored, and nobody waits for the end of its lease."""
    chats, began, free = Sessions(), threading.Event(), threading.Event()

    @runnable
    async def stuck(ctx: RunContext) -> None:
        ctx.say(Message.user("hello"))
        ctx.text("stuck")
        began.set()
        free.wait(30)

    run = stuck.run(session=chats.session("s"), grace=0.2).start()  # on the background loop
    assert began.wait(20)
    try:
        run.close(20)
    finally:
        free.set()
    assert run.outcome is not None
    assert run.outcome.receipt is not None
    assert not run.outcome.receipt.confirmed
    result = talker("no", "yes").run("next", session=chats.session("s"), on_busy="enqueue", timeout=10).result(15)
    assert [message.text for message in result.messages] == ["hello", "stuck", "next", "yes"]


def test_a_loop_that_did_not_answer_while_the_end_of_a_run_was_stored_stores_it_once() -> None:
    """The run was given up meanwhile, and says so; the step that was under way is the one that ends its turn."""
    closing, free = threading.Event(), threading.Event()

    async def hold_up() -> None:
        closing.set()
        free.wait(30)

    store: Any = Troubled(close=Times(hold_up, last=1))
    chats = Sessions(store)
    run = talker().run("hello", session=chats.session("s"), grace=0.2)  # on the background loop
    for event in run.events():
        if event.type == "text.delta":
            run.cancel()
            break
    assert closing.wait(20)
    try:
        run.close(20)
    finally:
        free.set()
    assert run.outcome is not None
    assert isinstance(run.outcome.error, SessionsUnavailable)
    talker("no", "yes").run("next", session=chats.session("s"), on_busy="enqueue", timeout=10).result(15)
    assert store.begun.count("close") == 2
