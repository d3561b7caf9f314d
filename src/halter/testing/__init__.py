"""Halter's own testing tools, for your tests too: virtual time, sweeps, leak checks."""

from halter.testing.leaks import LeakError, Snapshot, leak_check
from halter.testing.sweeps import Sweep, SweepOutcome, cancel_sweep, schedule_sweep, split_sweep
from halter.testing.virtual_time import (
    DeadlockError,
    LivelockError,
    RealTimeError,
    VirtualTimeLoop,
    VirtualTimeoutError,
    run,
)

__all__ = [
    "DeadlockError",
    "LeakError",
    "LivelockError",
    "RealTimeError",
    "Snapshot",
    "Sweep",
    "SweepOutcome",
    "VirtualTimeLoop",
    "VirtualTimeoutError",
    "cancel_sweep",
    "leak_check",
    "run",
    "schedule_sweep",
    "split_sweep",
]
