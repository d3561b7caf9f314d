"""The other side of `isolated.py`: the program that runs in the child. It stands on the standard library alone.

Usage: isolated_child.py DESCRIPTOR, with the request on stdin. The answer is a length of eight bytes and so many
bytes of pickle; without them, the process has died before it was done.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO

IMPORTING = "HALTER_IMPORTING_MAIN"  # set while the program of the parent is read once more, under another name


def main() -> None:
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    with os.fdopen(descriptor, "wb") as answer:
        _send(answer, _answer(sys.stdin.buffer))
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)  # what the function has left running in threads must not hold it up


def _answer(requests: BinaryIO) -> bytes:
    try:
        start: dict[str, Any] = pickle.load(requests)
        _become_like_the_parent(start)
        function = find(start["module"], start["name"])
        args, kwargs = pickle.load(requests)
        _stdin_from_nowhere()
        return _packed(function, function(*args, **kwargs))
    except BaseException as error:  # also SystemExit: it is the caller's to see
        return _packed_error(error)


def _become_like_the_parent(start: dict[str, Any]) -> None:
    """The same path, arguments and directory, and if it is needed the same `__main__`: as multiprocessing's spawn."""
    sys.path[:] = start["like"]["sys_path"]
    from multiprocessing import spawn  # from the parent's path

    os.environ[IMPORTING] = "1"
    try:
        spawn.prepare(start["like"])
    finally:
        del os.environ[IMPORTING]


def find(module: str, name: str) -> Callable[..., Any]:
    """The function of this name; where a decorator has made a tool of it, the tool's."""
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    while not inspect.isroutine(found) and hasattr(found, "fn"):
        found = found.fn
    return found


def _stdin_from_nowhere() -> None:
    """The request has been read; the function finds nothing there."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def _packed(function: Callable[..., Any], value: Any) -> bytes:
    try:
        return pickle.dumps(("returned", value))
    except Exception as error:
        raise TypeError(f"{function.__qualname__} has returned what no pickle holds: {error}") from error


def _packed_error(error: BaseException) -> bytes:
    told = "".join(traceback.format_exception(error))
    try:
        packed = pickle.dumps(error)
        if type(pickle.loads(packed)) is not type(error):
            packed = None
    except Exception:  # whatever it holds: it is told as text
        packed = None
    return pickle.dumps(("raised", packed, f"{type(error).__name__}: {error}", told))


def _send(answer: BinaryIO, packed: bytes) -> None:
    answer.write(len(packed).to_bytes(8, "big"))
    answer.write(packed)


if __name__ == "__main__":
    main()
