"""Programs started in a sandbox, or in none: one way for tools, jobs, isolated functions and MCP servers."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from halter.children.child import Child
from halter.tools.sandbox import Sandbox
from halter.tools.sandbox_box import Box
from halter.tools.sandbox_hosts import VARIABLES


@dataclass(frozen=True, slots=True)
class Sandboxed:
    """Starts programs, each in the sandbox of its directory, as that was when it was first needed there."""

    sandbox: Sandbox | None
    _boxes: dict[tuple[str, ...], Box] = field(default_factory=dict)

    def box(self, cwd: str, shown: Sequence[str] = ()) -> Box | None:
        """Blocks for some 50 ms the first time. Raises `ConfigurationError`, and `SandboxUnavailable`."""
        if self.sandbox is None:
            return None
        key = (cwd, *shown)
        if key not in self._boxes:
            self._boxes[key] = Box(self.sandbox, cwd, shown)
        return self._boxes[key]

    async def start(
        self,
        child: Child,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        cwd: str,
        shown: Sequence[str] = (),
        **more: Any,
    ) -> None:
        """As `Child.start`. `shown`: paths that it needs to read, wherever they are."""
        if self.sandbox is None:
            await child.start(lambda: argv, environment=environment, cwd=cwd, **more)
            return
        gate = None
        if self.sandbox.hosts is not None:
            from halter.tools.sandbox_gate import Gate

            gate = Gate(self.sandbox.hosts)
            child.gone.add_done_callback(lambda _: gate.close())
            environment = {**environment, **VARIABLES}
            more["handover"] = gate.handover.fileno()
        limits = self.sandbox.limits
        await child.start(
            lambda: self._inside(argv, cwd, shown), environment=environment, cwd=cwd, limits=limits, **more
        )
        if gate is not None:
            await gate.open()

    def _inside(self, argv: Sequence[str], cwd: str, shown: Sequence[str]) -> Sequence[str]:
        box = self.box(cwd, shown)
        return argv if box is None else box.argv(argv)


IN_THE_OPEN = Sandboxed(None)


def paths_of_python() -> tuple[str, ...]:
    """What another interpreter like this one reads to import what this one can."""
    paths = (sys.prefix, sys.base_prefix, *(path for path in sys.path if path))
    return tuple(dict.fromkeys(path for path in map(os.path.abspath, paths) if os.path.exists(path)))
