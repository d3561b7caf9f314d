"""What the virtual-time loop takes over from asyncio: how to wait, and which ready callback comes next."""

from __future__ import annotations

import asyncio
import random
import selectors
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from halter.testing.leaks import describe_task

Polled = list[tuple[selectors.SelectorKey, int]]


class Selector(selectors.DefaultSelector):
    """Hands the decision how to wait to the loop."""

    def __init__(self, poll: Callable[[float | None], Polled]) -> None:
        super().__init__()
        self._poll = poll

    def select(self, timeout: float | None = None) -> Polled:
        return self._poll(timeout)

    def look(self, seconds: float) -> Polled:
        return super().select(seconds)


class ReadyQueue(deque[asyncio.Handle]):
    """The loop's queue of ready callbacks: counts what is taken from it, and shuffles each batch once."""

    def __init__(self, before: Callable[[asyncio.Handle], None], seed: int | None) -> None:
        super().__init__()
        self.is_new_batch = False
        self._before = before
        self._random = None if seed is None else random.Random(seed)
        self._births: weakref.WeakKeyDictionary[asyncio.Task[Any], int] = weakref.WeakKeyDictionary()
        self._seen = 0

    def popleft(self) -> asyncio.Handle:
        if self.is_new_batch and self._random is not None:
            self._shuffle(self._random)
        self.is_new_batch = False
        if not self[0].cancelled():
            self._before(self[0])
        return super().popleft()

    def _shuffle(self, source: random.Random) -> None:
        """Deal the tasks' steps anew; plain callbacks keep their own order, which asyncio promises."""
        batch = [(_task_of(handle), handle) for handle in list(self)]
        steps = [(self._birth(task), handle) for task, handle in batch if task is not None]
        others = (handle for task, handle in batch if task is None)
        deal = [True] * len(steps) + [False] * (len(batch) - len(steps))
        # Sorted by birth first: asyncio keeps tasks in sets, whose order is another one in each replay.
        steps.sort(key=lambda step: step[0])
        source.shuffle(steps)
        source.shuffle(deal)
        for index, is_step in enumerate(deal):  # in place: another thread may append meanwhile
            self[index] = steps.pop()[1] if is_step else next(others)

    def _birth(self, task: asyncio.Task[Any]) -> int:
        if task not in self._births:
            self._births[task] = self._seen = self._seen + 1
        return self._births[task]


def _task_of(handle: asyncio.Handle) -> asyncio.Task[Any] | None:
    owner = getattr(getattr(handle, "_callback", None), "__self__", None)
    return owner if isinstance(owner, asyncio.Task) else None  # pyright: ignore[reportUnknownVariableType]  # of Any


def describe_callback(handle: asyncio.Handle) -> str:
    """The task that it steps, and where that waits; or the callback's name."""
    if task := _task_of(handle):
        return describe_task(task)
    callback: Any = getattr(handle, "_callback", None)
    return f"callback {getattr(callback, '__qualname__', None) or repr(callback)}"
