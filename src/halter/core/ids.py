"""Opaque ids that sort by the time they were made (UUIDv7, RFC 9562 section 5.7)."""

from __future__ import annotations

import os
import time


def new_id() -> str:
    """A new UUIDv7 as text. Safe in any thread and in a forked child."""
    stamp = time.time_ns() // 1_000_000
    noise = int.from_bytes(os.urandom(10), "big")
    value = (stamp << 80) | (7 << 76) | ((noise >> 68) << 64) | (2 << 62) | (noise & ((1 << 62) - 1))
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
