"""Functions for `test_isolated.py`: another process imports this file by its name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

from halter.tools.function import tool


@dataclass
class Point:
    x: int
    y: int


class Odd(Exception):
    """No pickle holds it: it is made of two values, and remembers one."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one}{two}")


class NotFound(LookupError):
    """As most exceptions are."""


@tool(isolation="process")
def whereabouts(point: Point) -> dict[str, object]:
    """A value in, a value out, from somewhere else."""
    return {"pid": os.getpid(), "sum": point.x + point.y, "stdin": sys.stdin.read(), "group": os.getpgid(0)}


@tool(isolation="process")
def sleep(seconds: float, name: str = "300") -> str:
    """Starts a program that hides, and does not poll any token."""
    subprocess.Popen(["setsid", "sleep", name]).returncode = 0
    print("ready", flush=True)
    time.sleep(seconds)
    return "slept"


@tool(isolation="process")
def deaf(seconds: float) -> str:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return sleep(seconds)


@tool(isolation="process")
def fail() -> None:
    raise NotFound("no such thing")


@tool(isolation="process")
def fail_oddly() -> None:
    raise Odd(1, 2)


@tool(isolation="process")
def crash() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@tool(isolation="process")
def leave() -> None:
    os._exit(7)


@tool(isolation="process")
def much() -> str:
    return "x" * 3_000_000


@tool(isolation="process")
def nothing_that_crosses() -> object:
    return lambda: None


@tool(isolation="process")
def linger() -> str:
    """Leaves a thread that would hold up the end of an interpreter."""
    import threading

    threading.Thread(target=time.sleep, args=(300,)).start()
    return "done"


def plain(text: str) -> str:
    return text.upper()


class Holder:
    @staticmethod
    def static(text: str) -> str:
        return text[::-1]

    def method(self) -> None: ...


async def asynchronous() -> None: ...
