"""`Crew`: tasks in order, each done by its agent, or by a manager who asks the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, Literal, Self, TypeAlias

import msgspec

from halter import checked
from halter.agent import Agent
from halter.codec import Unfit
from halter.core.context import RunContext
from halter.core.ports import Model
from halter.core.run import Run
from halter.core.runnable import Runnable
from halter.crews.braces import Inputs, names_in, read_inputs
from halter.crews.each import Each
from halter.crews.group import run_all
from halter.crews.member import names_of
from halter.crews.plan import contexts_of, named, stages_of
from halter.crews.staff import staff_of
from halter.crews.state import CrewState, going_on, read_state
from halter.crews.task import Task, listed
from halter.crews.work import Work, take_down
from halter.errors import ConfigurationError
from halter.messages import Message
from halter.parts import OnFailure, as_json, output_of, say

Process: TypeAlias = Literal["sequential", "hierarchical"]
CrewInput: TypeAlias = Mapping[str, Any] | str | None
Asked: TypeAlias = tuple[Sequence[Message], str | Message]  # a conversation, and what is said in it


class Crew(Runnable[Any]):
    """Tasks in order. Its output is that of the last one, as are its `text` and what `text_stream()` reads.

    `process`: under `sequential` each task is done by its own agent; under `hierarchical` by the `manager` (the name of
    a model, a model, a `Member` or an `Agent`), who has the agents as tools, and answers himself. `agents`: who is in
    the crew; of a sequential one it may be left out. `name`, `description`: as for an `Agent`.

    The run's input is a mapping for the `{names}` in the texts of tasks and members; a text will do if there is one
    name. One that is missing or not wanted is a `ConfigurationError` at `run()`. The run of each task is a child of the
    crew's, that of its agent a child of the task's; `event.task` is the task's name. `result.state` is a `CrewState`,
    however the run ends: `run(inputs, state=…)` goes on with the task that was cut short, and does no other again.

    A task that fails, or is stopped alone, fails the crew with that error, as does an output that has no form in JSON.
    Raises `ConfigurationError` for no tasks, for two of one name, a context that is not there yet, a task without an
    agent, or of an agent that is not in the crew, and for two people of one name under a manager.
    """

    kind = "crew"

    def __init__(
        self,
        tasks: Iterable[Task],
        *,
        agents: Iterable[Runnable[Any]] = (),
        process: Process = "sequential",
        manager: str | Model | Agent[Any] | None = None,
        name: str = "crew",
        description: str = "",
    ) -> None:
        self._name = checked.text("name", name)
        self._description = checked.text("description", description)
        self.process: Process = checked.one_of("process", process, ("sequential", "hierarchical"))
        self.tasks = named(tasks)
        self._stages = stages_of(self.tasks)
        self._context = contexts_of(self.tasks, self._stages)
        staff = staff_of(process, self.tasks.values(), agents, manager)
        self._works = {name: Work(task, name, staff.worker(task, name)) for name, task in self.tasks.items()}
        self._helpers = tuple(staff.helpers)
        self._last = self._stages[-1][0]
        self._mark = ""
        workers = [work.worker for work in self._works.values()]
        texts = [text for task in self.tasks.values() for text in (task.description, task.expected_output)]
        self.inputs = frozenset(names_in(texts).union(*map(names_of, (*workers, *self._helpers))))

    def check_input(self, input: Any) -> Inputs:
        return read_inputs(input, self.inputs)

    def goes_on(self, input: Inputs) -> bool:
        """Without names to fill in, there is nothing that could make it other work."""
        return not input

    def check_state(self, state: Any) -> CrewState | None:
        if state is None:
            return None
        read = read_state(state, tuple(self.tasks))
        for name, value in read.outputs.items():
            self._value_of(name, value)
        return read

    def check_price(self) -> None:
        for each in (*self._works.values(), *self._helpers):
            each.check_price()

    def run_each(
        self,
        inputs: Iterable[CrewInput],
        *,
        max_concurrency: int | None = None,
        on_failure: OnFailure = "cancel",
        **options: Any,
    ) -> Run[tuple[Any, ...]]:
        """A handle on one run that does the crew's work once for each of `inputs`; it starts with its first use.

        The output is the tuple of the crews' outputs, in the order of `inputs`; the text that of all, with blank lines
        between, at the end. `max_concurrency`: so many at once. `on_failure`: what one that fails, or is stopped alone,
        means for the others, as in `Parallel`; under `cancel`, what has not begun is not started.

        Tasks are marked with the number of their input, from 0: `event.task` is `2/research`. The run of each crew has
        the tag `input:2`. `state`: a list of `CrewState`s; `options`: as for `run()`. Raises `ConfigurationError`.
        """
        given = listed(inputs)
        crews = [self._marked(f"{number}/") for number in range(len(given))]
        return Each(self._name, crews, max_concurrency, on_failure).run(given, **options)

    async def execute(self, ctx: RunContext) -> Any:
        history, state = ctx.messages, ctx.state or CrewState()
        ctx.keep(state)
        runs: dict[str, Run[Any]] = {}
        for stage in self._stages:
            left = [name for name in stage if name not in state.outputs]
            if left and runs:
                ctx.before_next_step()
            if left:
                ctx.begin_step()
                await self._do(ctx, left, runs, history)
                ctx.end_step()
        if self._last in runs:
            return await output_of(runs[self._last])
        value = state.outputs[self._last]
        say(ctx, as_json(value))
        return self._value_of(self._last, value)

    async def _do(
        self, ctx: RunContext, names: Sequence[str], runs: dict[str, Run[Any]], history: Sequence[Message]
    ) -> None:
        """The tasks of one stage, at once; their runs are added to `runs`."""
        asked = {name: self._asked(name, ctx.input, ctx.state, history) for name in names}
        begun: list[Run[Any]] = []
        ctx.at_end(partial(_keep, ctx, asked, begun))
        await run_all(ctx, [partial(self._start, ctx, name, *asked[name]) for name in names], begun)
        ctx.at_end(None)
        runs |= _keep(ctx, asked, begun)

    def _start(self, ctx: RunContext, name: str, history: Sequence[Message], said: str | Message) -> Run[Any]:
        run = ctx.start(
            self._works[name],
            said,
            history=history,
            task=self._mark + name,
            timeout=self.tasks[name].timeout,
            context=ctx.context,
            grace=ctx.grace,
        )
        if name == self._last:
            ctx.speak_through(run)
        return run

    def _asked(self, name: str, inputs: Inputs, state: CrewState, history: Sequence[Message]) -> Asked:
        """What a task's agent is asked: the prompt, or to go on."""
        told = state.open.get(name)
        if told and isinstance(self._works[name].worker, Agent):
            return going_on(told)
        context = {each: as_json(state.outputs[each]) for each in self._context[name]}
        return history, self.tasks[name].prompt(inputs, context)

    def _value_of(self, name: str, value: Any) -> Any:
        """An output, of the type that its task wants. Raises `ConfigurationError` if it is no such value."""
        worker = self._works[name].worker
        if not isinstance(worker, Agent) or worker.answer is None:
            return value
        try:
            return worker.answer._codec.decode(msgspec.json.encode(value))
        except Unfit as unfit:
            raise ConfigurationError(f"the state's output of {name!r} is no {worker.answer!r}: {unfit}") from unfit

    def _marked(self, mark: str) -> Self:
        """This crew, whose tasks' events are marked with a text before the name."""
        marked = copy(self)
        marked._mark = mark
        return marked

    def __repr__(self) -> str:
        return f"Crew({', '.join(self.tasks)}, process={self.process!r}, name={self._name!r})"


def _keep(ctx: RunContext, asked: Mapping[str, Asked], begun: Sequence[Run[Any]]) -> dict[str, Run[Any]]:
    """Keeps what these runs of tasks have come to; returns them by their names."""
    runs = dict(zip(asked, begun, strict=False))
    for name, run in runs.items():
        take_down(ctx, run, asked[name][1])
        if run.text and not run.is_completed:
            ctx.speak_through(run)  # what was cut short has the last word
    ctx.keep(ctx.state.after(runs))
    return runs
