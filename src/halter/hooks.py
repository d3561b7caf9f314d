"""`Hooks`: where your code looks into an agent's run, and may change what it does."""

from __future__ import annotations

import inspect
from typing import Any

from halter.core.calling import call_function, is_async
from halter.core.context import RunContext
from halter.core.threads import call_in_thread
from halter.core.tool_context import ToolContext
from halter.messages import Message, ToolCall, ToolResult
from halter.outcome import Cancellation
from halter.request import ModelRequest


class Hooks:
    """Override what you need, as plain or async methods; what they are not overridden for costs nothing.

    An async one is called on the run's loop, a plain one in a thread, which may block. One that raises fails the run;
    around a tool, the call. They are shared by all runs of an agent, which may call them at once from several threads:
    keep what belongs to a run in `ctx.context`.
    """

    def before_run(self, ctx: RunContext) -> Any:
        """A run of the agent begins."""

    def after_run(self, ctx: RunContext, output: Any) -> Any:
        """It is about to complete with this output. Not called for one that fails or is stopped."""

    def before_model(self, ctx: RunContext, request: ModelRequest) -> Any:
        """The model is about to be asked; a `ModelRequest` that is returned is asked instead."""

    def after_model(self, ctx: RunContext, answer: Message) -> Any:
        """The model has answered, whole."""

    def before_tool(self, ctx: ToolContext, call: ToolCall) -> Any:
        """A tool is about to be called, before its arguments are looked at and anybody is asked.

        A `ToolCall` that is returned is run instead; a text is the call's result, and nothing runs. `ToolError` refuses
        the call, with what the model is told.
        """

    def after_tool(self, ctx: ToolContext, call: ToolCall, result: ToolResult) -> Any:
        """A call has ended, not by a stop; a text that is returned goes to the model instead."""

    def on_cancel(self, ctx: RunContext, cancellation: Cancellation) -> Any:
        """The run is being stopped: called once, at the cut, and awaited within the grace.

        A plain one that is still at work when the grace is over is left behind, and named in the receipt.
        """


def overrides(hooks: Hooks | None, name: str) -> bool:
    """True if there is something to call."""
    return hooks is not None and getattr(type(hooks), name) is not getattr(Hooks, name)


async def called(hooks: Hooks | None, name: str, ctx: RunContext, *args: Any) -> Any:
    """What the hook says; `None` where there is none."""
    if hooks is None or not overrides(hooks, name):
        return None
    fn = getattr(hooks, name)
    if is_async(fn) or not ctx.run.is_cancelling:
        return await call_function(ctx, fn, ctx, *args)
    # The run starts no threads of its own any more; the stop, or a call that it spares, waits for this one.
    said = await call_in_thread(fn, ctx, *args)
    return await said if inspect.isawaitable(said) else said
