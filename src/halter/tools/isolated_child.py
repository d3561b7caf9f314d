"""The other side of `isolated.py`: the program that runs in the child. It begins with the standard library alone.

Usage: isolated_child.py DESCRIPTOR, with the request on stdin. The answer is a length of eight bytes and so many
bytes of JSON; without them, the process has died before it was done.
"""

from __future__ import annotations

import importlib
import inspect
import json
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
        return json.dumps(_returned(function, function(*args, **kwargs))).encode()
    except BaseException as error:  # also SystemExit: it is the caller's to see
        return json.dumps({"raised": _described(error)}).encode()


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


def _returned(function: Callable[..., Any], value: Any) -> dict[str, Any]:
    """The value as plain data; `attached`: which items of it are images and files, `None`: it is one itself."""
    if value is None or isinstance(value, str):
        return {"returned": value}
    from halter.messages import File, Image

    if isinstance(value, Image | File):
        return {"returned": _plain(function, value), "attached": None}
    items: list[Any] = list(value) if isinstance(value, list | tuple) else []  # pyright: ignore[reportUnknownArgumentType]
    attached = [at for at, each in enumerate(items) if isinstance(each, Image | File)]
    if attached:
        return {"returned": [_plain(function, each) for each in items], "attached": attached}
    return {"returned": _plain(function, value)}


def _plain(function: Callable[..., Any], value: Any) -> Any:
    """The value as plain data: what a tool may return at all. Raises `TypeError`."""
    if value is None or isinstance(value, str):
        return value
    import msgspec  # from the parent's path

    from halter.messages import File, Image
    from halter.tools.function import encoded, refuse_attachments

    try:
        plain = msgspec.to_builtins(value, enc_hook=encoded, str_keys=True)
        if not isinstance(value, Image | File):
            refuse_attachments(value, msgspec.json.encode(plain))
        return plain
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(
            f"{function.__qualname__} has returned what has no form in JSON ({type(value).__name__}), and nothing else "
            f"leaves its process: {error}"
        ) from error


def _described(error: BaseException) -> dict[str, Any]:
    """An exception as plain data."""
    errors = sys.modules.get("halter.errors")
    args = _args(error)
    return {
        "module": type(error).__module__,
        "name": type(error).__qualname__,
        "args": args if all(isinstance(each, str | int | float | bool | None) for each in args) else None,
        "text": _text(error),
        "traceback": "".join(traceback.format_exception(error)),
        "is_tool_error": errors is not None and isinstance(error, errors.ToolError),
    }


def _args(error: BaseException) -> tuple[Any, ...]:
    if isinstance(error, OSError) and error.filename is not None:
        return (*error.args[:2], error.filename)  # it is no longer among them
    return error.args


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # its `__str__` is at fault
        return ""


def _send(answer: BinaryIO, written: bytes) -> None:
    answer.write(len(written).to_bytes(8, "big"))
    answer.write(written)


if __name__ == "__main__":
    main()
