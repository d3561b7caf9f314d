"""The tool calls of one turn: all at once, or in order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from halter.core.attaching import Takes
from halter.core.call import After, Before, Call
from halter.core.context import RunContext
from halter.core.ports import Tool
from halter.messages import Message, ToolCall, ToolResult


async def call_tools(
    ctx: RunContext,
    requests: Sequence[ToolCall],
    tools: Mapping[str, Tool],
    *,
    in_order: bool = False,
    before: Before | None = None,
    after: After | None = None,
    takes: Takes | None = None,
) -> tuple[ToolResult, ...]:
    """Runs the calls of one answer, all at once or in order, and adds their results to the conversation.

    Whatever goes wrong with a call is told to the model in its result; `SystemExit` and `KeyboardInterrupt` alone are
    raised here. `before(ctx, call)` may return another call or, as text, the result; `after(ctx, call, result)` another
    result. `takes(part)` raises `ConfigurationError` for an image or a file that the model does not take: the
    result says so. Cancelled: what has not begun never does, and the end of the run seals the rest.
    """
    await ctx.committed()  # what is asked for is on record before it can have any effect
    execution = ctx._execution
    calls = execution.calls = [Call(execution, request, tools, before, after, takes) for request in requests]
    execution.announced = ()
    for call in calls:
        ctx.token.raise_if_cancelled()
        call.start()
        if in_order:
            await _all_ended([call])
    await _all_ended(calls)
    results = tuple(call.result for call in calls if call.result is not None)
    execution.calls = []
    execution.add(Message("tool", results))
    return results


async def _all_ended(calls: Sequence[Call]) -> None:
    done, _ = await asyncio.wait([call.ended for call in calls], return_when=asyncio.FIRST_EXCEPTION)
    for future in done:
        future.result()
