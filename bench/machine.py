"""Where and with what the figures were taken."""

from __future__ import annotations

import os
import platform
from datetime import date
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("halter", "aiohttp", "openai", "anthropic", "google-genai", "msgspec", "uvloop", "sqlalchemy", "asyncpg")


def describe(loop: str) -> str:
    """One line."""
    packages = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    system = f"{platform.system()} {platform.release()}, {os.cpu_count()} cores ({platform.machine()})"
    return f"{date.today():%Y-%m-%d}. Python {platform.python_version()} on {loop}; {packages}; {system}."


def load() -> str:
    """The load of the last minute; before the first measurement that is what else the machine does."""
    recent = os.getloadavg()[0]
    busy = ", a busy machine: only the ratios mean something" if recent > 0.5 * (os.cpu_count() or 1) else ""
    return f"{recent:.2f}{busy}"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "from source"
