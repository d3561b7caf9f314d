"""`python -m bench.frameworks PYTHON`: one task for Halter and for others; `PYTHON`: the interpreter that has them."""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path
from statistics import median

from bench import machine, page
from bench.agents import nesting
from bench.child import in_child
from bench.rounds import interleaved
from bench.table import Line, Table, ratios, spread
from halter.proof.wire import Wire

HERE = Path(__file__).parent
TOKENS = 20_000
PATIENCE = 300.0
OURS = ("agent", "team", "crew", "flow with a crew")
THEIRS = {"CrewAI, a crew": "crewai_crew.py", "AutoGen, a team": "autogen_team.py"}
PACKAGES = ("crewai", "autogen-agentchat")


def theirs(python: str, script: str, url: str) -> float:
    """Microseconds of CPU for each token, as the script says."""
    command = [python, str(HERE / script), url, str(TOKENS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    return float(done.stdout.splitlines()[-1])


def measure(python: str, rounds: int) -> Table:
    with Wire.start() as wire:
        url = wire.url(f"steady({TOKENS},0)", tag="peers")

        def one(name: str) -> float:
            if name in THEIRS:
                return theirs(python, THEIRS[name], url)
            return in_child(nesting, kind=name, url=url, loop="uvloop")

        found = interleaved("frameworks", rounds, (*OURS, *THEIRS), one)
    against = {name: ratios(values, found["agent"]) for name, values in found.items()}
    return Table(
        title="The same answer through a crew, a team, a flow",
        about=f"A flood of {TOKENS:,} tokens from one member, read as events at the root; the second answer of a fresh "
        "process. CPU of the whole process, all threads.",
        columns=("", "µs per token", "× Halter's agent"),
        rows=[(name, spread(values), spread(against[name], 2)) for name, values in found.items()],
        lines=(Line("Halter's dearest / its agent", max(median(against[name]) for name in OURS), 1.3, " ×"),),
    )


def _versions(python: str) -> str:
    program = f"import importlib.metadata as m; print(', '.join(f'{{n}} {{m.version(n)}}' for n in {PACKAGES!r}))"
    return subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.frameworks", description=__doc__)
    parser.add_argument("python", help="an interpreter that has the other frameworks")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="replace the figures in docs/benchmarks.md")
    given = parser.parse_args()
    load = machine.load()
    table = measure(given.python, given.rounds)
    print(table.as_text())
    if given.write:
        facts = f"{machine.describe('uvloop')} {_versions(given.python)}. {given.rounds} rounds; load before: {load}."
        page.write(facts, [table], place="peers")


if __name__ == "__main__":
    main()
