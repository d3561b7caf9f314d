"""What the testing tools raise, and how they quote what was raised."""

from __future__ import annotations


class DeadlockError(RuntimeError):
    """Nothing is ready and no timer is set: no task can ever go on. Lists the tasks and where they wait."""


class LivelockError(RuntimeError):
    """More callbacks than `max_steps` were executed. Names the busiest of the last 1,000."""


class VirtualTimeoutError(TimeoutError):
    """The next thing to happen lies past the deadline. Lists the tasks and where they wait."""


class RealTimeError(RuntimeError):
    """The code waits for a socket, a process or a thread, which virtual time cannot do."""


def said(error: Exception) -> str:
    """An assertion's own message; any other exception as its `repr`."""
    return str(error) if type(error) is AssertionError and str(error) else repr(error)
