"""A run ends, once, and says why, whatever a user's value, exception or model does."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from halter import Agent, CancellationToken, Message, RunFailed, RunResult, RunStatus, events, runnable, tool
from halter.core import finishing, sealing
from halter.errors import ConfigurationError, UsageError
from halter.messages import Text, ToolCall, Usage
from halter.models.scripted import Scripted, calls
from halter.request import ModelRequest

pytestmark = [pytest.mark.scenario("K98")]
virtual = pytest.mark.virtual_time
FINISHING = {finishing.__file__, sealing.__file__}


class Unspeakable(Exception):
    """An error about which nothing can be asked."""

    def __str__(self) -> str:
        raise RuntimeError("__str__ raises")

    def __repr__(self) -> str:
        raise RuntimeError("__repr__ raises")

    @property
    def retryable(self) -> bool:
        raise RuntimeError("retryable raises")


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("__repr__ raises")


async def ended(run: Any) -> RunResult[Any]:
    return await asyncio.wait_for(run.finished(), 60)


# -- values that a body or a model gives


def says(value: Any) -> Callable[[Any], object]:
    return lambda ctx: ctx.say(value)


def uses(value: Any) -> Callable[[Any], object]:
    def use(ctx: Any) -> None:
        reply = ctx.reply()
        reply.text("so far")
        reply.assembly.usage = value
        reply.finish()

    return use


def replies(method: str, *args: Any) -> Callable[[Any], object]:
    def reply(ctx: Any) -> None:
        answer = ctx.reply()
        getattr(answer, method)(*args)
        answer.finish()

    return reply


WRONG = {
    "text is said": says("text"),
    "None is said": says(None),
    "a message of text is said": says(Message("user", (Text(5),))),  # pyright: ignore[reportArgumentType]
    "a call without a name is said": says(Message("assistant", (ToolCall("1", None, "{}"),))),  # pyright: ignore[reportArgumentType]
    "usage is a dict": uses({"input": 3}),
    "usage counts in words": uses(Usage(input="3")),  # pyright: ignore[reportArgumentType]
    "an answer is bytes": replies("text", b"bytes"),
    "thinking is bytes": replies("reasoning", b"bytes"),
    "a refusal is bytes": replies("refusal", b"bytes"),
    "arguments are a dict": replies("tool_fragment", 0, "id", "name", {"a": 1}),
    "a call's id is a number": replies("tool_fragment", 0, 7, "name", "{}"),
    "a call's name is a number": replies("tool_fragment", 0, "id", 7, "{}"),
    "a resource has a label that cannot be shown": lambda ctx: ctx.resource("task", Unshowable(), None),
    "an event is made of text that is none": lambda ctx: ctx.write(
        events.TextDelta, text=5, message_id="m", first_seq=1
    ),
    "an event is no event": lambda ctx: ctx.write(dict, a=1),
}


@virtual
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
async def test_a_value_of_the_wrong_type_is_refused_where_it_is_given(wrong: Callable[[Any], object]) -> None:
    @runnable
    async def body(ctx: Any) -> None:
        with pytest.raises(UsageError):
            wrong(ctx)
        wrong(ctx)

    result = await ended(body.run())
    assert result.is_failed
    assert isinstance(result.error, UsageError), result.error


class OddModel(Scripted):
    """A model whose answer is no message."""

    def __init__(self, answer: Any) -> None:
        super().__init__("unused")
        self._answer = answer

    async def respond(self, request: ModelRequest, ctx: Any) -> Any:
        return self._answer


@virtual
@pytest.mark.parametrize(
    "answer",
    ["text", None, b"bytes", Message("assistant", (ToolCall("1", None, "{}"),))],  # pyright: ignore[reportArgumentType]
)
async def test_a_model_that_answers_with_no_message_fails_its_run(answer: Any) -> None:
    result = await ended(Agent(OddModel(answer)).run("go"))
    assert result.is_failed
    assert isinstance(result.error, ConfigurationError)


@virtual
async def test_an_error_that_raises_when_it_is_shown_ends_its_run_and_is_shown_by_its_type() -> None:
    @runnable
    async def body(ctx: Any) -> None:
        raise Unspeakable

    run = body.run()
    with pytest.raises(RunFailed, match="Unspeakable") as caught:
        await asyncio.wait_for(run.wait(), 60)
    assert "Unspeakable" in run.why()
    last = [event async for event in run.events()][-1]
    assert isinstance(last, events.Failed)
    assert last.error == events.Failure(type="Unspeakable", message="Unspeakable", retryable=False)
    assert caught.value.result is not None


@virtual
async def test_a_tool_whose_error_cannot_be_shown_tells_the_model_its_type() -> None:
    @tool
    async def breaks() -> str:
        """Breaks."""
        raise Unspeakable

    model = Scripted(calls("breaks"), "done")
    result = await ended(Agent(model, tools=[breaks]).run("go"))
    assert result.is_completed
    assert any("Unspeakable" in str(message.parts) for message in result.messages)


@virtual
async def test_an_output_that_cannot_be_shown_completes_and_is_encoded_by_its_type() -> None:
    @runnable
    async def body(ctx: Any) -> Unshowable:
        ctx.emit("thing", Unshowable())
        return Unshowable()

    run = body.run()
    assert (await ended(run)).is_completed
    assert all(b"Unshowable" in events.encode(event) for event in [e async for e in run.events()][1:])


# -- the last line of defence


class Injected(Exception):
    """Raised where the end of a run is written down."""


class AtCall:
    """Raises in the n-th function that the machinery of a run's end calls."""

    def __init__(self, at: int | None) -> None:
        self.at, self.count = at, 0

    def __enter__(self) -> AtCall:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, what: str, _: object) -> None:
        caller = frame.f_back
        if caller is None or caller.f_code.co_filename not in FINISHING or frame.f_code.co_filename in FINISHING:
            return
        if Path(frame.f_code.co_filename).parts[-3:-2] == ("logging",) or "logging" in frame.f_code.co_filename:
            return
        self.count += 1
        if self.count == self.at:
            raise Injected(f"in {frame.f_code.co_qualname}, called at {caller.f_code.co_name}:{caller.f_lineno}")


@runnable
async def child(ctx: Any) -> str:
    ctx.text("child")
    await asyncio.sleep(100)
    return "child"


@runnable
async def busy(ctx: Any) -> str:
    """Leaves all sorts of things open."""
    ctx.at_end(lambda: ctx.keep("state"))
    ctx.begin_step()
    ctx.reply().tool_fragment(0, "1", "name", "{")
    ctx.text("so far")
    ctx.start(child)
    ctx.begin_compaction("threshold", tokens=1, messages=1)
    asked = asyncio.ensure_future(ctx.ask("which?"))
    await asyncio.sleep(1)
    assert not asked.done()
    if ctx.input == "fails":
        raise ValueError("on purpose")
    if ctx.input == "stops":
        await asyncio.sleep(100)
    return "done"


ENDS = {"completes": RunStatus.COMPLETED, "fails": RunStatus.FAILED, "stops": RunStatus.CANCELLED}


def one_end(how: str, at: int | None) -> tuple[int, RunResult[Any], list[events.Event]]:
    """Ends a busy run so, with an error in one call of its end; how many calls there were."""
    from halter.testing.virtual_time import VirtualTimeLoop

    async def main() -> tuple[int, RunResult[Any], list[events.Event]]:
        token = CancellationToken()
        run = busy.run(how, timeout=1.5 if how == "stops" else None, cancellation=token, grace=0.5)
        over = asyncio.ensure_future(run.finished())
        with AtCall(at) as calls:
            done, _ = await asyncio.wait([over], timeout=60)
        assert done, f"it never ended, with an error at call {at}"
        return calls.count, over.result(), [event async for event in run.events()]

    loop = VirtualTimeLoop()
    try:
        return loop.run_until_complete(main())
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


@pytest.mark.parametrize("how", ENDS)
def test_a_run_ends_once_whichever_step_of_its_end_fails(how: str, caplog: pytest.LogCaptureFixture) -> None:
    steps, result, _ = one_end(how, None)
    assert result.status is ENDS[how]
    assert steps > 20
    for at in range(1, steps + 1):
        caplog.clear()
        _, result, log = one_end(how, at)
        expected = {ENDS[how]} | ({RunStatus.FAILED} if how == "completes" else set())
        assert result.status in expected, (at, result)
        terminal = [event for event in log if event.is_terminal]
        ids = [event.run_id for event in terminal]
        assert len(ids) == len(set(ids)), (at, terminal)
        assert terminal[-1].run_id == result.run_id, (at, terminal)
        assert log[-1] is terminal[-1]
        assert terminal[-1].type == f"run.{result.status}"
        said = [record for record in caplog.records if record.exc_info and isinstance(record.exc_info[1], Injected)]
        assert said, f"the error at call {at} is not logged"
