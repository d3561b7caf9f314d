"""`halter demo`: the promise, kept before your eyes; every figure is from the provider's own record."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

from halter import Agent, Run, cancel_on_signals
from halter.cli.columns import Columns
from halter.core.lockfree import ThreadWaker
from halter.errors import ConfigurationError
from halter.events import TextDelta
from halter.models import OpenAIChat
from halter.models.routes import openai_model
from halter.proof.wire import Record, Wire

QUESTION = "Write about 400 words on rivers."
HALF = 200  # words of the answer
INSTRUCTIONS = "Write plain prose without headings."


def demo(*, model: str | None = None, base_url: str | None = None, pace_ms: float = 20.0) -> int:
    """Runs all acts and prints what happened. Returns the exit code: 1 if a stop was not what it should be."""
    with ExitStack() as stack:
        stage: Stage = _real_stage(model, base_url) if model or base_url else stack.enter_context(_Recorded(pace_ms))
        print(f"Halter demo: {stage.introduction}\n")
        asyncio.run(_side_by_side(stage))
        if isinstance(stage, _Recorded):
            asyncio.run(_stopped_by_a_task(stage, "3. A provider that stalls after 5 words", "stall(5)", words=5))
            asyncio.run(_stopped_by_a_task(stage, "4. A provider that never answers", "no-headers", words=0))
        _stopped_by_sigint(stage)
        return stage.verdict()


# --- where it plays -----------------------------------------------------------------------------------------


class Stage:
    """Where the answers come from."""

    introduction = ""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def agent(self, tag: str, mode: str | None = None) -> Agent:
        raise NotImplementedError

    def report(self, run: Run[str], asked: float, tag: str) -> None:
        """Prints how the stop of `run`, asked for at `asked` (monotonic seconds), went."""
        result = run.outcome
        receipt = result.receipt if result is not None else None
        if receipt is None:
            print("   it had ended before it could be stopped: ask for a longer answer")
            self.failed.append(tag)
            return
        print("   receipt: " + str(receipt).replace("\n", "\n          "))
        if not receipt.confirmed:
            self.failed.append(tag)

    def verdict(self) -> int:
        if self.failed:
            print(f"NOT as promised: {', '.join(self.failed)}")
            return 1
        print("Every stop closed its socket, nothing was sent after it, and the other run noticed nothing.")
        return 0


class _Real(Stage):
    """A real provider: it keeps no record for us, so the receipt has to do."""

    def __init__(self, agent: Agent, name: str) -> None:
        super().__init__()
        self._agent = agent
        self.introduction = f"with {name}; a real provider shows us no record, so the figures are our receipts'."

    def agent(self, tag: str, mode: str | None = None) -> Agent:
        return self._agent

    def verdict(self) -> int:
        if self.failed:
            return super().verdict()
        print("Every stop was confirmed: our socket was gone when the receipt was written.")
        return 0


def _real_stage(model: str | None, base_url: str | None) -> Stage:
    if not base_url:
        assert model is not None
        return _Real(Agent(model, instructions=INSTRUCTIONS), model)
    if not model:
        raise ConfigurationError("--base-url needs --model too: the name of a model that server has")
    chat = openai_model(model.removeprefix("openai:"), base_url=base_url)
    return _Real(Agent(chat, instructions=INSTRUCTIONS), f"{chat.name} at {base_url}")


class _Recorded(Stage):
    """The recording provider, in a process of its own."""

    introduction = "a recording provider runs beside it and notes when its clients go away."

    def __init__(self, pace_ms: float) -> None:
        super().__init__()
        self._wire = Wire.start()
        self._text_mode = f"text({pace_ms:g})"

    def __enter__(self) -> _Recorded:
        return self

    def __exit__(self, *_: object) -> None:
        self._wire.close()

    def agent(self, tag: str, mode: str | None = None) -> Agent:
        url = self._wire.url(mode or self._text_mode, tag)
        return Agent(OpenAIChat("rivers", base_url=url, api_key=""), instructions=INSTRUCTIONS)

    def record(self, tag: str, state: str = "closed") -> Record:
        return self._wire.wait("closed" if state == "closed" else "finished", tag=tag)[-1]

    def report(self, run: Run[str], asked: float, tag: str) -> None:
        record = self.record(tag)
        closed_at = record.closed_at or float("inf")
        late = sum(at > closed_at for at in record.token_times)
        on_the_way = sum(asked < at <= closed_at for at in record.token_times)
        _figure("stop asked", "at 0.000 ms")
        _figure("the provider saw the socket close", f"{(closed_at - asked) * 1e3:.3f} ms later")
        _figure("tokens it sent in between, and after", f"{on_the_way} and {late} (of {record.tokens_sent} in all)")
        super().report(run, asked, tag)
        if late or closed_at - asked > 0.25:
            self.failed.append(tag)


def _figure(name: str, value: str) -> None:
    print(f"   {name:<38} {value}")


# --- the acts -----------------------------------------------------------------------------------------------


async def _side_by_side(stage: Stage) -> None:
    print("1. Two answers; at half of the left one, another thread stops it")
    left, right = (stage.agent(tag).run(QUESTION) for tag in ("left", "right"))
    stopper = _Stopper(lambda: left.cancel("half of it is enough", actor="a thread"))
    with Columns(sys.stdout, "left", "right") as columns:
        async with asyncio.TaskGroup() as group:
            group.create_task(_show(left, columns, 0, stopper))
            group.create_task(_show(right, columns, 1, None))
    print()
    stage.report(left, stopper.asked, "left")
    print("\n2. The other one")
    words = len(right.text.split())
    _figure("went on to its end", f"{right.status}, {words} words ({len(left.text.split())} in the stopped one)")
    print()


async def _show(run: Run[str], columns: Columns, column: int, stopper: _Stopper | None) -> None:
    words = 0
    async with run:
        async for text in run.text_stream():
            columns.add(column, text)
            words += len(text.split())
            if stopper is not None and words >= HALF:
                stopper.now()
        await run.finished()
    columns.note(column, f"-- {run.why()}")


async def _stopped_by_a_task(stage: _Recorded, title: str, mode: str, *, words: int) -> None:
    print(title + "; a task stops it")
    tag = mode.split("(")[0]
    run = stage.agent(tag, mode).run(QUESTION).start()
    reader = run.events()
    seen = 0
    while seen < words:
        seen += isinstance(await anext(reader), TextDelta)
    await asyncio.sleep(0.3)  # nothing comes any more
    asked = time.monotonic()
    run.cancel("it does not answer")
    await run.finished()
    stage.report(run, asked, tag)
    print()


def _stopped_by_sigint(stage: Stage) -> None:
    print("5. A blocking `for` loop, stopped by a real SIGINT")
    run = stage.agent("sigint").run(QUESTION)
    stopper = _Stopper(lambda: os.kill(os.getpid(), signal.SIGINT))
    words = 0
    with cancel_on_signals(run, signal.SIGINT):
        for text in run.text_stream():
            words += len(text.split())
            if words >= 20:
                stopper.now()
    stage.report(run, stopper.asked, "sigint")
    print()


class _Stopper:
    """Another thread that stops something once it is told to, and notes when."""

    def __init__(self, stop: Callable[[], object]) -> None:
        self.asked = 0.0
        self._stop = stop
        self._waker = ThreadWaker()
        self._told = False
        threading.Thread(target=self._work, daemon=True).start()

    def now(self) -> None:
        """Stops it, once; returns at once."""
        if not self._told:
            self._told = True
            self._waker.wake(threadsafe=True)

    def _work(self) -> None:
        self._waker.wait()
        self.asked = time.monotonic()
        self._stop()
