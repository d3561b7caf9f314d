"""What the system says of one process, by its number: `/proc/<pid>/stat`. Where there is no /proc, nothing is found."""

from __future__ import annotations

import os
from dataclasses import dataclass

_KERNEL_THREAD = 0x00200000  # PF_KTHREAD


@dataclass(frozen=True, slots=True)
class Stat:
    """A process as it was when looked at; see proc_pid_stat(5). `started`: in ticks since the machine's start."""

    pid: int
    state: bytes
    parent: int
    group: int
    session: int
    flags: int
    threads: int
    started: int

    @property
    def is_over(self) -> bool:
        """True if it has ended, and nobody has waited for it. Its first thread may have ended, and others go on."""
        return self.state in (b"Z", b"X") and self.threads <= 1

    @property
    def is_kernels(self) -> bool:
        """True if it is a thread of the kernel: it has no environment."""
        return bool(self.flags & _KERNEL_THREAD)


def stat(pid: int) -> Stat | None:
    """The process of this number, or `None`."""
    text = read_some(f"/proc/{pid}/stat", 4096)
    # The name, in parentheses, may hold anything, parentheses too.
    fields = text[text.rfind(b")") + 1 :].split()
    if len(fields) < 20:
        return None
    return Stat(
        pid=pid,
        state=fields[0],
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        flags=int(fields[6]),
        threads=int(fields[17]),
        started=int(fields[19]),
    )


def read_some(path: str, at_most: int) -> bytes:
    """What the file holds, up to so many bytes; nothing if it is gone, or not ours to read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    pieces: list[bytes] = []
    try:
        while at_most > 0 and (piece := os.read(descriptor, min(at_most, 1 << 17))):
            pieces.append(piece)
            at_most -= len(piece)
    except OSError:  # the process ended meanwhile
        pass
    finally:
        os.close(descriptor)
    return b"".join(pieces)
