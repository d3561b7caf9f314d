"""`python -m bench.adk PYTHON`: `/run_sse` of this server and of ADK's own; `PYTHON`: the interpreter that has ADK."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench import machine, page
from bench.child import ROOT
from bench.fronts import ADK, cpu_per_token
from bench.rounds import interleaved
from bench.served import GAP, Server, until_it_answers
from bench.table import Line, Table, ratios, spread

SCRIPT = Path(__file__).parent / "frameworks" / "adk_server.py"
CLIENTS = 50
OURS, THEIRS, LEAST = "halter", "google-adk", "ready frames"
APPS = {OURS: "script", LEAST: "frames"}


# what is said: a name, and how many tokens come at once
STREAMS = {"token by token": 1, "in bursts of 20": 20}


@contextmanager
def serving(name: str, python: str, script: str) -> Generator[Server]:
    """A server in a process of its own, whose agent says a script: there is no provider."""
    if name == THEIRS:
        command = [python, "-W", "ignore", str(SCRIPT), script]
    else:
        command = [sys.executable, "-m", "bench.servers", APPS[name], script]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        until_it_answers(port)
        yield Server(process.pid, port, "", b"", b"")
    finally:
        process.kill()
        process.communicate()


def measure(python: str, rounds: int, tokens: int, stream: str) -> Table:
    burst = STREAMS[stream]
    script = f"{tokens},{burst},{GAP * burst}"

    def one(name: str) -> float:
        with serving(name, python, script) as server:
            return cpu_per_token(server, ADK, CLIENTS, tokens, "uvloop")

    found = interleaved(f"adk {stream}", rounds, (OURS, THEIRS, LEAST), one)
    against = {name: ratios(values, found[OURS]) for name, values in found.items()}
    return Table(
        title=f"`/run_sse` {stream}, against ADK's own server",
        about=f"{CLIENTS} clients at once, {1000 // GAP} tokens/s each, {tokens} tokens; the agent says a script in "
        "the server's process. CPU of that process. All on uvicorn with uvloop and httptools. Ready frames: a "
        "StreamingResponse of Starlette that writes constant bytes, without agent, run or session.",
        columns=("", "µs of CPU per token (min–max)", "× halter"),
        rows=tuple((name, spread(values), spread(against[name], 2)) for name, values in found.items()),
        lines=(Line(f"{THEIRS} / {OURS}", median(against[THEIRS]), 20, " ×", at_least=True),),
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.adk", description=__doc__)
    parser.add_argument("python", help="an interpreter that has google-adk")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--write", action="store_true", help="replace the figures in docs/benchmarks.md")
    given = parser.parse_args()
    load = machine.load()
    tables = [measure(given.python, given.rounds, given.tokens, stream) for stream in STREAMS]
    for table in tables:
        print(table.as_text())
    if given.write:
        program = "import importlib.metadata as m; print('google-adk', m.version('google-adk'))"
        version = subprocess.run([given.python, "-c", program], capture_output=True, text=True, check=True).stdout
        facts = f"{machine.describe('uvloop')} {version.strip()}. {given.rounds} rounds; load before: {load}."
        page.write(facts, tables, place="adk")


if __name__ == "__main__":
    main()
