"""A blocking function in a process of its own, where it can be killed: `tool(isolation="process")`.

The function crosses by its name, its arguments and its value as pickles. The child is a fresh interpreter, not a fork:
it has none of our threads, locks or sockets. It is ended with everything that it has started, as any program of a tool.
"""

from __future__ import annotations

import inspect
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from halter.children.child import Child
from halter.children.tending import tended
from halter.core.tool_context import ToolContext
from halter.errors import ConfigurationError, HalterError
from halter.tools import isolated_child

TERM_GRACE = 0.1  # seconds; without a handler of its own, the function's process ends at TERM at once


class ProcessDied(HalterError):
    """The process of an isolated function ended before the function did: killed, or by `os._exit`."""


class RaisedElsewhere(HalterError):
    """An isolated function raised what no pickle holds; its type and message are the text."""


def check_isolated(fn: Callable[..., Any]) -> None:
    """Raises `ConfigurationError` for a function that another process could not find by its name."""
    name = getattr(fn, "__qualname__", repr(fn))
    if inspect.iscoroutinefunction(fn):
        raise ConfigurationError(f"{name} is async: only a blocking function needs a process of its own")
    if not inspect.isroutine(fn) or inspect.ismethod(fn):
        raise ConfigurationError(f"{name} is no function of a module: a process of its own could not find it")
    if "<" in name:
        raise ConfigurationError(f"{name} is local: only a function at the top of a module runs in its own process")
    if fn.__module__ == "__main__" and not _main():
        raise ConfigurationError(f"{name} was typed in, or read from stdin: put it into a file, to run it elsewhere")


async def call_in_process(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], ctx: ToolContext
) -> Any:
    """Calls a function of a module in a process of its own; returns or raises what it does, as pickled and unpickled.

    Raises `ProcessDied` if the process ended before the function did, `RaisedElsewhere` for an exception that does not
    cross, and what `pickle` raises for arguments that do not. Cancelled, or stopped: the process and all that it has
    started are ended before this returns (TERM, KILL 100 ms later).
    """
    _refuse_while_main_is_read()
    request = _request(fn, tuple(args), dict(kwargs))
    received = bytearray()
    with _nameless_file() as file:
        file.write(request)
        file.seek(0)
        child = _start(file, received)
    async with tended(child, fn.__qualname__, TERM_GRACE, ctx):
        await child.wait()
    return _value(fn, child, bytes(received))


def _start(request: BinaryIO, received: bytearray) -> Child:
    flags = subprocess._args_from_interpreter_flags()  # pyright: ignore  # as multiprocessing's spawn
    argv = [sys.executable, *cast("list[str]", flags), "-P", str(Path(isolated_child.__file__))]
    return Child.start(argv, environment=os.environ, on_output=received.extend, stdin=request.fileno(), apart=True)


def _nameless_file() -> BinaryIO:
    """In memory where the system can; arguments may be long, and a pipe would want somebody to write."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("halter-request"), "w+b")
    return cast("BinaryIO", tempfile.TemporaryFile())


def _request(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    given = pickle.dumps((args, kwargs))
    like: dict[str, Any] = {
        "sys_path": [path or os.getcwd() for path in sys.path],
        "sys_argv": sys.argv,
        "dir": os.getcwd(),
    }
    if fn.__module__ == "__main__" or b"__main__" in given:
        like |= _main()
    return pickle.dumps({"module": fn.__module__, "name": fn.__qualname__, "like": like}) + given


def _main() -> dict[str, str]:
    """How a child finds the program that runs here, in the words of `multiprocessing.spawn.prepare`; empty: not."""
    main = sys.modules["__main__"]
    name = getattr(main.__spec__, "name", None)
    if name is not None:
        return {"init_main_from_name": name}
    path = getattr(main, "__file__", None)
    return {} if path is None else {"init_main_from_path": os.path.abspath(path)}


def _refuse_while_main_is_read() -> None:
    if isolated_child.IMPORTING in os.environ:
        raise ConfigurationError(
            "this program starts its work when it is imported, and an isolated function of it needs it imported: put "
            "what starts it under `if __name__ == '__main__':`"
        )


def _value(fn: Callable[..., Any], child: Child, received: bytes) -> Any:
    length, packed = int.from_bytes(received[:8], "big"), received[8:]
    if len(received) < 8 or len(packed) < length:
        raise ProcessDied(f"the process of {fn.__qualname__} died: {child.how_it_ended}")
    match pickle.loads(packed):
        case "returned", value:
            return value
        case "raised", bytes(error), _, told:
            raise _with_note(pickle.loads(error), told)
        case "raised", None, text, told:
            raise _with_note(RaisedElsewhere(text), told)
        case answer:
            raise ProcessDied(f"the process of {fn.__qualname__} gave an answer of another kind: {answer!r}")


def _with_note(error: BaseException, told: str) -> BaseException:
    """The exception, with the traceback of the process where it was raised."""
    error.add_note(f"\nIn its own process:\n{told}")
    return error
