"""The order of a crew's tasks: which are done at once, and who is told what came of which.

All of it raises `ConfigurationError` for what cannot be done in this order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from halter.crews.task import Task, listed
from halter.errors import ConfigurationError


def named(tasks: Iterable[Task]) -> dict[str, Task]:
    """The tasks by their names, in order."""
    found: dict[str, Task] = {}
    for number, task in enumerate(listed(tasks), 1):
        if not isinstance(task, Task):
            raise ConfigurationError(f"a crew is made of Tasks, not of {task!r}")
        name = task.name or f"task {number}"
        if name in found or any(task is each for each in found.values()):
            raise ConfigurationError(f"two tasks are called {name!r}, or are one: each needs a name of its own")
        found[name] = task
    if not found:
        raise ConfigurationError("a crew needs tasks")
    return found


def stages_of(tasks: Mapping[str, Task]) -> list[list[str]]:
    """The names of tasks that are done at once, in order."""
    stages: list[list[str]] = []
    for name, task in tasks.items():
        if task.parallel and stages and tasks[stages[-1][-1]].parallel:
            stages[-1].append(name)
        else:
            stages.append([name])
    if len(stages[-1]) > 1:
        raise ConfigurationError(f"a crew ends with one task, whose output is its own: {stages[-1]} are done at once")
    return stages


def contexts_of(tasks: Mapping[str, Task], stages: Iterable[Sequence[str]]) -> dict[str, list[str]]:
    """Of each task, whose outputs it is told."""
    contexts: dict[str, list[str]] = {}
    before: list[str] = []
    for stage in stages:
        for name in stage:
            wanted = tasks[name].context
            contexts[name] = list(before) if wanted is None else [_found(each, tasks, before, name) for each in wanted]
        before += stage
    return contexts


def _found(wanted: Task, tasks: Mapping[str, Task], before: Iterable[str], name: str) -> str:
    found = next((each for each in before if tasks[each] is wanted), None)
    if found is None:
        raise ConfigurationError(f"the context of {name!r} is not there yet: {wanted.description!r} is not before it")
    return found
