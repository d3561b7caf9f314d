"""Anything that runs as a tool: an agent inside an agent."""

from __future__ import annotations

import re
from typing import Annotated, Any

from halter.core.runnable import Runnable
from halter.core.tool_context import ToolContext
from halter.tools.function import FunctionTool, tool

_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]+")


def as_tool(
    runnable: Runnable[Any], *, name: str | None = None, description: str | None = None
) -> FunctionTool[..., Any]:
    """`runnable` as a tool that takes one text, its input, and gives its output.

    Each call is a run of its own under the run that calls it: its events are in that run's stream, a stop reaches it,
    a budget covers it; it has that run's `context` and grace. One that fails or is stopped alone is told to the model,
    and stops nothing else.
    """

    async def call(input: Annotated[str, "What it should do, with all that it has to know."], ctx: ToolContext) -> Any:
        return (await ctx.start(runnable, input, context=ctx.context, grace=ctx.grace)).output

    return tool(
        call,
        name=name or _NOT_IN_A_NAME.sub("_", runnable.name),
        description=description or runnable.description or f"Asks {runnable.name}.",
    )
