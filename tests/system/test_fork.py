"""After a fork: the child's handles answer, new runs work there, and the parent notices nothing."""

from __future__ import annotations

from typing import Any

import pytest

BEGIN = """
    import asyncio, os, sys, threading, time, traceback, warnings
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    import uvloop
    from halter import Agent, RunFailed, runnable, runtime
    from halter.errors import RunLost
    run_on = {"asyncio": asyncio.run, "uvloop": uvloop.run}
    sys.stdout.reconfigure(line_buffering=True)
    agent = Agent("scripted:fine")

    @runnable
    async def ticks(ctx):
        for i in range(60):
            ctx.text(f"{i} ")
            await asyncio.sleep(0.002)
        return "all"

    async def ask():
        return (await agent.run("?")).text

    def in_a_child(work):
        "Its exit code: 0 if `work` did not raise, and ended."
        pid = os.fork()
        if pid == 0:
            try:
                work()
                sys.stdout.flush()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        until = time.monotonic() + 8
        while time.monotonic() < until:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.002)
        os.kill(pid, 9)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def look(run):
        "What a handle from before the fork answers in the child."
        assert run.is_done and run.cancel() is False
        assert not run.is_cancelled and run.status == "failed"
        try:
            run.result(timeout=2)
        except RunFailed as error:
            assert isinstance(error.__cause__, RunLost), error.__cause__
        else:
            raise AssertionError("waited for")
        assert list(run.events())[-1].type == "run.failed"
        for _ in run:
            pass
        run.close()
        assert "new one" in run.why(), run.why()
        assert runtime().find(run.id) is None and not runtime().runs()
        assert agent.run("?").result(timeout=2).text == "fine"
        assert asyncio.run(ask()) == uvloop.run(ask()) == "fine"
        try:
            asyncio.run(asyncio.wait_for(run.wait(), 2))
        except RunFailed:
            pass
"""


@pytest.mark.scenario("J92")
def test_a_child_forked_while_background_runs_are_live(script: Any) -> None:
    """In the child: over, `cancel()` False, waiting raises at once, new runs work. In the parent: all goes on."""
    ended = script(
        BEGIN
        + """
    run = ticks.run().start()
    waiting = []
    waiter = threading.Thread(target=lambda: waiting.append(run.result()))
    waiter.start()
    while not run.text:
        time.sleep(0.001)
    print(in_a_child(lambda: look(run)), in_a_child(lambda: look(run)))
    waiter.join(5)
    assert waiting[0].output == "all"
    seqs = [event.seq for event in run.events()]
    assert seqs == list(range(1, 63)) or len(seqs) > 60, seqs
    print(run.outcome.status, agent.run("?").result(timeout=2).text)
    """,
        flags=("-X", "dev"),
    )
    assert ended.quietly() == "0 0\ncompleted fine\n"


@pytest.mark.scenario("J92")
def test_a_child_forked_from_inside_a_running_loop(script: Any, loop_name: str) -> None:
    """`os.fork()` in a coroutine, with runs live on that very loop: the same answers; the parent's loop goes on."""
    ended = script(
        BEGIN
        + """
    async def main():
        run = ticks.run(timeout=60).start()
        other = ticks.run().start()
        while not run.text:
            await asyncio.sleep(0.001)
        code = in_a_child(lambda: threading_look(run))
        result = await run
        print(code, result.output, (await other).output, await ask())

    def threading_look(run):
        # A thread without a loop: uvloop's parent loop still counts as running in the thread that forked.
        failures = []
        def work():
            try:
                look(run)
            except BaseException as error:
                failures.append(error)
                traceback.print_exc()
        one = threading.Thread(target=work)
        one.start()
        one.join(6)
        assert not one.is_alive() and not failures

    run_on[sys.argv[1]](main())
    """,
        loop_name,
    )
    assert ended.quietly() == "0 all all fine\n"


@pytest.mark.scenario("J92")
def test_children_of_multiprocessing_by_fork_and_a_pool(script: Any) -> None:
    """`multiprocessing` with fork, while a run is live: each child runs agents; the parent's run completes."""
    ended = script(
        BEGIN
        + """
    import multiprocessing
    context = multiprocessing.get_context("fork")

    def work(i):
        return agent.run("?").result(timeout=3).text + asyncio.run(ask())

    run = ticks.run().start()
    while not run.text:
        time.sleep(0.001)
    with context.Pool(3) as pool:
        print(set(pool.map(work, range(12))))
    print(run.result(timeout=5).output)
    """
    )
    assert ended.quietly() == "{'finefine'}\nall\n"


@pytest.mark.scenario("J92")
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_a_forked_child_that_exits_the_ordinary_way_is_quiet(
    script: Any, newer: Any, version: str, loop_name: str
) -> None:
    """With `sys.exit()`, so that everything inherited is taken down: nothing on stderr, no wait for lost runs."""
    kwargs = {} if version == "3.11" else {"python": newer(version)}
    ended = script(
        BEGIN
        + """
    async def main():
        run = ticks.run().start()
        while not run.text:
            await asyncio.sleep(0.001)
        await asyncio.to_thread(fork_and_exit)
        print((await run).output)

    def fork_and_exit():
        pid = os.fork()
        if pid == 0:
            print("child", agent.run("?").result(timeout=3).text)
            began = time.monotonic()
            import atexit, gc
            gc.collect()
            atexit._run_exitfuncs()
            assert time.monotonic() - began < 1
            sys.stdout.flush()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0

    background = ticks.run().start()
    run_on[sys.argv[1]](main())
    print(background.result(timeout=5).output)
    """,
        loop_name,
        **kwargs,
    )
    assert ended.quietly() == "child fine\nall\nall\n"


@pytest.mark.scenario("J92")
def test_a_run_whose_start_was_on_its_way_at_the_fork_does_not_hang_the_child(script: Any) -> None:
    """Asked to start from a thread, the loop had not yet taken it up: in the child it is over as well."""
    ended = script(
        BEGIN
        + """
    hold, held = threading.Event(), threading.Event()
    agent.run("?").result()

    @runnable
    async def blocks(ctx):
        held.set()
        hold.wait(10)

    blocking = blocks.run().start()
    held.wait(5)
    run = ticks.run().start()          # queued behind the block
    print(in_a_child(lambda: look(run)))
    hold.set()
    blocking.result(timeout=5)
    print(run.result(timeout=5).output)
    """
    )
    assert ended.quietly() == "0\nall\n"
