"""Run, stream and really stop LLM agents. The public names, loaded when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from halter.agent import Agent as Agent
    from halter.core.approvals import Policy as Policy
    from halter.core.budget import Budget as Budget
    from halter.core.cancellation import CancellationToken as CancellationToken
    from halter.core.context import RunContext as RunContext
    from halter.core.run import Run as Run
    from halter.core.run import current_run as current_run
    from halter.core.runnable import runnable as runnable
    from halter.core.runtime import runtime as runtime
    from halter.core.settings import configure as configure
    from halter.core.signals import cancel_on_signals as cancel_on_signals
    from halter.errors import HalterError as HalterError
    from halter.errors import RunCancelled as RunCancelled
    from halter.errors import RunFailed as RunFailed
    from halter.errors import RunTimedOut as RunTimedOut
    from halter.messages import Message as Message
    from halter.messages import Usage as Usage
    from halter.outcome import CancelMode as CancelMode
    from halter.outcome import CancelReason as CancelReason
    from halter.outcome import RunResult as RunResult
    from halter.outcome import RunStatus as RunStatus
    from halter.tools.function import tool as tool

__version__ = "0.1.0"

_WHERE = {
    "Agent": "halter.agent",
    "Budget": "halter.core.budget",
    "CancelMode": "halter.outcome",
    "CancelReason": "halter.outcome",
    "CancellationToken": "halter.core.cancellation",
    "HalterError": "halter.errors",
    "Message": "halter.messages",
    "Policy": "halter.core.approvals",
    "Run": "halter.core.run",
    "RunCancelled": "halter.errors",
    "RunContext": "halter.core.context",
    "RunFailed": "halter.errors",
    "RunResult": "halter.outcome",
    "RunStatus": "halter.outcome",
    "RunTimedOut": "halter.errors",
    "Usage": "halter.messages",
    "cancel_on_signals": "halter.core.signals",
    "configure": "halter.core.settings",
    "current_run": "halter.core.run",
    "runnable": "halter.core.runnable",
    "runtime": "halter.core.runtime",
    "tool": "halter.tools.function",
}

__all__ = list(_WHERE)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module 'halter' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
