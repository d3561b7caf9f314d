"""A blocking function in a process of its own, where it can be killed: `tool(isolation="process")`.

1. The function crosses by its name, its arguments as pickles. 2. What comes back is JSON: plain data, and exceptions by
name. Nothing that the child says is unpickled here. 3. The child is a fresh interpreter, not a fork: it has none of our
threads, locks or sockets. 4. It is ended with everything that it has started, as any program of a tool.

This isolates faults: endless loops, crashes, leaks. It is no security boundary: the child runs as this user, with this
environment, and may do whatever this process may. With a sandbox it may do what that allows.
"""

from __future__ import annotations

import inspect
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from halter.children.child import Child
from halter.children.tending import tended
from halter.core.tool_context import ToolContext
from halter.errors import ConfigurationError, HalterError, ToolError
from halter.messages import File, Image
from halter.tools import isolated_child
from halter.tools.sandboxed import IN_THE_OPEN, Sandboxed, paths_of_python
from halter.tools.surroundings import passed_on

TERM_GRACE = 0.1  # seconds; without a handler of its own, the function's process ends at TERM at once


class ProcessDied(HalterError):
    """The process of an isolated function ended before the function did: killed, or by `os._exit`."""


class RaisedElsewhere(HalterError):
    """An isolated function raised an exception that does not cross; its type and message are the text."""


class _Raised(msgspec.Struct):
    """An exception as the child tells of it. `args`: those of plain exceptions, `None` where they are no plain data."""

    module: str
    name: str
    args: list[str | int | float | bool | None] | None
    text: str
    traceback: str
    is_tool_error: bool


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
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    ctx: ToolContext,
    sandboxed: Sandboxed = IN_THE_OPEN,
) -> Any:
    """Calls a function of a module in a process of its own; returns its value as JSON has it, and raises what it does.

    In a sandbox it works in the directory of this process, has the few variables that tools' programs have, and may
    read what this interpreter imports from.

    Raises `ProcessDied` if the process ended before the function did, `TypeError` for a value without a form in JSON,
    `RaisedElsewhere` for an exception that does not cross (see `_known`), and what `pickle` raises for arguments that
    do not. Cancelled, or stopped: the process and all that it has started are ended before this returns (TERM, KILL
    100 ms later).
    """
    _refuse_while_main_is_read()
    request = _request(fn, tuple(args), dict(kwargs))
    received = bytearray()
    child = Child(received.extend)
    async with tended(child, fn.__qualname__, TERM_GRACE, ctx):
        with _nameless_file() as file:
            file.write(request)
            file.seek(0)
            await _start(child, file, sandboxed)
        await child.wait()
    return _value(fn, child, bytes(received))


async def _start(child: Child, request: BinaryIO, sandboxed: Sandboxed) -> None:
    flags = subprocess._args_from_interpreter_flags()  # pyright: ignore  # as multiprocessing's spawn
    argv = [sys.executable, *cast("list[str]", flags), "-P", str(Path(isolated_child.__file__))]
    is_free = sandboxed.sandbox is None
    await sandboxed.start(
        child,
        argv,
        environment=os.environ if is_free else passed_on(),
        cwd=os.getcwd(),
        shown=() if is_free else paths_of_python(),
        stdin=request.fileno(),
        apart=True,
    )


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
    length, written = int.from_bytes(received[:8], "big"), received[8:]
    if len(received) < 8 or len(written) < length:
        raise ProcessDied(f"the process of {fn.__qualname__} died: {child.how_it_ended}")
    try:
        answer: Any = json.loads(written[:length])
        if "returned" in answer:
            return _with_attachments(answer)
        raised = msgspec.convert(answer["raised"], _Raised)
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ProcessDied(f"the process of {fn.__qualname__} gave an answer that cannot be read: {error}") from None
    failure = _known(fn, raised) or RaisedElsewhere(f"{raised.name}: {raised.text}")
    failure.add_note(f"\nIn its own process:\n{raised.traceback}")
    raise failure


def _with_attachments(answer: dict[str, Any]) -> Any:
    """The value that was returned, with its images and files as such. Raises `ValueError`."""
    value: Any = answer["returned"]
    if "attached" not in answer:
        return value
    attached: Any = answer["attached"]
    if attached is None:
        return msgspec.convert(value, Image | File)
    return [msgspec.convert(each, Image | File) if at in attached else each for at, each in enumerate(value)]


def _known(fn: Callable[..., Any], raised: _Raised) -> Exception | None:
    """The exception made anew, from plain data; `None` if that does not give the same one.

    Those that cross: `ToolError`, and exceptions that are built in or defined in the function's own module.
    """
    if raised.is_tool_error:
        return ToolError(raised.text)
    module = "__main__" if raised.module == "__mp_main__" else raised.module
    found = sys.modules.get(module) if module in ("builtins", fn.__module__) else None
    kind = None if found is None else vars(found).get(raised.name)
    if not (isinstance(kind, type) and issubclass(kind, Exception)) or raised.args is None:
        return None
    try:
        error = kind(*raised.args)
        return error if str(error) == raised.text else None
    except Exception:  # it is made of other values than it remembers
        return None
