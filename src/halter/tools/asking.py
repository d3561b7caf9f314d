"""A tool by which the model asks the person: the run waits for `run.answer(…)`, and a stop takes the question back."""

from __future__ import annotations

from typing import Annotated

from halter.core.settings import seconds
from halter.core.tool_context import ToolContext
from halter.errors import ToolError
from halter.tools.function import FunctionTool, as_text, tool

MOST_OPTIONS = 20


def ask_user(*, timeout: float | None = 600.0, name: str = "ask_user") -> FunctionTool[..., object]:
    """A tool that asks the person a question, as an `input.requested` event, and returns the answer.

    `timeout`: seconds for the answer; then the model is told that nobody answered. `None`: it waits for as long as the
    run does. Raises `ConfigurationError`.
    """
    patience = seconds("timeout", timeout, or_none=True, above_zero=True)

    async def ask_user(
        question: Annotated[str, "What to ask; the person may not know what you were about to do."],
        ctx: ToolContext,
        options: Annotated[list[str] | None, "The answers to choose from, if not any text will do."] = None,
    ) -> str:
        """Asks the person whom you work for, and waits for the answer. For what only they can know or decide."""
        choices = tuple(options or ())
        if len(choices) > MOST_OPTIONS:
            raise ToolError(f"give {MOST_OPTIONS} options at most")
        try:
            answer = await ctx.ask(question, options=choices, timeout=patience, call_id=ctx.call_id)
        except TimeoutError:
            return f"Nobody answered within {patience:g} seconds. Go on without an answer, or say what you need."
        return as_text(answer)

    return tool(ask_user, name=name)
