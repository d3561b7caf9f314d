"""`Task`: what a crew has to do, in words, and what counts as done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from halter import checked
from halter.codec import codec_of
from halter.core.calling import call_function
from halter.core.context import RunContext
from halter.core.runnable import Runnable
from halter.core.settings import seconds
from halter.crews.braces import Inputs, fill
from halter.errors import ConfigurationError, UsageError

Verdict: TypeAlias = bool | str | None
Guardrail: TypeAlias = Callable[[Any], Verdict | Awaitable[Verdict]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """One task of a crew. Immutable; it may stand in several crews.

    `description`: what is to be done; `expected_output`: what the answer should be like; `{names}` in both are filled
    from the run's inputs. `agent`: who does it: a `Member`, an `Agent` or anything else that runs. It may be left out
    under a manager, who then asks whom it likes; if it is given, the manager can ask nobody else.

    `context`: the tasks whose outputs are told; they must stand before it. Left out: all those before it; `()`: none.
    `parallel`: done at once with the tasks next to it that are parallel too; the next one waits for all of them.
    `tools`: for this task, besides the agent's own. `output`: the type of the answer, as for an `Agent`. `timeout`:
    seconds for the task; then the crew fails with `RunTimedOut`. `name`: how its events are marked (`event.task`), and
    its place in the state; default `task 1`, `task 2`, ….

    `guardrail(output)`: plain or async, called on the run's loop. `None` or True: the answer is accepted; a text says
    why not; False: it is not. The agent is told, and answers again, `guardrail_retries` times; then the crew fails with
    `OutputInvalid`. One that raises fails the crew.

    Raises `ConfigurationError` for a wrong argument.
    """

    description: str
    expected_output: str = ""
    agent: Runnable[Any] | None = None
    context: Sequence[Task] | None = None
    parallel: bool = False
    tools: Sequence[Any] = ()
    output: Any = None
    guardrail: Guardrail | None = None
    guardrail_retries: int = 2
    timeout: float | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if not checked.text("description", self.description).strip():
            raise ConfigurationError("a task needs a description")
        checked.text("expected_output", self.expected_output)
        checked.text("name", self.name)
        if self.agent is not None and not isinstance(self.agent, Runnable):
            raise ConfigurationError(f"a task's agent is a Member, an Agent or anything that runs, not {self.agent!r}")
        if self.guardrail is not None and not callable(self.guardrail):
            raise ConfigurationError(f"guardrail must be a function of the output, not {self.guardrail!r}")
        checked.whole("guardrail_retries", self.guardrail_retries, at_least=0)
        seconds("timeout", self.timeout, or_none=True, above_zero=True)
        if self.output is not None:
            codec_of(self.output, "output")
        object.__setattr__(self, "context", None if self.context is None else _tasks(self.context))
        object.__setattr__(self, "tools", listed(self.tools))

    def prompt(self, inputs: Inputs, context: Mapping[str, str]) -> str:
        """What its agent is asked. `context`: what other tasks have come to, by their names."""
        parts = [fill(self.description, inputs)]
        if self.expected_output:
            parts.append(f"Expected of your answer: {fill(self.expected_output, inputs)}")
        if context:
            parts.append("What other tasks have come to:")
            parts += [f'<output task="{name}">\n{text}\n</output>' for name, text in context.items()]
        return "\n\n".join(parts)

    async def refusal_of(self, output: Any, ctx: RunContext) -> str | None:
        """Why the guardrail does not accept this output; `None` if it does. A plain one is called in a thread."""
        if self.guardrail is None:
            return None
        verdict = await call_function(ctx, self.guardrail, output)
        if verdict is None or verdict is True:
            return None
        if isinstance(verdict, str):
            return verdict.strip() or "it is not accepted"
        if verdict is False:
            return "it is not accepted"
        raise UsageError(f"a guardrail returns None or True, or a text that says why not; not {verdict!r}")


def _tasks(given: Any) -> tuple[Task, ...]:
    tasks = (given,) if isinstance(given, Task) else listed(given)
    for task in tasks:
        if not isinstance(task, Task):
            raise ConfigurationError(f"context is a list of tasks, and {task!r} is none")
    return tasks


def listed(given: Any) -> tuple[Any, ...]:
    """The items of a list. Raises `ConfigurationError` for a single text, a mapping, and what has no items."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise ConfigurationError(f"a list is needed here, not {given!r}")
    return tuple(cast("Iterable[Any]", given))
