"""Where code is: the line at which a task waits, for the receipt of a stop, a deadlock, a leak."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

_ASYNCIO = os.path.dirname(asyncio.__file__)
_THREADING = threading.__file__
_OURS = os.path.join(os.path.dirname(__file__), "threads.py")  # what starts a thread says nothing about where it is
# Iterators that CPython puts between a coroutine and what it awaits; they do not say what that is.
_WRAPPERS = {"async_generator_asend", "async_generator_athrow", "anext_awaitable", "coroutine_wrapper"}


def where(task: asyncio.Task[Any]) -> str:
    """`file:line in function`: the innermost line outside asyncio; and what of asyncio it waits in."""
    frames = list(_frames(task.get_coro()))
    if not frames:
        return "finished" if task.done() else "at an unknown line"
    own = next((f for f in reversed(frames) if not f.f_code.co_filename.startswith(_ASYNCIO)), frames[0])
    inner = frames[-1]
    return describe_frame(own) + ("" if inner is own else f", inside asyncio's {inner.f_code.co_qualname}")


def where_in_thread(ident: int | None) -> str:
    """The same of a thread: its innermost line that is no waiting in `threading`, if there is one."""
    frame = sys._current_frames().get(ident) if ident is not None else None
    if frame is None:
        return "at an unknown line"
    inner = frame
    while frame is not None and frame.f_code.co_filename == _THREADING:
        frame = frame.f_back
    return describe_frame(inner if frame is None or frame.f_code.co_filename == _OURS else frame)


def describe_frame(frame: types.FrameType) -> str:
    """`file:line in function`."""
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"


def _frames(awaited: object) -> Iterator[types.FrameType]:
    """The frames of a coroutine and of all it awaits, outermost first."""
    while awaited is not None:
        for name in ("cr_frame", "gi_frame", "ag_frame"):
            if isinstance(frame := getattr(awaited, name, None), types.FrameType):
                yield frame
        awaited = _awaited_by(awaited)


def _awaited_by(awaiting: object) -> object:
    if type(awaiting).__name__ in _WRAPPERS:
        kinds = (types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType)
        return next((inner for inner in gc.get_referents(awaiting) if type(inner) in kinds), None)
    names = ("cr_await", "gi_yieldfrom", "ag_await")
    return next((getattr(awaiting, name) for name in names if hasattr(awaiting, name)), None)
