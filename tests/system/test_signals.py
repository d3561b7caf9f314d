"""Stops by signals: real ones, in processes of their own; and handlers that land anywhere."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

from halter import cancel_on_signals, runnable
from halter.errors import UsageError

from ..bounds import assert_within

# What every script begins with: a run that stalls on an idle loop, and says when it does.
STALLS = """
    import asyncio, os, signal, sys, threading, time
    import uvloop
    from halter import Agent, CancelMode, CancellationToken, RunCancelled, cancel_on_signals, runnable

    run_on = {"asyncio": asyncio.run, "uvloop": uvloop.run}

    def ready():
        os.write(1, b"ready\\n")  # one line in one piece, whatever other threads print

    @runnable
    async def stalls(ctx):
        ctx.text("word ")
        await asyncio.Event().wait()

    @runnable
    async def stubborn(ctx):
        ctx.text("word ")
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass

    async def until_it_shows(run):
        async for _ in run.events():
            if run.text:
                return
"""


# --- B13 ----------------------------------------------------------------------------------------------------


@pytest.mark.scenario("B13")
@pytest.mark.parametrize("target", ["run", "token"])
def test_a_plain_signal_handler_stops_a_run_on_an_idle_loop(script: Any, loop_name: str, target: str) -> None:
    """`signal.signal(SIGINT, …)` whose handler calls `cancel()`: the run ends within 250 ms of the signal."""
    ended = script(
        STALLS
        + """
    async def main():
        token = CancellationToken()
        run = stalls.run(cancellation=token)
        target = run if sys.argv[2] == "run" else token
        at = []
        signal.signal(signal.SIGINT, lambda *_: (at.append(time.monotonic()), target.cancel()))
        run.start()
        await until_it_shows(run)
        asyncio.get_running_loop().call_later(0.02, print, "ready")
        sys.stdout.reconfigure(line_buffering=True)
        result = await run.finished()
        assert time.monotonic() - at[0] < 0.25, time.monotonic() - at[0]
        print(result.status, result.text)

    run_on[sys.argv[1]](main())
    """,
        loop_name,
        target,
        interrupt=1,
    )
    assert ended.quietly() == "cancelled word \n"
    assert_within(1.5, ended.took)


@pytest.mark.scenario("B13")
def test_a_plain_signal_handler_stops_a_blocking_reader(script: Any) -> None:
    """The same while the main thread sits in a blocking `for`: the handler runs there, and the loop ends."""
    ended = script(
        STALLS
        + """
    run = stalls.run()
    signal.signal(signal.SIGINT, lambda *_: run.cancel("by hand"))
    for event in run:
        if event.type == "text.delta":
            threading.Timer(0.02, ready).start()
    print(event.type, run.outcome.cancellation)
    """,
        interrupt=1,
    )
    assert ended.quietly() == "run.cancelled user_stop (by hand)\n"


@pytest.mark.scenario("B13")
def test_the_first_signal_stops_the_second_kills_the_third_is_the_old_handlers(script: Any, loop_name: str) -> None:
    """`cancel_on_signals`: SIGINT three times, to a body that will not die; afterwards the handler is the old one."""
    ended = script(
        STALLS
        + """
    sys.stdout.reconfigure(line_buffering=True)

    async def main():
        old = []
        mine = lambda *_: old.append(1)
        signal.signal(signal.SIGINT, mine)
        run = stubborn.run(grace=30)
        with cancel_on_signals(run, signal.SIGINT):
            run.start()
            await until_it_shows(run)
            print("ready")
            modes = []
            async for event in run.events():
                if event.type == "run.cancelling":
                    modes.append(str(event.mode))
                    if len(modes) == 1:
                        print("ready")
            print(*modes, event.type, event.reason)
            assert not old
            print("ready")
            while not old:
                await asyncio.sleep(0.005)
        assert signal.getsignal(signal.SIGINT) is mine
        assert not run.outcome.receipt.confirmed
        os._exit(0)  # a body that refuses to die hangs the end of asyncio.run, whoever carries it

    run_on[sys.argv[1]](main())
    """,
        loop_name,
        interrupt=3,
    )
    assert ended.out.replace("ready\n", "") == "immediate kill run.cancelled signal\n"
    assert ended.code == 0
    assert "abandoned after the grace" in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.scenario("B13")
def test_the_third_signal_raises_keyboard_interrupt_where_that_was_the_handler(script: Any) -> None:
    """The old handler of a plain process is Python's own: the third Ctrl-C leaves the blocking wait at once."""
    ended = script(
        STALLS
        + """
    sys.stdout.reconfigure(line_buffering=True)
    run = stubborn.run(grace=30)
    def tell():
        for event in run.events():
            if event.type == "text.delta":
                ready()
            if event.type == "run.cancelling" and event.mode == "immediate":
                ready()
    try:
        with cancel_on_signals(run, signal.SIGINT):
            threading.Thread(target=tell, daemon=True).start()  # not before: the first signal may come at once
            try:
                run.result()
            except RunCancelled as error:
                print(error.cancellation.reason)
            ready()
            time.sleep(5)
    except KeyboardInterrupt:
        assert run.is_done
        print("interrupted", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    os._exit(0)
    """,
        interrupt=3,
    )
    assert ended.out.replace("ready\n", "") == "signal\ninterrupted True\n"
    assert ended.code == 0


@pytest.mark.scenario("B13")
def test_sigterm_is_counted_with_sigint_and_both_handlers_are_restored() -> None:
    """By default SIGINT and SIGTERM stop; at the end of the block both are the old handlers', also after an error."""

    class Target:
        def __init__(self) -> None:
            self.asked: list[str] = []

        def cancel(self, message: str | None = None, *, mode: Any, **_: Any) -> bool:
            self.asked.append(f"{message} {mode}")
            return True

    target, old = Target(), []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGTERM, lambda *_: old.append("old"))
    installed = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(KeyError), cancel_on_signals(target):  # noqa: PT012
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
            raise KeyError
        assert target.asked == ["SIGTERM immediate", "SIGINT kill"]
        assert old == ["old"]
        assert signal.getsignal(signal.SIGTERM) is installed
        assert signal.getsignal(signal.SIGINT) is before[signal.SIGINT]
    finally:
        signal.signal(signal.SIGTERM, before[signal.SIGTERM])


@pytest.mark.scenario("B13")
def test_cancel_on_signals_outside_the_main_thread_is_a_usage_error(thread: Any) -> None:
    """Python cannot install handlers there: said at once, and nothing is changed."""
    raised: list[BaseException] = []

    @runnable
    async def body(ctx: Any) -> None: ...

    def try_it() -> None:
        try:
            with cancel_on_signals(body.run()):
                raise AssertionError("never here")
        except UsageError as error:
            raised.append(error)

    before = signal.getsignal(signal.SIGINT)
    thread(try_it).join()
    assert "main thread" in str(raised[0])
    assert signal.getsignal(signal.SIGINT) is before


# --- B14 ----------------------------------------------------------------------------------------------------

STORM = (
    STALLS
    + """
    import itertools, random
    from halter import RunStatus
    from halter.core import cancellation

    landed = set()          # functions of Halter's in which a handler landed
    counted = itertools.count()
    hit = [0]
    current = []            # what the handler may stop

    def handler(number, frame):
        hit[0] = next(counted)
        if hit[0] > 1000:
            return
        f = frame
        while f is not None:
            if "/halter/core/" in f.f_code.co_filename:
                landed.add(f.f_code.co_name)
                break
            f = f.f_back
        for thing in tuple(current):
            thing.is_cancelled
            if random.random() < 0.2:
                thing.cancel("by the handler", mode=random.choice(list(CancelMode)))

        aim()

    def aim():              # at random moments, at most 2,000 a second
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0005, 0.0015))

    class Target:           # a run, seen by the handler
        def __init__(self, run):
            self.run, self.cancel = run, run.cancel
        @property
        def is_cancelled(self):
            return self.run.is_cancelling

    signal.signal(signal.SIGALRM, handler)
    aim()
"""
)


@pytest.mark.scenario("B14")
def test_a_thousand_signals_inside_cancels_registers_and_emits_on_a_loop(script: Any, loop_name: str) -> None:
    """Handlers that stop runs and tokens, landing in starts, cancels, registrations and emits: every run ends."""
    ended = script(
        STORM
        + """
    async def one(i):
        token = CancellationToken()
        child = token.child()
        run = chatter.run(cancellation=child, grace=0.5)
        current[:] = [Target(run), token]
        registrations = [child.on_cancel(lambda: None) for _ in range(20)]
        run.start()
        with cancelled_later(run, i):
            result = await run.finished()
        for registration in registrations:
            registration.close()
        current.clear()
        events = [event async for event in run.events()]
        assert sum(event.is_terminal for event in events) == 1 and events[-1].is_terminal
        assert [event.seq for event in events] == list(range(events[0].seq, events[0].seq + len(events)))
        assert result.status in (RunStatus.CANCELLED, RunStatus.COMPLETED), result
        return result.status

    import contextlib

    @contextlib.contextmanager
    def cancelled_later(run, i):
        handle = asyncio.get_running_loop().call_later(0.004, run.cancel) if i % 3 else None
        yield
        if handle: handle.cancel()

    @runnable
    async def chatter(ctx):
        token = CancellationToken()
        for i in range(400):
            ctx.text("word ")
            ctx.emit("note", i)
            with ctx.token.on_cancel(lambda: None):
                token.child().cancel("a token of the body's own")
            if i % 20 == 0:
                await asyncio.sleep(0)

    async def main():
        statuses, i = set(), 0
        while hit[0] < 1000:
            statuses.add(await asyncio.wait_for(one(i), 8))
            i += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(i > 20, *sorted(statuses))
        assert landed & {"write", "append", "text", "emit"}, landed
        assert landed & {"on_cancel", "_listen", "_unregister", "close"}, landed
        assert landed & {"cancel", "request_stop", "_pass_on", "wake"}, landed

    run_on[sys.argv[1]](main())
    """,
        loop_name,
        limit=25,
    )
    assert ended.quietly() == "True cancelled completed\n"


@pytest.mark.scenario("B14")
def test_a_thousand_signals_inside_blocking_readers_and_cancels(script: Any) -> None:
    """The main thread starts, reads, waits for and cancels runs of the background loop under fire: every run ends."""
    ended = script(
        STORM
        + """
    agent = Agent("scripted:" + "word " * 50)
    i, statuses = 0, set()
    while hit[0] < 1000:
        i += 1
        token = CancellationToken()
        run = agent.run("go", cancellation=token.child(), grace=0.5)
        current[:] = [Target(run), token]
        if i % 4 == 0:
            run.cancel()
        if i % 2:
            events = list(run)
            assert sum(event.is_terminal for event in events) == 1, events
        else:
            for n, _ in enumerate(run.text_stream()):
                if n == 10:
                    run.cancel(mode=CancelMode.AFTER_TURN)
                    run.cancel(mode=CancelMode.KILL)
        assert run.outcome is not None
        statuses.add(str(run.outcome.status))
        current.clear()
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(i > 20, *sorted(statuses))
    """,
        limit=25,
    )
    assert ended.quietly() == "True cancelled completed\n"


@pytest.mark.scenario("B14")
def test_a_timer_signal_that_interrupts_the_same_cancel_over_and_over(script: Any) -> None:
    """`setitimer` at 2,000 a second into a loop of nothing but `token.cancel` and `on_cancel`: no deadlock."""
    ended = script(
        STALLS
        + """
    token, hits = CancellationToken(), []
    def handler(number, frame):
        hits.append(1)
        token.cancel("by the handler")
        assert token.is_cancelled
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    fired = 0
    def callback():
        global fired
        fired += 1
    made = 0
    while len(hits) < 1000:
        token = CancellationToken()
        child = token.child()
        for _ in range(5):
            child.on_cancel(callback)
            made += 1
        token.cancel("by the main thread")
    signal.setitimer(signal.ITIMER_REAL, 0)
    until = time.monotonic() + 5
    while fired < made and time.monotonic() < until:
        time.sleep(0.01)
    print(fired == made or (fired, made))
    """,
        limit=25,
    )
    assert ended.quietly() == "True\n"


def test_the_scripts_signals_do_not_reach_this_process() -> None:
    """The handlers of the test process are its own."""
    assert threading.current_thread() is threading.main_thread()
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
