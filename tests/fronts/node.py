"""Scripts in Node with the npm packages of `node/package.json`, against a running server.

The packages are installed once for each lock file, into `.npm/` in the root of the repository. `python node.py`
installs them beforehand.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LISTED = Path(__file__).parent / "node"
CACHE = Path(__file__).parents[2] / ".npm"
LIMIT = 30.0  # seconds that a script may take
INSTALL = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
PRELUDE = """
import { createInterface } from "node:readline"
const given = JSON.parse(process.argv[1])
const say = (value) => console.log(JSON.stringify(value ?? null))
const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds))
let lines
const told = async () => {
  lines ??= createInterface({ input: process.stdin })[Symbol.asyncIterator]()
  return JSON.parse((await lines.next()).value)
}
"""

# Runs the scripts that it is given, one after the other, where the prelude's imports are in scope.
WORKER = """
import { createInterface } from "node:readline"
const answer = (value) => process.stdout.write(JSON.stringify(value) + "\\n")
const say = (value) => answer({ said: value ?? null })
const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds))
const waiting = []
const values = []
const told = () => (values.length ? values.shift() : new Promise((resolve) => waiting.push(resolve)))
const failed = (error) => answer({ failed: String(error?.stack ?? error) })
process.on("unhandledRejection", failed)
const start = (source, given) => eval(`(async () => {${source}\\n})`)()
createInterface({ input: process.stdin }).on("line", (line) => {
  const { source, given, value } = JSON.parse(line)
  if (source === undefined) waiting.length ? waiting.shift()(value) : values.push(value)
  else start(source, given).then(() => answer({ ended: true }), failed)
})
"""


def find_programs() -> bool:
    """True if the machine has Node and npm."""
    return shutil.which("node") is not None and shutil.which("npm") is not None


def installed() -> Path:
    """The directory whose `node_modules` has the packages. Raises `subprocess.CalledProcessError`."""
    digest = hashlib.sha256((LISTED / "package-lock.json").read_bytes()).hexdigest()[:12]
    place = CACHE / digest
    place.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / ".ready").exists():
            for name in ("package.json", "package-lock.json"):
                shutil.copy(LISTED / name, place / name)
            subprocess.run(INSTALL, cwd=place, check=True, stdin=subprocess.DEVNULL)
            (place / ".ready").touch()
    return place


class Script:
    """A running script. It prints JSON by `say(value)`, and reads by `await told()`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def heard(self) -> Any:
        """The next value that the script says."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"the script has ended:\n{self._process.communicate()[1]}")
        return json.loads(line)

    def tell(self, value: Any = None) -> None:
        """Gives the script a value."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()

    def result(self) -> Any:
        """The last value that the script says. Waits for its end, which must be a good one."""
        said, errors = self._process.communicate()
        assert self._process.returncode == 0, errors
        return json.loads(said.splitlines()[-1])


class LoadedScript:
    """A script in a `Worker`; see `Script`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.has_ended = False

    def _next(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else {"failed": "its process has ended"}
        self.has_ended = "said" not in answer
        assert "failed" not in answer, answer["failed"]
        return answer

    def heard(self) -> Any:
        """The next value that the script says."""
        answer = self._next()
        assert "said" in answer, "the script has ended"
        return answer["said"]

    def tell(self, value: Any = None) -> None:
        """Gives the script a value."""
        _write(self._process, {"value": value})

    def result(self) -> Any:
        """The last value that the script says. Waits for its end, which must be a good one."""
        said: list[Any] = []
        while "said" in (answer := self._next()):
            said.append(answer["said"])
        return said[-1]


class Worker:
    """One process for many scripts: imports take longer than most of what is tested."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @contextmanager
    def start(self, source: str, **given: Any) -> Generator[LoadedScript]:
        """A script that runs until the end of the block. It reads `given` as an object."""
        script = LoadedScript(self._process)
        with _killed_after(self._process):
            _write(self._process, {"source": source, "given": given})
            yield script
        assert script.has_ended, "wait for the script's result within the block"

    def run(self, source: str, **given: Any) -> Any:
        """The last value that a script says."""
        with self.start(source, **given) as script:
            return script.result()


def _write(process: subprocess.Popen[str], value: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(value) + "\n")
    process.stdin.flush()


@contextmanager
def _killed_after(process: subprocess.Popen[str]) -> Generator[None]:
    killer = threading.Timer(LIMIT, process.kill)
    killer.start()
    try:
        yield
    finally:
        killer.cancel()
        killer.join()


class Node:
    """Runs scripts where the packages are."""

    def __init__(self, place: Path) -> None:
        self._place = place

    @contextmanager
    def start(self, source: str, **given: Any) -> Generator[Script]:
        """A module as a script that runs until the end of the block. It reads `given` as an object."""
        with self._process(PRELUDE + source, json.dumps(given)) as process, _killed_after(process):
            yield Script(process)

    def run(self, source: str, **given: Any) -> Any:
        """The last value that a module says."""
        with self.start(source, **given) as script:
            return script.result()

    @contextmanager
    def loaded(self, imports: str) -> Generator[Worker]:
        """A process that has these imports, and runs scripts until the end of the block."""
        with self._process(imports + WORKER) as process:
            yield Worker(process)

    @contextmanager
    def _process(self, source: str, *arguments: str) -> Generator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            ["node", "--input-type=module", "-e", source, *arguments],
            cwd=self._place,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                yield process
            finally:
                process.kill()


if __name__ == "__main__":
    installed()
