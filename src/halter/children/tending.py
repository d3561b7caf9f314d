"""A child process as a part of one tool call: ended by whatever ends the call, and told in the receipt as it was."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from halter.children.child import Child
from halter.children.work import Work
from halter.core.tool_context import ToolContext
from halter.outcome import CancelMode, Ended

LABEL = 60  # characters of a command in the receipt


@asynccontextmanager
async def tended(child: Child, label: str, grace: float, ctx: ToolContext) -> AsyncGenerator[Child]:
    """The block starts the child. At the end of the block, at the call's time-out and at a stop, its whole tree is
    ended: TERM, then KILL.

    `grace`: seconds between the two; a stop gives no more than half of its own, a `kill` none, whenever it comes.
    Leaving waits until nothing of it is left, but for a `kill`. Cancellation-safe: cancelled while it waits, the ending
    goes on, and the call's run waits for it.
    """

    child.work = Work(ctx.run_id, ctx.call_id, label, time.monotonic())

    def is_killed() -> bool:
        cancellation = ctx.token.cancellation
        return cancellation is not None and cancellation.mode is CancelMode.KILL

    def end(grace: float) -> asyncio.Future[Ended]:
        return child.end(0 if is_killed() else grace, is_killed)

    resource = ctx.resource(
        "process", _cut(label), lambda: end(min(grace, ctx.grace / 2)), last_resort=child.kill_group
    )
    child.gone.add_done_callback(lambda gone: resource.end(gone.result()))
    try:
        yield child
    finally:
        gone = end(grace)
        if not is_killed():
            await asyncio.shield(gone)


def _cut(label: str) -> str:
    line = " ".join(label.split())
    return line if len(line) <= LABEL else f"{line[: LABEL - 1]}…"
