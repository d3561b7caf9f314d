"""Our own sockets, as the kernel sees them: what a peer that does not read could never tell."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SYN_SENT = 2  # of the kernel's TCP states


@dataclass(frozen=True)
class OpenSocket:
    """One TCP socket that this process holds. `inode` names it; `unsent`: bytes in the kernel's send queue."""

    fd: int
    inode: str
    port: int
    state: int
    unsent: int


def sockets_to(port: int) -> dict[str, OpenSocket]:
    """The sockets that `/proc/self/fd` shows and whose other end is this port; by inode."""
    found = (_look(fd, inode) for inode, fd in _held())
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


def _look(fd: int, inode: str) -> OpenSocket | None:
    """What the kernel says of a descriptor that is somebody else's: it is neither copied nor closed."""
    try:
        sock = socket.socket(fileno=fd)
    except OSError:
        return None  # closed while we looked
    try:
        if sock.family not in (socket.AF_INET, socket.AF_INET6):
            return None
        state = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        unsent = int.from_bytes(fcntl.ioctl(fd, termios.TIOCOUTQ, bytes(4)), "little")
        return OpenSocket(fd, inode, _other_end(sock, state, inode), state, unsent)
    except OSError as error:
        if error.errno in (errno.ENOTCONN, errno.EBADF, errno.EINVAL, errno.EOPNOTSUPP):
            return None  # it listens, it is over, it is no TCP
        raise
    finally:
        sock.detach()


def _other_end(sock: socket.socket, state: int, inode: str) -> int:
    """The port; of a socket that is still connecting only the table of all sockets knows it, which is slow to read."""
    if state != SYN_SENT:
        return sock.getpeername()[1]
    lines = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return next((int(fields[2].split(":")[1], 16) for fields in lines if fields[9] == inode), 0)


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
