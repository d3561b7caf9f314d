"""How much a whole tree of processes may use; its supervisor measures it, and ends the tree that uses more."""

from __future__ import annotations

from typing import NamedTuple


class TreeLimits(NamedTuple):
    """Limits of one program with all that it has started, together; `None`: no limit.

    `memory`: bytes of RAM. `processes`: at once, threads counted. `cpu_seconds`: of all, also of those that have ended.
    `seconds`: from its start. `uncounted`: processes of a sandbox around it, which may run beside the others.
    """

    memory: int | None = None
    processes: int | None = None
    cpu_seconds: float | None = None
    seconds: float | None = None
    uncounted: int = 0

    @property
    def measured(self) -> tuple[float | None, ...]:
        """What its supervisor compares with."""
        processes = None if self.processes is None else self.processes + self.uncounted
        return self.memory, processes, self.cpu_seconds, self.seconds

    def said(self, number: int) -> str:
        """That the limit at this place was exceeded, in words."""
        name = self._fields[number]
        match name:
            case "memory":
                return f"ended: it used more than {(self.memory or 0) / 1e6:,.0f} MB of memory, which is its limit"
            case "processes":
                return f"ended: it ran more than {self.processes} processes and threads at once, which is its limit"
            case "cpu_seconds":
                return f"ended: it used more than {self.cpu_seconds:g} s of CPU time, which is its limit"
            case _:
                return f"ended: it ran for more than {self.seconds:g} s, which is its limit"
