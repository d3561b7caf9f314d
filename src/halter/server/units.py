"""Times and sizes as people write them: `15m`, `256M`."""

from __future__ import annotations

import re

from halter.errors import ConfigurationError

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def seconds_of(name: str, text: str) -> float:
    """Seconds, from `90`, `1.5s`, `15m`, `2h` or `1d`. Raises `ConfigurationError`, which names `name`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text.strip().lower())
    if found is None:
        raise ConfigurationError(f"{name} must be a time such as 30s, 15m or 2h, not {text!r}")
    return float(found[1]) * _SECONDS[found[2]]


def bytes_of(name: str, text: str) -> int:
    """Bytes, from `4096`, `64K`, `256M` or `1G`. Raises `ConfigurationError`, which names `name`."""
    found = re.fullmatch(r"(\d+)\s*([kmg]?)i?b?", text.strip().lower())
    if found is None:
        raise ConfigurationError(f"{name} must be a size such as 64K, 256M or 1G, not {text!r}")
    return int(found[1]) * _BYTES[found[2]]
