"""Our own sockets, as the kernel sees them: what a peer that does not read could never tell."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SYN_SENT = "02"


@dataclass(frozen=True)
class OpenSocket:
    """One TCP socket that this process holds. `inode` names it; `unsent`: bytes in the kernel's send queue."""

    fd: int
    inode: str
    port: int
    state: str
    unsent: int


def sockets_to(port: int) -> dict[str, OpenSocket]:
    """The sockets that `/proc/self/fd` shows and whose other end is this port; by inode."""
    held = dict(_held())
    found = (_parse(line, held) for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return {one.inode: one for one in found if one is not None and one.port == port}


def _held() -> list[tuple[str, int]]:
    """The inodes of all sockets in our descriptor table."""
    held: list[tuple[str, int]] = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # closed while we looked
        if target.startswith("socket:["):
            held.append((target[8:-1], int(name)))
    return held


def _parse(line: str, held: dict[str, int]) -> OpenSocket | None:
    fields = line.split()
    inode = fields[9]
    if inode not in held:
        return None
    port = int(fields[2].split(":")[1], 16)
    return OpenSocket(held[inode], inode, port, fields[3], int(fields[4].split(":")[0], 16))


def until(holds: Callable[[], object], patience: float = 5.0) -> None:
    """Waits for something that the kernel shows; fails after `patience` seconds."""
    end = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < end, f"has not happened within {patience} s"
        time.sleep(0.002)


def is_connecting(port: int) -> bool:
    """A SYN of ours is out, and unanswered."""
    return any(one.state == SYN_SENT for one in sockets_to(port).values())


def is_stuck(port: int) -> bool:
    """A send queue of ours is full, and does not move."""
    before = {one.inode: one.unsent for one in sockets_to(port).values()}
    time.sleep(0.03)
    return any(one.unsent and before.get(one.inode) == one.unsent for one in sockets_to(port).values())
