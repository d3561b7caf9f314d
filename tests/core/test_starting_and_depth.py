"""Runs that are interrupted as they start, that are nested deep, and that are asked to stop with odd values."""

from __future__ import annotations

import asyncio
import dis
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import halter.core
from halter import CancellationToken, RunCancelled, events, runnable, runtime
from halter.core.threads import new_event_loop
from halter.errors import BlockingCallError, TooDeep, UsageError

virtual = pytest.mark.virtual_time
CORE = str(Path(halter.core.__file__).parent)
PATIENCE = 20.0


@runnable
async def quick(ctx: Any) -> str:
    return "done"


@runnable
async def sleeper(ctx: Any) -> None:
    await asyncio.sleep(1_000)


# -- Ctrl-C


class CtrlC:
    """Raises `KeyboardInterrupt` at the n-th place of this thread where CPython looks for signals, in Halter's core."""

    LOOKS = frozenset(("CALL", "CALL_FUNCTION_EX", "RESUME", "JUMP_BACKWARD"))

    def __init__(self, at: int | None) -> None:
        self.at, self.count = at, 0
        self._lines: dict[CodeType, dict[int, str]] = {}
        self._last: dict[FrameType, str] = {}

    def __enter__(self) -> CtrlC:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, what: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(CORE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if what == "opcode":
            self._look(frame)
        return self._trace

    def _look(self, frame: FrameType) -> None:
        names = self._lines.get(frame.f_code)
        if names is None:
            names = {each.offset: each.opname for each in dis.get_instructions(frame.f_code)}
            self._lines[frame.f_code] = names
        before, self._last[frame] = self._last.get(frame), names.get(frame.f_lasti, "")
        if before in self.LOOKS:
            self.count += 1
            if self.count == self.at:
                sys.settrace(None)
                raise KeyboardInterrupt


def interruptions(use: Callable[[CtrlC], None]) -> Iterator[int]:
    """Uses it with Ctrl-C at one place after another, until there are no more."""
    at = 0
    while True:
        at += 1
        with CtrlC(at) as ctrl_c:
            try:
                use(ctrl_c)
            except KeyboardInterrupt:
                pass
        yield at
        if ctrl_c.count < at:
            return


def test_ctrl_c_anywhere_inside_start_leaves_no_run_that_never_ends() -> None:
    quick.run().result()  # the background loop is there
    runs: list[Any] = []

    def use(_: CtrlC) -> None:
        runs.append(quick.run())
        runs[-1].start()

    for at in interruptions(use):
        if not runs:
            continue
        run = runs.pop()
        outcome = run._execution.done.block_until(run._execution.is_over, PATIENCE) if run._execution.is_begun else True
        assert outcome, f"never ended, with Ctrl-C at place {at}"
        if run.outcome is None:
            run.close(PATIENCE)
        assert list(run.events())[-1].is_terminal


def test_ctrl_c_anywhere_inside_cancel_leaves_no_stop_that_is_lost() -> None:
    for at in interruptions(lambda _: _start_and_cancel()):
        run = RUNS.pop()
        if run.is_cancelling or run.is_done:
            assert run._execution.done.block_until(run._execution.is_over, PATIENCE), f"Ctrl-C at place {at}"
        run.close(PATIENCE)


RUNS: list[Any] = []


def _start_and_cancel() -> None:
    trace = sys.gettrace()
    sys.settrace(None)
    RUNS.append(sleeper.run().start())
    sys.settrace(trace)
    RUNS[-1].cancel()


# -- threads that emit as the body returns


@pytest.mark.parametrize("_", range(5))
def test_what_a_bound_thread_was_allowed_to_emit_as_the_body_returned_is_in_the_log(_: int) -> None:
    asyncio.run(_emit_as_the_body_returns())


async def _emit_as_the_body_returns() -> None:
    accepted: list[int] = []
    threads: list[threading.Thread] = []

    @runnable
    async def body(ctx: Any) -> None:
        def flood() -> None:
            try:
                for number in range(1_000_000):
                    ctx.emit("number", number)
                    accepted.append(number)
            except UsageError:
                pass

        threads.extend(threading.Thread(target=ctx.run.bind(flood)) for _ in range(2))
        for thread in threads:
            thread.start()
        await asyncio.sleep(0.02)

    run = body.run()
    await run
    for thread in threads:
        await asyncio.to_thread(thread.join)
    written = [event.data async for event in run.events() if isinstance(event, events.Custom)]
    assert sorted(written) == sorted(accepted)


# -- loops that are closed, paused, shut down


def test_a_waiter_in_another_thread_wakes_when_the_loop_of_the_run_is_closed_by_hand() -> None:
    loop = new_event_loop()

    async def begin() -> Any:
        return sleeper.run().start()

    run = loop.run_until_complete(begin())
    ended: list[Any] = []
    waiter = threading.Thread(target=lambda: ended.append(asyncio.run(run.finished())))
    waiter.start()
    time.sleep(0.05)  # it waits by now, or will find the loop closed
    loop.close()
    waiter.join(PATIENCE)
    assert [result.status for result in ended] == ["cancelled"]


def test_a_stop_between_two_calls_of_run_until_complete_severs_at_once() -> None:
    loop = new_event_loop()
    severed: list[bool] = []

    @runnable
    async def body(ctx: Any) -> None:
        ctx.resource("socket", "a socket", None, sever=lambda: severed.append(True))
        await asyncio.sleep(1_000)

    async def begin() -> Any:
        run = body.run(grace=0.1).start()
        await asyncio.sleep(0.01)
        return run

    run = loop.run_until_complete(begin())
    run.cancel()
    assert severed
    loop.run_until_complete(run.finished())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


@virtual
@pytest.mark.parametrize("grace", [None, 5.0])
async def test_shutdown_returns_although_a_supervisor_restarts_its_runs(grace: float | None) -> None:
    ends: list[Any] = []

    async def supervise() -> None:
        while len(ends) < 10_000:
            try:
                await sleeper.run()
            except RunCancelled as stopped:
                ends.append(stopped.cancellation)

    supervisor = asyncio.ensure_future(supervise())
    await asyncio.sleep(1)
    await asyncio.wait_for(runtime().shutdown(grace=grace), 60)
    assert ends
    assert all(end.reason == "shutdown" for end in ends)
    supervisor.cancel()
    await asyncio.wait([supervisor])
    assert (await quick.run()).output == "done"  # afterwards it works again


# -- depth


@virtual
@pytest.mark.parametrize("how", ["completes", "stops", "lets go"])
async def test_runs_nested_deep_end_as_any_other(how: str) -> None:
    made: list[Any] = []

    @runnable
    async def nested(ctx: Any, left: int) -> int:
        made.append(ctx.run)
        if left == 0:
            if how == "stops":
                await asyncio.sleep(1_000)
            return 0
        if how == "lets go":
            ctx.start(nested, left - 1)
            await asyncio.sleep(1)
            return 0
        return 1 + (await nested.run(left - 1)).output

    run = nested.run(480, grace=60)
    run.start()
    if how == "stops":
        await asyncio.sleep(1)
        run.cancel()
    result = await asyncio.wait_for(run.finished(), 100)
    assert result.status == ("cancelled" if how == "stops" else "completed"), result
    assert len(made) == 481
    assert all(each.is_done for each in made)


@virtual
async def test_runs_nested_without_end_are_refused_by_name() -> None:
    @runnable
    async def endless(ctx: Any) -> None:
        try:
            await endless.run()
        except TooDeep as error:
            refused.append(error)

    refused: list[TooDeep] = []
    await endless.run()
    assert len(refused) == 1
    assert "1000" in str(refused[0])


def test_tokens_nested_deep_are_looked_at_and_told() -> None:
    root = token = CancellationToken()
    for _ in range(900):
        token = token.child()
    told = threading.Event()
    registration = token.on_cancel(told.set)
    assert not token.is_cancelled
    root.cancel("now")
    assert token.is_cancelled
    assert told.wait(PATIENCE)
    registration.close()
    assert not root._below
    for _ in range(99):
        token = token.child()
    with pytest.raises(TooDeep):
        token.child()


# -- what only Halter writes, and odd values


@virtual
async def test_a_body_cannot_write_the_events_of_the_run_itself() -> None:
    @runnable
    async def body(ctx: Any) -> None:
        for kind in (events.Completed, events.Cancelled, events.Started, events.Queued):
            with pytest.raises(UsageError, match=kind.__name__):
                ctx.write(kind)

    run = body.run()
    await run
    assert sum([event.is_terminal async for event in run.events()]) == 1


@virtual
async def test_a_stop_with_odd_values_is_written_down_and_can_be_read_back() -> None:
    run = sleeper.run().start()
    await asyncio.sleep(1)
    run.cancel(123, actor=["me"])  # pyright: ignore[reportArgumentType]
    result = await run.finished()
    assert result.cancellation is not None
    assert (result.cancellation.message, result.cancellation.actor) == ("123", "['me']")
    for event in [event async for event in run.events()]:
        assert events.decode(events.encode(event)).type == event.type


@virtual
async def test_close_on_a_loop_raises_and_stops_nothing() -> None:
    run = sleeper.run().start()
    with pytest.raises(BlockingCallError):
        run.close()
    assert not run.is_cancelling
    await run.aclose()


def test_an_async_form_under_another_framework_raises_before_the_run_begins() -> None:
    for form in ("wait", "finished", "aclose", "__aenter__"):
        run = sleeper.run()
        with pytest.raises(UsageError, match="asyncio"):
            getattr(run, form)().send(None)
        assert run.status == "queued"
    run = sleeper.run()
    with pytest.raises(UsageError, match="asyncio"):
        run.__aiter__().__anext__().send(None)
    assert run.status == "queued"
