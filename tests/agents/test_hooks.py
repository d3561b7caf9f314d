"""Hooks: called where they say, plain or async; what they change is changed; one that fails fails what it is around."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from halter import Agent, CancelMode, RunContext, RunFailed, RunResult, events
from halter.errors import BusyError, ConfigurationError
from halter.hooks import Hooks
from halter.messages import Message, ToolCall, ToolResult
from halter.models.scripted import Scripted, calls
from halter.request import ModelRequest
from halter.tools import ToolError

pytestmark = [pytest.mark.virtual_time, pytest.mark.usefixtures("quiet")]


async def look(city: str = "Kyoto") -> str:
    await asyncio.sleep(1)
    return f"sunny in {city}"


def agent_of(hooks: Hooks, *script: Any, **options: Any) -> Agent[Any]:
    return Agent(Scripted(*(script or (calls("look"), "done"))), tools=[look], hooks=hooks, **options)


def results_in(result: RunResult[Any]) -> list[str]:
    return [part.content for message in result.messages for part in message.parts if isinstance(part, ToolResult)]


class Diary(Hooks):
    """Writes down what it is called with."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def before_run(self, ctx: RunContext) -> None:
        self.told.append("before_run")

    def after_run(self, ctx: RunContext, output: Any) -> None:
        self.told.append(("after_run", output))

    def before_model(self, ctx: RunContext, request: ModelRequest) -> None:
        self.told.append(("before_model", len(request.messages)))

    def after_model(self, ctx: RunContext, answer: Message) -> None:
        self.told.append(("after_model", answer.text))

    def before_tool(self, ctx: RunContext, call: ToolCall) -> None:
        self.told.append(("before_tool", call.name))

    def after_tool(self, ctx: RunContext, call: ToolCall, result: ToolResult) -> None:
        self.told.append(("after_tool", result.content))

    def on_cancel(self, ctx: RunContext, cancellation: Any) -> None:
        self.told.append(("on_cancel", cancellation.message))


class Later(Hooks):
    """The same, after an await."""

    def __init__(self) -> None:
        self._diary = Diary()
        self.told = self._diary.told

    async def before_run(self, ctx: RunContext) -> None:
        await asyncio.sleep(1)
        self._diary.before_run(ctx)

    async def after_run(self, ctx: RunContext, output: Any) -> None:
        await asyncio.sleep(1)
        self._diary.after_run(ctx, output)

    async def before_model(self, ctx: RunContext, request: ModelRequest) -> None:
        await asyncio.sleep(1)
        self._diary.before_model(ctx, request)

    async def after_model(self, ctx: RunContext, answer: Message) -> None:
        await asyncio.sleep(1)
        self._diary.after_model(ctx, answer)

    async def before_tool(self, ctx: RunContext, call: ToolCall) -> None:
        await asyncio.sleep(1)
        self._diary.before_tool(ctx, call)

    async def after_tool(self, ctx: RunContext, call: ToolCall, result: ToolResult) -> None:
        await asyncio.sleep(1)
        self._diary.after_tool(ctx, call, result)

    async def on_cancel(self, ctx: RunContext, cancellation: Any) -> None:
        await asyncio.sleep(1)
        self._diary.on_cancel(ctx, cancellation)


WHOLE = [
    "before_run",
    ("before_model", 1),
    ("after_model", ""),
    ("before_tool", "look"),
    ("after_tool", "sunny in Kyoto"),
    ("before_model", 3),
    ("after_model", "done"),
    ("after_run", "done"),
]


@pytest.mark.parametrize("kind", [Diary, Later])
async def test_each_hook_is_called_where_it_says_plain_or_async(kind: type[Diary | Later]) -> None:
    """In order, once for each; `on_cancel` is not, where nothing was stopped."""
    hooks = kind()
    await agent_of(hooks).run("hi")
    assert hooks.told == WHOLE


@pytest.mark.parametrize("kind", [Diary, Later])
async def test_on_cancel_is_called_once_at_the_cut_and_awaited(kind: type[Diary | Later]) -> None:
    """With who stopped it and why; a second, stronger stop does not call it again; no `after_…` follows."""
    hooks = kind()
    run = agent_of(hooks).run("hi", grace=5).start()
    async for event in run.events():
        if isinstance(event, events.ToolStarted):
            break
    run.cancel("enough")
    run.cancel("and now", mode=CancelMode.IMMEDIATE)
    await run.finished()
    assert hooks.told[-2:] == [("before_tool", "look"), ("on_cancel", "enough")]


async def test_a_stop_before_the_run_began_calls_nothing() -> None:
    """There is nothing to tell."""
    hooks = Diary()
    run = agent_of(hooks).run("hi")
    run.cancel()
    await run.finished()
    assert hooks.told == []


# --- changing -----------------------------------------------------------------------------------------------


async def test_a_request_that_before_model_returns_is_asked_instead() -> None:
    """The conversation that is kept is the run's own."""

    class Shorter(Hooks):
        def before_model(self, ctx: RunContext, request: ModelRequest) -> ModelRequest:
            return msgspec.structs.replace(request, messages=(*request.messages, Message.assistant("x")))

    result = await agent_of(Shorter(), "first", "second").run("hi")
    assert result.text == "second"
    assert [message.text for message in result.messages] == ["hi", "second"]


async def test_a_call_that_before_tool_returns_is_run_instead() -> None:
    """Under the model's own id: it has one result."""

    class Elsewhere(Hooks):
        async def before_tool(self, ctx: RunContext, call: ToolCall) -> ToolCall:
            return ToolCall("another", call.name, '{"city": "Nara"}')

    result = await agent_of(Elsewhere()).run("hi")
    (call,) = result.messages[1].tool_calls
    (part,) = result.messages[2].parts
    assert part == ToolResult(call.id, "sunny in Nara")


@pytest.mark.parametrize("text", ["not today", ""])
async def test_a_text_that_before_tool_returns_is_the_result_and_nothing_runs(text: str) -> None:
    """The empty text too."""

    class Refusing(Hooks):
        def before_tool(self, ctx: RunContext, call: ToolCall) -> str:
            return text

    run = agent_of(Refusing()).run("hi")
    assert results_in(await run) == [text]
    assert not [event async for event in run.events() if isinstance(event, events.ToolStarted)]


async def test_a_text_that_after_tool_returns_goes_to_the_model_instead() -> None:
    """Also in place of an error, which stays one."""

    class Translating(Hooks):
        async def after_tool(self, ctx: RunContext, call: ToolCall, result: ToolResult) -> str:
            return result.content.upper()

    result = await agent_of(Translating(), (calls("look"), calls("nowhere")), "done").run("hi")
    parts = [part for part in result.messages[2].parts if isinstance(part, ToolResult)]
    assert [(part.content, part.is_error) for part in parts] == [
        ("SUNNY IN KYOTO", False),
        ("THERE IS NO TOOL 'NOWHERE'. THERE ARE: LOOK.", True),
    ]


# --- failing ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["before_run", "after_run", "before_model", "after_model"])
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_a_hook_that_raises_fails_the_run(name: str, is_async: bool) -> None:
    """With its own exception as the cause; each call in the log has its end."""

    def fail(*_: Any) -> None:
        raise LookupError("the hook")

    async def fail_async(*_: Any) -> None:
        fail()

    hooks = type("Failing", (Hooks,), {name: staticmethod(fail_async if is_async else fail)})()
    run = agent_of(hooks).run("hi")
    with pytest.raises(RunFailed, match="LookupError: the hook"):
        await run
    types = [event.type async for event in run.events()]
    assert types.count("tool.called") == types.count("tool.finished")


async def test_before_tool_refuses_a_call_with_a_tool_error() -> None:
    """The model reads its text as the call's error."""

    class Guard(Hooks):
        def before_tool(self, ctx: RunContext, call: ToolCall) -> None:
            raise ToolError("ask somebody else")

    assert results_in(await agent_of(Guard()).run("hi")) == ["ask somebody else"]


@pytest.mark.scenario("J90")
async def test_an_on_cancel_that_raises_does_not_hold_up_the_stop() -> None:
    """It is logged; the receipt does not say that it ended well."""

    class Failing(Hooks):
        def on_cancel(self, ctx: RunContext, cancellation: Any) -> None:
            raise LookupError("the hook")

    run = agent_of(Failing()).run("hi", grace=5).start()
    await asyncio.sleep(0.5)
    run.cancel()
    result = await run.finished()
    assert asyncio.get_running_loop().time() == 0.5
    assert result.is_cancelled
    assert result.receipt is not None
    assert [line.ended for line in result.receipt.resources if line.kind == "callback"] == ["abandoned"]


@pytest.mark.scenario("J90")
async def test_an_on_cancel_that_never_ends_is_abandoned_at_the_end_of_the_grace() -> None:
    """Of the hooks and of a tool: named, and the stop is over."""

    class Endless(Hooks):
        async def on_cancel(self, ctx: RunContext, cancellation: Any) -> None:
            await asyncio.sleep(20)

    async def work(ctx: Any) -> None:
        ctx.on_cancel(lambda: asyncio.sleep(20))
        await asyncio.sleep(100)

    run = Agent(Scripted(calls("work")), tools=[work], hooks=Endless()).run("hi", grace=2).start()
    await asyncio.sleep(1)
    run.cancel()
    result = await run.finished()
    assert asyncio.get_running_loop().time() == 3
    assert result.receipt is not None
    assert [line.ended for line in result.receipt.resources if line.kind == "callback"] == ["abandoned"] * 2
    await asyncio.sleep(20)  # what was abandoned goes on, and ends by itself


@pytest.mark.scenario("J90")
async def test_an_on_cancel_may_call_back_into_the_run() -> None:
    """Stopping it again, harder, is what it is; waiting for it is refused; sending says no. Nobody hangs."""
    seen: list[Any] = []

    class Reentrant(Hooks):
        async def on_cancel(self, ctx: RunContext, cancellation: Any) -> None:
            seen.append(ctx.run.cancel("again"))
            seen.append(ctx.run.send("more"))
            try:
                await ctx.run.finished()
            except BusyError:
                seen.append("busy")

    run = agent_of(Reentrant()).run("hi", grace=2).start()
    await asyncio.sleep(0.5)
    run.cancel("enough")
    result = await run.finished()
    assert result.cancellation is not None
    assert result.cancellation.message == "enough"
    assert seen[:2] == [True, False]


def test_only_hooks_are_hooks() -> None:
    """A function is not; a clear error where the agent is made."""
    with pytest.raises(ConfigurationError, match="hooks must be Hooks"):
        Agent("scripted:hi", hooks=print)  # type: ignore[arg-type]
