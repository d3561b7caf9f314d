"""How a process ends while runs are in flight: quickly, quietly, and with the runs' own clean-up done."""

from __future__ import annotations

from typing import Any

import pytest

from ..bounds import assert_within

BEGIN = """
    import asyncio, os, signal, sys, threading, time
    import uvloop
    from halter import Agent, RunCancelled, runnable, runtime
    run_on = {"asyncio": asyncio.run, "uvloop": uvloop.run}
    sys.stdout.reconfigure(line_buffering=True)

    @runnable
    async def tidies(ctx):
        try:
            ctx.text("word ")
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            print("tidied")
"""

LOOP_AND_FLAGS = pytest.mark.parametrize("flags", [(), ("-X", "dev")], ids=["plain", "dev"])


# --- J91: asyncio.run ends ----------------------------------------------------------------------------------


@pytest.mark.scenario("J91")
@LOOP_AND_FLAGS
def test_asyncio_run_ends_with_a_run_in_flight(script: Any, loop_name: str, flags: tuple[str, ...]) -> None:
    """Its body is cancelled and its clean-up awaited; it is sealed with reason `shutdown`, children first."""
    ended = script(
        BEGIN
        + """
    runs = []

    @runnable
    async def parent(ctx):
        ctx.start(tidies)
        try:
            await asyncio.Event().wait()
        finally:
            print("parent tidied")

    async def main():
        run = parent.run().start()
        runs.append(run)
        async for event in run.events():
            if event.type == "text.delta":
                return "main is done"

    print(run_on[sys.argv[1]](main()))
    result = runs[0].outcome
    print(result.status, result.cancellation.reason, result.receipt.confirmed)
    print(*[event.type for event in runs[0].events() if event.type.startswith("run.c")])
    """,
        loop_name,
        flags=flags,
    )
    lines = ended.quietly().splitlines()
    assert sorted(lines[:2]) == ["parent tidied", "tidied"]
    assert lines[2:] == [
        "main is done",
        "cancelled shutdown True",
        "run.cancelling run.cancelling run.cancelled run.cancelled",
    ]
    assert_within(2, ended.took)


@pytest.mark.scenario("J91")
def test_a_run_whose_task_is_cancelled_before_its_first_step(script: Any, loop_name: str) -> None:
    """By `all_tasks()`, as `asyncio.run` does it: the body never runs, it is sealed, and nothing waits for a grace."""
    ended = script(
        BEGIN
        + """
    runs = []

    async def main():
        runs.extend(tidies.run() for _ in range(3))
        for run in runs:
            run.detach()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    began = time.monotonic()
    run_on[sys.argv[1]](main())
    assert time.monotonic() - began < 1, time.monotonic() - began
    for run in runs:
        print(run.outcome.status, run.outcome.cancellation.reason, run.outcome.receipt.confirmed)
        print(*[event.type for event in run.events()])
    """,
        loop_name,
        flags=("-X", "dev"),
    )
    each = "cancelled shutdown True\nrun.started run.cancelling run.cancelled\n"
    assert ended.quietly() == each * 3


@pytest.mark.scenario("J91")
@pytest.mark.parametrize("use", ["run.wait()", "read(run)", "read(run.text_stream())", "scope(run)"])
def test_asyncio_run_ends_with_a_reader_in_flight(script: Any, loop_name: str, use: str) -> None:
    """It cancels the reader and the run in one tick: the run's clean-up is not cut short by its reader's stop."""
    ended = script(
        BEGIN
        + """
    kept = []

    async def read(items):
        async for _ in items:
            pass

    async def scope(run):
        async with run:
            await asyncio.sleep(30)

    async def main():
        run = tidies.run()
        task = asyncio.create_task(eval(sys.argv[2], globals(), {"run": run}))
        kept.extend((run, task))
        async for _ in run.events():
            if run.text:
                return

    run_on[sys.argv[1]](main())
    print(kept[0].outcome.status, kept[0].outcome.receipt.confirmed)
    """,
        loop_name,
        use,
        flags=("-X", "dev"),
    )
    assert ended.quietly() == "tidied\ncancelled True\n"


@pytest.mark.scenario("J91")
def test_an_exception_of_main_leaves_asyncio_run_as_it_is(script: Any, loop_name: str) -> None:
    """With a run under `async with`, a detached one and one that is only kept: all sealed, the error goes on."""
    ended = script(
        BEGIN
        + """
    async def main():
        tidies.run().detach()
        kept = tidies.run().start()
        async with tidies.run() as run:
            async for _ in run:
                await asyncio.sleep(0.01)
                raise LookupError("main's own")

    try:
        run_on[sys.argv[1]](main())
    except LookupError as error:
        print(error)
    """,
        loop_name,
    )
    assert ended.out == "tidied\ntidied\ntidied\nmain's own\n"
    assert ended.code == 0
    assert [
        line for line in ended.err.splitlines() if "ResourceWarning" not in line and "warnings.warn" not in line
    ] == []


# --- J91: Ctrl-C --------------------------------------------------------------------------------------------


@pytest.mark.scenario("J91")
@pytest.mark.parametrize("use", ["await run", "async with", "async for", "events", "sleep"])
def test_ctrl_c_in_asyncio_run_tidies_up_before_the_exception_leaves(script: Any, loop_name: str, use: str) -> None:
    """A real SIGINT while main waits for a run in one of five ways: clean-up first, `KeyboardInterrupt` after."""
    ended = script(
        BEGIN
        + """
    kept = []

    async def say_ready(run):
        async for _ in run.events():
            if run.text:
                print("ready")
                return

    async def main():
        run = tidies.run()
        kept.append(run)
        telling = asyncio.create_task(say_ready(run))
        match sys.argv[2]:
            case "await run":
                await run
            case "async with":
                async with run:
                    await asyncio.sleep(30)
            case "async for":
                async for _ in run:
                    pass
            case "events":
                async for _ in run.events():
                    pass
            case "sleep":
                run.start()
                await asyncio.sleep(30)

    try:
        run_on[sys.argv[1]](main())
    except KeyboardInterrupt:
        print("interrupted", kept[0].outcome.cancellation.reason, kept[0].outcome.receipt.confirmed)
        raise
    """,
        loop_name,
        use,
        interrupt=1,
    )
    reason = "shutdown" if use in ("events", "sleep") else "caller_cancelled"
    assert ended.out == f"ready\ntidied\ninterrupted {reason} True\n"
    assert ended.code == -2  # Python's own way to end at Ctrl-C
    assert ended.err.strip().endswith("KeyboardInterrupt")
    for noise in ("never retrieved", "destroyed", "ResourceWarning", "never awaited", "Task exception"):
        assert noise not in ended.err
    assert_within(1, ended.took)


@pytest.mark.scenario("J91")
@pytest.mark.parametrize("use", ["for event in run", "result", "text_stream", "with"])
def test_ctrl_c_in_a_blocking_wait_tidies_up_before_the_exception_leaves(script: Any, use: str) -> None:
    """A real SIGINT in the main thread, in each blocking form: the run's clean-up has been done when it leaves."""
    ended = script(
        BEGIN
        + """
    run = tidies.run()

    def say_ready():
        for _ in run.events():
            if run.text:
                time.sleep(0.02)
                os.write(1, b"ready\\n")
                return

    run.start()
    threading.Thread(target=say_ready).start()
    try:
        match sys.argv[1]:
            case "for event in run":
                for _ in run:
                    pass
            case "result":
                run.result()
            case "text_stream":
                for _ in run.text_stream():
                    pass
            case "with":
                with run:
                    time.sleep(30)
    except KeyboardInterrupt:
        print("interrupted", run.outcome.cancellation.reason, run.outcome.receipt.confirmed)
        raise
    """,
        use,
        interrupt=1,
    )
    assert ended.out == "ready\ntidied\ninterrupted caller_cancelled True\n"
    assert ended.code == -2
    assert ended.err.count("Traceback") == 1
    assert ended.err.strip().endswith("KeyboardInterrupt")
    assert_within(1, ended.took)


# --- the interpreter exits ----------------------------------------------------------------------------------


@LOOP_AND_FLAGS
@pytest.mark.parametrize("uvloop_installs", [True, False], ids=["uvloop", "asyncio"])
def test_the_interpreter_exits_with_runs_on_the_background_loop(
    script: Any, flags: tuple[str, ...], uvloop_installs: bool
) -> None:
    """Their clean-up runs, reason `shutdown`; the process ends within a second, with nothing on stderr."""
    ended = script(
        ("\n    import sys; sys.modules['uvloop'] = None" if not uvloop_installs else "")
        + BEGIN.replace("    import uvloop\n", "").replace('"uvloop": uvloop.run', "")
        + """
    import atexit
    from halter.core import home      # its own atexit handler runs before those registered earlier
    runs = [tidies.run().start() for _ in range(5)]
    agent = Agent("scripted:" + "word " * 100_000)
    runs.append(agent.run("?").start())
    detached = tidies.run().detach()
    for run in runs:
        for _ in run.events():
            if run.text:
                break
    print("ready")
    """,
        flags=flags,
    )
    assert ended.quietly() == "tidied\n" * 6
    assert_within(1, ended.took)


def test_the_reason_at_exit_is_shutdown(script: Any) -> None:
    """What an `atexit` handler registered before Halter's sees: all is over."""
    ended = script(
        """
        import atexit, sys
        runs = []
        atexit.register(lambda: print(runs[0].outcome.cancellation, runs[0].outcome.receipt.confirmed))
        import asyncio
        from halter import runnable

        @runnable
        async def stalls(ctx):
            await asyncio.Event().wait()

        runs.append(stalls.run().start())
        next(runs[0].events())
        sys.exit(3)
        """
    )
    assert ended.code == 3
    assert ended.out == "shutdown (the process ends) True\n"
    assert ended.err == ""


def test_a_body_that_refuses_to_die_holds_up_the_exit_for_two_seconds_at_most(script: Any) -> None:
    """Its grace is a minute; the process is gone after about two seconds."""
    ended = script(
        BEGIN
        + """
    @runnable
    async def refuses(ctx):
        ctx.text("word ")
        while True:
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                pass

    run = refuses.run(grace=60).start()
    for _ in run.events():
        if run.text:
            break
    print("ready")
    """,
    )
    assert ended.quietly() == ""
    assert ended.took > 1.5
    assert_within(3.5, ended.took)


def test_a_body_that_spins_holds_up_the_exit_for_a_few_seconds_at_most(script: Any) -> None:
    """A background loop that never answers cannot keep the interpreter; what is said names the line."""
    ended = script(
        BEGIN
        + """
    spinning = threading.Event()

    @runnable
    async def spins(ctx):
        spinning.set()
        while True:
            time.sleep(0)

    run = spins.run().start()
    spinning.wait(5)
    print("ready")
    """,
    )
    assert ended.code == 0
    assert ended.took > 1.5
    assert_within(4, ended.took)
    assert "its loop is held up in spins" in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_function_abandoned_in_a_thread_holds_up_neither_asyncio_run_nor_the_exit(
    script: Any, loop_name: str
) -> None:
    """`time.sleep(30)` under `ctx.in_thread`: the run ends after 100 ms, `asyncio.run` and the process at once."""
    ended = script(
        BEGIN
        + """
    import logging; logging.disable()

    @runnable
    async def sleeps(ctx):
        ctx.text("word ")
        await ctx.in_thread(time.sleep, 30)

    async def main():
        async with sleeps.run() as run:
            async for _ in run.text_stream():
                await asyncio.sleep(0.01)
                run.cancel()
        print(run.outcome.receipt.confirmed, *(line.ended for line in run.outcome.receipt.resources))
        other = sleeps.run()
        other.detach()
        await asyncio.sleep(0.02)
        print("ready")

    run_on[sys.argv[1]](main())
    """,
        loop_name,
        flags=("-X", "dev"),
    )
    assert ended.quietly() == "False cancelled abandoned\n"
    assert_within(1, ended.took)


def test_an_exit_while_a_thread_emits_into_an_abandoned_run_is_quiet(script: Any) -> None:
    """Twenty threads at work in C and Python code when the interpreter ends."""
    ended = script(
        BEGIN
        + """
    import logging; logging.disable()

    def work(ctx):
        while True:
            try:
                ctx.emit("tick")
            except Exception:
                pass

    @runnable
    async def body(ctx):
        ctx.text("word ")
        await asyncio.gather(*(ctx.in_thread(work, ctx) for _ in range(3)))

    run = body.run().start()
    for _ in run.events():
        if run.text:
            break
    time.sleep(0.05)
    print("ready")
    """,
        flags=("-X", "dev"),
    )
    assert ended.quietly() == ""
    assert_within(2.5, ended.took)


@pytest.mark.parametrize("python", ["3.12", "3.13"])
def test_exit_and_asyncio_run_are_quiet_on_newer_interpreters(script: Any, python: str, newer: Any) -> None:
    """A run in flight at the end of `asyncio.run`, and one on the background loop at exit, on 3.12 and 3.13."""
    ended = script(
        BEGIN
        + """
    async def main():
        tidies.run().detach()
        await asyncio.sleep(0.02)

    asyncio.run(main())
    uvloop.run(main())
    kept = tidies.run().start()
    while not kept.text:
        time.sleep(0.001)
    print("ready")
    """,
        python=newer(python),
        flags=("-X", "dev"),
    )
    assert ended.quietly() == "tidied\n" * 3
    assert_within(1, ended.took)


def test_a_run_on_a_loop_in_another_thread_is_ended_at_exit(script: Any) -> None:
    """A daemon thread with `asyncio.run`: its run is sealed before the interpreter goes."""
    ended = script(
        BEGIN
        + """
    runs, ready = [], threading.Event()

    async def main():
        run = tidies.run().start()
        runs.append(run)
        async for _ in run.events():
            if run.text:
                ready.set()
        await asyncio.sleep(30)

    threading.Thread(target=lambda: asyncio.run(main()), daemon=True).start()
    ready.wait(5)
    print("ready")
    """,
    )
    assert ended.quietly() == "tidied\n"
    assert_within(1, ended.took)


@pytest.mark.scenario("C31")
def test_a_tool_that_must_finish_outlasts_the_end_of_the_loop(script: Any, loop_name: str) -> None:
    """Ctrl-C leaves `main`, `asyncio.run` cancels all tasks: the payment is made, also with a time-out of its own."""
    ended = script(
        """
    import asyncio, os, signal, sys, uvloop
    from halter import Agent, tool
    from halter.models.scripted import Scripted, calls

    @tool(cancel="must_finish")
    async def pay() -> str:
        async with asyncio.timeout(5):
            await asyncio.sleep(0.7)
        print("paid", flush=True)
        return "paid"

    async def main():
        async with Agent(Scripted(calls("pay"), "done"), tools=[pay]).run("go") as run:
            async for event in run:
                if event.type == "tool.started":
                    os.kill(os.getpid(), signal.SIGINT)

    try:
        {"asyncio": asyncio, "uvloop": uvloop}[sys.argv[1]].run(main())
    except KeyboardInterrupt:
        print("interrupted")
    """,
        loop_name,
    )
    assert ended.quietly().split() == ["paid", "interrupted"]


@pytest.mark.scenario("C28")
def test_neither_the_loop_nor_the_process_waits_for_a_tool_that_sleeps(script: Any, loop_name: str) -> None:
    """The tool sleeps for 4 s; the run is over after its 100 ms, and then `asyncio.run` and the interpreter are."""
    ended = script(
        """
    import asyncio, sys, time, uvloop
    from halter import Agent, tool
    from halter.models.scripted import Scripted, calls

    @tool
    def slow() -> str:
        time.sleep(4)

    async def main():
        async with Agent(Scripted(calls("slow"), "done"), tools=[slow]).run("go") as run:
            async for event in run:
                if event.type == "tool.started":
                    run.cancel()
        return (await run.finished()).receipt

    receipt = {"asyncio": asyncio, "uvloop": uvloop}[sys.argv[1]].run(main())
    print(*[line.ended for line in receipt.resources if line.kind == "tool"])
    """,
        loop_name,
    )
    assert (ended.code, ended.out.split()) == (0, ["abandoned"]), ended.err
    assert ended.took < 3.5
