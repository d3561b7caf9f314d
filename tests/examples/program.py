"""One of the examples, run as a reader runs it: `python examples/x.py` from the root of the repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))
LIMIT = 30.0  # seconds that an example may take


class Program:
    """A running example. `errors`: all of its stderr, once it has ended."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.errors = ""

    def read_until(self, words: str) -> str:
        """What it prints, up to and with these words."""
        assert self.process.stdout is not None
        printed = ""
        while words not in printed:
            letter = self.process.stdout.read(1)
            assert letter, f"it has ended before it said {words!r}:\n{printed}"
            printed += letter
        return printed

    def read_errors_until(self, pattern: str) -> str:
        """The first group of this pattern, in the first line of its stderr that has it."""
        assert self.process.stderr is not None
        read: list[str] = []
        for line in self.process.stderr:
            read.append(line)
            if found := re.search(pattern, line):
                return found[1]
        raise AssertionError("it has ended before it said where it is:\n" + "".join(read))

    def rest(self) -> str:
        """What else it prints, until it ends."""
        printed, self.errors = self.process.communicate(timeout=LIMIT)
        return printed


@contextmanager
def started(name: str, *arguments: str, **environment: str) -> Iterator[Program]:
    """The example, running; killed at the end of the block if it is still there."""
    process = subprocess.Popen(
        _command(name, arguments),
        cwd=ROOT,
        env=_environment(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    killer = threading.Timer(LIMIT, process.kill)
    killer.start()
    try:
        with process:
            yield Program(process)
            process.kill()
    finally:
        process.kill()
        killer.cancel()
        killer.join()


def output_of(name: str, *arguments: str, given: str = "", **environment: str) -> str:
    """All that the example prints, `given` on its stdin; it must end well, and say nothing on stderr."""
    done = subprocess.run(
        _command(name, arguments),
        cwd=ROOT,
        env=_environment(environment),
        input=given,
        timeout=LIMIT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _command(name: str, arguments: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-u", "-W", "error", f"examples/{name}.py", *arguments]


def _environment(given: dict[str, str]) -> dict[str, str]:
    """Without the keys and addresses of whoever runs the tests."""
    theirs = ("_API_KEY", "_BASE_URL", "_PROXY")
    clean = {name: value for name, value in os.environ.items() if not name.upper().endswith(theirs)}
    return {**clean, "PYTHONPATH": str(ROOT / "src"), "OPENAI_API_KEY": "any", "ANTHROPIC_API_KEY": "any", **given}
