"""J91, J92: a loop that ends, Ctrl-C, a fork, a second loop. Each in a process of its own, seen from the provider."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from halter.proof.wire import Record
from halter.testing.wire_probe import WireProbe

from ..bounds import assert_within
from .adapters import Adapter
from .shared import adapter as adapter
from .shared import in_pairs

SOURCE = Path(__file__).parents[2] / "src"
TESTS = Path(__file__).parent
BEGIN = """
    import asyncio, gc, os, signal, sys, threading, time
    sys.path.insert(0, {tests!r})
    import uvloop
    from halter import Agent, RunCancelled
    from adapters import ADAPTERS
    from descriptors import sockets_to

    url, port = sys.argv[2], int(sys.argv[2].split(":")[2].split("/")[0])
    adapter = next(adapter for adapter in ADAPTERS if adapter.name == sys.argv[3])
    agent = adapter.agent(url)
    run_on = dict(asyncio=asyncio.run, uvloop=uvloop.run)[sys.argv[1]]

    def at_the_end():
        "Our sockets now, and the instant; then time for the provider to see what has happened before it."
        print(len(sockets_to(port)), time.monotonic(), flush=True)
        time.sleep(0.1)
"""


class Program:
    """A Python program over the provider; `interrupted`: it gets a SIGINT when its stream has a token."""

    def __init__(self, wire: WireProbe) -> None:
        self._wire = wire

    def __call__(self, text: str, *arguments: str, interrupted: bool = False) -> list[str]:
        """The lines it printed; it must have ended well, and said nothing on stderr."""
        begin = textwrap.dedent(BEGIN).replace("{tests!r}", repr(str(TESTS)))
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", begin + textwrap.dedent(text), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            start_new_session=True,
        )
        try:
            if interrupted:
                self._wire.wait("token", timeout=20)
                process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()
            process.wait()
            for pipe in (process.stdout, process.stderr):
                pipe.close()
        assert (process.returncode, err) == (0, ""), f"exit code {process.returncode}\n{out}\n{err}"
        return out.splitlines()


@pytest.fixture
def program(wire: WireProbe) -> Program:
    return Program(wire)


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> str:
    return request.param


def assert_gone_before(lines: list[str], records: list[Record]) -> None:
    """No socket of its own was left at the instant that it printed, and the provider had seen the close by then."""
    left, at = next(line.split() for line in lines if len(line.split()) == 2)
    assert left == "0"
    for record in records:
        assert record.closed_at is not None
        assert_within(0.09, record.closed_at - float(at))  # before the process went on to its end


# --- J91 ----------------------------------------------------------------------------------------------------


@pytest.mark.scenario("J91")
def test_a_loop_that_ends_with_a_run_in_flight_closes_its_socket_first(
    wire: WireProbe, adapter: Adapter, program: Program, loop: str
) -> None:
    """`main` returns while a run streams: it is sealed as `shutdown`, and its socket is gone before `run` returns."""
    lines = program(
        """
        async def main():
            run = agent.run("count").start()
            async for _ in run.events():
                if run.text:
                    return run
        run = run_on(main())
        at_the_end()
        print(run.outcome.cancellation.reason, run.outcome.text)
        """,
        loop,
        wire.url("stall(1)"),
        adapter.name,
    )
    assert_gone_before(lines, wire.assert_closed())
    assert lines[-1] == "shutdown t0 "


@pytest.mark.scenario("J91")
@pytest.mark.parametrize(
    ("adapter", "how"),
    in_pairs("await run", "async for _ in run: pass", "async for _ in run.text_stream(): pass"),
    indirect=["adapter"],
)
def test_ctrl_c_in_a_running_loop_closes_the_socket_first(
    wire: WireProbe, adapter: Adapter, program: Program, loop: str, how: str
) -> None:
    """A real SIGINT while the run is awaited or read: `KeyboardInterrupt` leaves `run`, and the socket is gone."""
    lines = program(
        f"""
        runs = []
        async def main():
            run = agent.run("count")
            runs.append(run)
            {how}
        try:
            run_on(main())
        except KeyboardInterrupt:
            at_the_end()
            print(runs[0].outcome.status, runs[0].outcome.cancellation.reason)
        """,
        loop,
        wire.url("stall(1)"),
        adapter.name,
        interrupted=True,
    )
    assert_gone_before(lines, wire.assert_closed())
    assert lines[-1] in ("cancelled caller_cancelled", "cancelled shutdown")


@pytest.mark.scenario("J91")
@pytest.mark.parametrize(
    ("adapter", "how"),
    in_pairs("for _ in run: pass", "run.result()", "for _ in run.text_stream(): pass"),
    indirect=["adapter"],
)
def test_ctrl_c_in_blocking_code_closes_the_socket_first(
    wire: WireProbe, adapter: Adapter, program: Program, how: str
) -> None:
    """A real SIGINT in a blocking `for` and in `result()`: the socket is gone when `KeyboardInterrupt` leaves."""
    lines = program(
        f"""
        run = agent.run("count")
        try:
            {how}
        except KeyboardInterrupt:
            at_the_end()
            print(run.outcome.status, run.outcome.cancellation.reason)
        """,
        "asyncio",
        wire.url("stall(1)"),
        adapter.name,
        interrupted=True,
    )
    assert_gone_before(lines, wire.assert_closed())
    assert lines[-1] == "cancelled caller_cancelled"


@pytest.mark.scenario("J91")
def test_a_process_that_ends_with_a_run_on_the_background_loop_closes_its_socket(
    wire: WireProbe, adapter: Adapter, program: Program
) -> None:
    """The script ends while its stream runs: it ends at once, quietly, and the provider sees the close."""
    program(
        """
        run = agent.run("count").start()
        for _ in run.events():
            if run.text:
                break
        """,
        "asyncio",
        wire.url("stall(1)"),
        adapter.name,
    )
    wire.assert_closed()


# --- J92 ----------------------------------------------------------------------------------------------------


@pytest.mark.scenario("J92", "E53")
def test_one_agent_works_in_one_loop_after_another(
    wire: WireProbe, adapter: Adapter, program: Program, loop: str
) -> None:
    """Two `run`s, one ended in mid-stream, one loop closed by hand, then blocking code: the same object throughout."""
    lines = program(
        """
        async def whole():
            print((await agent.run("count")).text)
        async def stopped():
            async with agent.run("count") as run:
                async for _ in run.text_stream():
                    break
        for main in (whole, stopped, whole):
            run_on(main())
        by_hand = asyncio.new_event_loop() if sys.argv[1] == "asyncio" else uvloop.new_event_loop()
        by_hand.run_until_complete(whole())
        by_hand.run_until_complete(by_hand.shutdown_asyncgens())
        by_hand.close()
        print(agent.run("count").result().text)
        gc.collect()
        """,
        loop,
        wire.url("steady(5,2)"),
        adapter.name,
    )
    assert lines == ["t0 t1 t2 t3 t4 "] * 4


@pytest.mark.scenario("J92")
def test_a_forked_child_runs_the_same_agent_and_leaves_the_parents_stream_alone(
    wire: WireProbe, adapter: Adapter, program: Program
) -> None:
    """Forked in mid-stream, with a kept connection beside: the child's runs work, the parent's lose no token."""
    lines = program(
        """
        agent.run("count").result()  # its connection is kept
        run = agent.run("count").start()
        for _ in run.events():
            if run.text:
                break
        pid = os.fork()
        if pid == 0:
            assert run.cancel() is False
            gc.collect()
            print("child", agent.run("count").result().text.count("t"), flush=True)
            gc.collect()
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        print("parent", run.result().text.count("t"), agent.run("count").result().text.count("t"))
        """,
        "asyncio",
        wire.url("steady(40,3)"),
        adapter.name,
    )
    assert lines == ["child 40", "parent 40 40"]
    assert len(wire.requests()) == 4
    assert {record.finished_at is not None for record in wire.requests()} == {True}


@pytest.mark.scenario("J92")
def test_a_child_forked_inside_a_running_loop_leaves_the_parents_connections_alone(
    wire: WireProbe, adapter: Adapter, program: Program, loop: str
) -> None:
    """A fork in a coroutine, as by `multiprocessing`: the child ends, and the parent's streams and pool work on."""
    lines = program(
        """
        import multiprocessing, warnings
        def child():
            gc.collect()
            print("child", agent.run("count").result().text.count("t"), flush=True)
        async def main():
            await agent.run("count")
            run = agent.run("count").start()
            async for _ in run.events():
                if run.text:
                    break
            process = multiprocessing.get_context("fork").Process(target=child)
            process.start()
            print("parent", (await run).text.count("t"), flush=True)
            await asyncio.to_thread(process.join)
            print("parent", (await agent.run("count")).text.count("t"), process.exitcode)
        run_on(main())
        """,
        loop,
        wire.url("steady(40,3)"),
        adapter.name,
    )
    assert sorted(lines) == ["child 40", "parent 40", "parent 40 0"]
