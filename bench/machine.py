"""Where and with what the figures were taken."""

from __future__ import annotations

import os
import platform
from datetime import date
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("halter", "aiohttp", "openai", "msgspec", "uvloop")


def describe(loop: str) -> str:
    """One line."""
    packages = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    system = f"{platform.system()} {platform.release()}, {os.cpu_count()} cores ({platform.machine()})"
    return f"{date.today():%Y-%m-%d}. Python {platform.python_version()} on {loop}; {packages}; {system}."


def load() -> str:
    """How busy the machine is with other things: a load near 0 before the first measurement is a quiet one."""
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "from source"
