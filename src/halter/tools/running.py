"""One program within one tool call: run to its end, its time-out or a stop; and what the model is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from halter import checked
from halter.children.child import Child
from halter.children.tending import tended
from halter.core.settings import seconds
from halter.core.tool_context import ToolContext
from halter.errors import ToolError
from halter.outcome import Ended
from halter.tools.output import Output, Showing
from halter.tools.surroundings import Surroundings


@dataclass(frozen=True, slots=True)
class Limits:
    """`timeout`: seconds for one program, `None` for no limit. `max_output`: characters. `term_grace`: seconds."""

    timeout: float | None
    max_output: int
    term_grace: float

    @classmethod
    def of(cls, timeout: object, max_output: object, term_grace: object) -> Limits:
        """From what a definition says. Raises `ConfigurationError`."""
        limit = seconds("timeout", timeout, or_none=True, above_zero=True)
        most = checked.whole("max_output", max_output, at_least=1)
        return cls(limit, most, seconds("term_grace", term_grace) or 0.0)

    def time_for(self, asked: float | None) -> float | None:
        """What a model gets that asks for so many seconds. Raises `ToolError` for what is no time."""
        if asked is None:
            return self.timeout
        if not asked > 0:
            raise ToolError(f"timeout must be more than 0 seconds, not {asked:g}")
        return asked if self.timeout is None else min(asked, self.timeout)


async def run(
    argv: Sequence[str], label: str, where: Surroundings, limits: Limits, timeout: float | None, ctx: ToolContext
) -> str:
    """Runs it; returns what it has said, and how it ended if that was not with code 0.

    What it says is shown as `tool.progress` meanwhile. Raises `ToolError` if it could not be started, or if its time
    was over; with what it had said by then.
    """
    output = Output(limits.max_output)
    showing = Showing(ctx.progress, limits.max_output, asyncio.get_running_loop().call_later)
    child = Child(lambda data: showing.add(output.feed(data)))
    try:
        async with tended(child, label, limits.term_grace, ctx), asyncio.timeout(timeout):
            await where.start(child, argv)
            await child.wait()
    except TimeoutError:
        raise ToolError(
            _with_last_line(output, f"not done after {timeout:g} s: ended, with all it had started")
        ) from None
    finally:
        showing.add(output.finish())
        showing.flush()
        ctx.so_far(output.text)
    return _with_last_line(output, *_how_it_ended(child, where))


def _how_it_ended(child: Child, where: Surroundings) -> list[str]:
    """What there is to say about the end of a process that nobody has ended; nothing, if all was well."""
    said = [] if child.code == 0 else [child.how_it_ended]
    # A sandbox ends what is left in it by itself, and may be at it still.
    is_free = where.sandboxed.sandbox is None
    if is_free and child.gone.done() and child.gone.result() in (Ended.TERMINATED, Ended.KILLED):
        said.append("what it had left running was ended")
    return said


def _with_last_line(output: Output, *said: str) -> str:
    text = output.text
    line = f"({'; '.join(said)})" if said else ""
    return "\n".join(filter(None, (text.removesuffix("\n") if line else text, line)))
