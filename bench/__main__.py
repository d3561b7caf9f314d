"""`python -m bench`: measure, print, and on request check the lines and write the page."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

from bench import machine, page
from bench.agents import measure_agents, measure_calls, measure_nesting
from bench.child import ChildFailed
from bench.cost import measure_flood, measure_paced
from bench.formats import measure_formats
from bench.fronts import measure_fronts
from bench.imports import measure_imports
from bench.memory import measure_held, measure_idle
from bench.rounds import Options
from bench.served import measure_idle_streams, measure_served, measure_stops_over_http
from bench.sessions import measure_turns, measure_writing
from bench.stop import measure_crowd, measure_stop_on_asyncio, measure_stop_on_uvloop
from bench.stopped_calls import measure_stopped_calls
from bench.stored import measure_loading, measure_searching
from bench.table import Table
from bench.terminal import measure_terminal

Measure = Callable[[Options], Table]

# subject → what is measured, and a word on it
SUBJECTS: dict[str, tuple[Sequence[Measure], str]] = {
    "cost": ((measure_flood,), "CPU per token of a flood, against a bare protocol, a loop by hand, the SDK"),
    "formats": ((measure_formats,), "the same of each wire format, against its official SDK"),
    "paced": ((measure_paced,), "CPU per token of 20 streams at 100 tokens/s"),
    "stop": (
        (measure_stop_on_asyncio, measure_stop_on_uvloop),
        "from cancel() to the provider seeing the close, in four states, from three places, on both loops",
    ),
    "calls": ((measure_stopped_calls,), "how long a stop of each kind of tool call takes, and its CPU"),
    "crowd": ((measure_crowd,), "the same among 1,000 other streams"),
    "agents": (
        (measure_nesting, measure_calls, measure_agents),
        "what nesting, a tool call, and a thousand agents at once cost",
    ),
    "sessions": (
        (measure_turns, measure_writing, measure_loading, measure_searching),
        "what a session adds, a hundred writing at once, 10,000 messages",
    ),
    "server": (
        (measure_served, measure_fronts, measure_stops_over_http, measure_idle_streams),
        "CPU per token through the server and its fronts, against what one would write; stops; memory of a stream",
    ),
    "memory": ((measure_idle, measure_held), "of an idle stream, and of a long run that is held"),
    "terminal": ((measure_terminal,), "from a key in `halter chat`, and from `halter ask`, to what the provider sees"),
    "import": ((measure_imports,), "how long `import halter` takes"),
}

DESCRIPTION = """\
Measures Halter against what one would use without it, in one run, on this machine. Every candidate streams from the
recording provider on a loopback socket, in a fresh process per round; the rounds are interleaved and shuffled.
Read the ratios: what else the machine does falls out of them, and not out of the microseconds."""

EPILOG = """\
python -m bench --quick                a first look in a few minutes; not for p99, which needs 200 stops of a kind
python -m bench --only cost,paced      two subjects
python -m bench --check                exit code 1 if a line is not met
python -m bench --write                all of it, into docs/benchmarks.md"""


def _parser() -> argparse.ArgumentParser:
    subjects = "\n".join(f"  {name:10}{about}" for name, (_, about) in SUBJECTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=DESCRIPTION,
        epilog=f"subjects:\n{subjects}\n\n{EPILOG}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", type=_subjects, default=list(SUBJECTS), metavar="A,B", help="these subjects only")
    parser.add_argument("--rounds", type=_positive, help="how many rounds (default: 3; 2 with --quick)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, stops and seconds; no p99")
    parser.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop", help="for every subject but `stop`")
    parser.add_argument("--check", action="store_true", help="exit code 1 if a line is not met")
    parser.add_argument("--write", action="store_true", help="replace the figures in docs/benchmarks.md")
    return parser


def _subjects(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in SUBJECTS]:
        raise argparse.ArgumentTypeError(f"no subject {unknown[0]!r}; there are {', '.join(SUBJECTS)}")
    return names


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError("1 or more")
    return int(text)


def main() -> int:
    parser = _parser()
    given = parser.parse_args()
    if given.write and set(given.only) != set(SUBJECTS):
        parser.error("--write is for all subjects: the page shows one run")
    options = Options(rounds=given.rounds or (2 if given.quick else 3), quick=given.quick, loop=given.loop)
    facts = f"{machine.describe(given.loop)} {options.rounds} rounds; load before: {machine.load()}."
    print(facts, end="\n\n", flush=True)
    if given.quick:
        print("--quick: too few stops for a p99; its lines are left out.", end="\n\n", flush=True)
    began = time.monotonic()
    tables = _measured([measure for name in given.only for measure in SUBJECTS[name][0]], options)
    print(f"load after: {machine.load()}; took {(time.monotonic() - began) / 60:.1f} minutes.")
    if given.write and None not in tables:
        page.write(facts, [table for table in tables if table is not None])
    if None in tables:
        return 2
    return _check(tables) if given.check else 0


def _check(tables: Sequence[Table | None]) -> int:
    """Prints all lines; the exit code: 1 if one is not met."""
    found = [(table.title, line) for table in tables if table is not None for line in table.lines]
    print("\n".join(("", *(f"{'✓' if line.is_met else '✗'} {title}: {line}" for title, line in found))))
    missed = sum(not line.is_met for _, line in found)
    print(f"\n{len(found) - missed} of {len(found)} lines are met.")
    return 1 if missed else 0


def _measured(measures: Sequence[Measure], options: Options) -> list[Table | None]:
    """Their tables, printed as they come; `None` for one that failed."""
    tables: list[Table | None] = []
    for measure in measures:
        began = time.monotonic()
        try:
            tables.append(measure(options))
        except ChildFailed as error:
            print(f"{measure.__name__}: {error}", file=sys.stderr)
            tables.append(None)
        else:
            print(tables[-1].as_text(), flush=True)
        print(f"{measure.__name__}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return tables


if __name__ == "__main__":
    sys.exit(main())
