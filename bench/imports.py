"""How long an import takes in a fresh interpreter, beyond the interpreter's own start."""

from __future__ import annotations

import subprocess
import sys

from bench.rounds import Options, interleaved
from bench.table import Line, Table

STATEMENTS = {
    "import halter": "import halter",
    "from halter import Agent": "from halter import Agent",
    "halter with its HTTP": "from halter import Agent; import halter.models.openai, halter.net.sockets",
    "import aiohttp": "import aiohttp",
    "import openai": "import openai",
}
_PROGRAM = "import time; t = time.perf_counter(); {}; print((time.perf_counter() - t) * 1e3)"


def milliseconds(statement: str) -> float:
    """Of one import in a process of its own, with compiled files in place after the first."""
    command = [sys.executable, "-c", _PROGRAM.format(statement)]
    return float(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)


def measure_imports(options: Options) -> Table:
    rounds = 5 if options.quick else 10
    found = interleaved("import", rounds, list(STATEMENTS), lambda name: milliseconds(STATEMENTS[name]))
    best = {name: min(values) for name, values in found.items()}
    return Table(
        title="Import",
        about=f"Best of {rounds} fresh processes.",
        columns=("", "ms"),
        rows=[(name, f"{value:.0f}") for name, value in best.items()],
        lines=(Line("import halter", best["import halter"], 100, " ms"),),
    )
