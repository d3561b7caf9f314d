"""Halter's own testing tools, for your tests too: virtual time, sweeps, leak checks, a provider in memory.

Loaded when they are first used: the pytest plugin stands on this package, and is imported by every suite.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from halter.testing.answers import HANG as HANG
    from halter.testing.answers import Answer as Answer
    from halter.testing.failures import DeadlockError as DeadlockError
    from halter.testing.failures import LivelockError as LivelockError
    from halter.testing.failures import RealTimeError as RealTimeError
    from halter.testing.failures import VirtualTimeoutError as VirtualTimeoutError
    from halter.testing.leaks import LeakError as LeakError
    from halter.testing.leaks import Snapshot as Snapshot
    from halter.testing.leaks import leak_check as leak_check
    from halter.testing.memory import MemoryRequest as MemoryRequest
    from halter.testing.memory import MemorySource as MemorySource
    from halter.testing.splits import split_sweep as split_sweep
    from halter.testing.sweeps import Sweep as Sweep
    from halter.testing.sweeps import SweepOutcome as SweepOutcome
    from halter.testing.sweeps import cancel_sweep as cancel_sweep
    from halter.testing.sweeps import schedule_sweep as schedule_sweep
    from halter.testing.virtual_time import VirtualTimeLoop as VirtualTimeLoop
    from halter.testing.virtual_time import run as run

_WHERE = {
    "Answer": "answers",
    "DeadlockError": "failures",
    "HANG": "answers",
    "LeakError": "leaks",
    "LivelockError": "failures",
    "MemoryRequest": "memory",
    "MemorySource": "memory",
    "RealTimeError": "failures",
    "Snapshot": "leaks",
    "Sweep": "sweeps",
    "SweepOutcome": "sweeps",
    "VirtualTimeLoop": "virtual_time",
    "VirtualTimeoutError": "failures",
    "cancel_sweep": "sweeps",
    "leak_check": "leaks",
    "run": "virtual_time",
    "schedule_sweep": "sweeps",
    "split_sweep": "splits",
}

__all__ = list(_WHERE)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'halter.testing' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"halter.testing.{_WHERE[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
