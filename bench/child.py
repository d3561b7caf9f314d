"""A measurement in a fresh process: `in_child(fn, …)` calls it there and returns what it returns.

Nothing that one candidate leaves behind (a warm cache, a grown heap, a thread) reaches the next. Arguments and
results travel as JSON. The process is ended when its time is over.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
ROOT = Path(__file__).parents[1]
PATIENCE = 120.0


class ChildFailed(Exception):
    """The measurement did not end, or ended with an error; the message holds what it said."""


def in_child(fn: Callable[..., T], /, *, timeout: float = PATIENCE, **arguments: Any) -> T:
    """Calls a module's function in a process of its own. `timeout`: seconds. Raises `ChildFailed`."""
    command = [sys.executable, "-m", "bench.child", fn.__module__, fn.__name__]
    name = f"{fn.__module__}.{fn.__name__}({arguments})"
    try:
        done = subprocess.run(
            command, input=json.dumps(arguments), capture_output=True, text=True, timeout=timeout, cwd=ROOT, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ChildFailed(f"{name} was not over after {timeout} s") from error
    if done.returncode:
        raise ChildFailed(f"{name} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def in_children(fn: Callable[..., T], /, arguments: Sequence[dict[str, Any]]) -> list[T]:
    """The same several times at once, each in a process of its own. Raises `ChildFailed`."""
    with ThreadPoolExecutor(len(arguments)) as waiting:
        return list(waiting.map(lambda one: in_child(fn, **one), arguments))


def on_loop(coroutine: Coroutine[Any, Any, T], loop: str) -> T:
    """Runs it on a new loop: `uvloop` or `asyncio`."""
    factory = None
    if loop == "uvloop":
        import uvloop  # a child that measures on asyncio's loop must not load it

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(coroutine)


def main() -> None:
    module, name = sys.argv[1:]
    fn = getattr(importlib.import_module(module), name)
    print(json.dumps(fn(**json.load(sys.stdin))))


if __name__ == "__main__":
    main()
