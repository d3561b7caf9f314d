"""docs/server.md: its commands run against a real `halter serve`, and its tables are those of the server."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from halter import Agent
from halter.cli.main import run_command
from halter.server import create_app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "server.md").read_text(encoding="utf-8")
DOCUMENTED = "localhost:8000"
END = "~ the command has ended ~"
FIRST_WORDS = 4  # deltas
PATIENCE = 40  # seconds for the whole page


@dataclass
class Step:
    """A command of the page, and what the page says that it prints: `…` stands for anything."""

    command: str
    prints: str

    @property
    def streams(self) -> bool:
        """It goes on while the next command stops it."""
        return "curl -N" in self.command

    def check(self, printed: str) -> None:
        pieces = [piece.strip() for piece in self.prints.split("…")]
        expression = ".*".join(re.escape(piece) for piece in pieces)
        fits = re.fullmatch(expression, printed.replace("\r", "").strip(), re.DOTALL)
        assert fits, f"{self.command}\nprints\n{printed}\nand not\n{self.prints}"


def steps() -> list[Step]:
    found: list[Step] = []
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, prints = re.sub(r"\\\n +", "", part).partition("\n")
            found.append(Step(command, prints))
    return [step for step in found if "curl" in step.command]


@pytest.fixture
def server(tmp_path: Path) -> Generator[str]:
    """`halter serve examples/served.py`; where it listens."""
    command = [sys.executable, "-m", "halter", "serve", str(ROOT / "examples" / "served.py"), "--port", "0"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    greeting = process.stdout.readline()
    found = re.search(r"http://(\S+)", greeting)
    try:
        assert found, process.communicate(timeout=10)
        yield found[1]
    finally:
        process.kill()
        process.communicate()


class Shell:
    """One shell for the commands of the page: they share its variables."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._bash = subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, step: Step) -> str:
        """What the command prints."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f"{step.command.replace(DOCUMENTED, self._address)}\necho; echo '{END}'\n")
        self._bash.stdin.flush()
        return "".join(iter(self._bash.stdout.readline, f"{END}\n"))

    def close(self) -> None:
        self._bash.kill()
        self._bash.communicate()


class Streaming:
    """A command that goes on beside the shell. Its first words have come when this is made."""

    def __init__(self, step: Step, address: str) -> None:
        self.step = step
        command = ["bash", "-c", step.command.replace(DOCUMENTED, address)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        self._printed = ""
        for line in self._process.stdout:
            self._printed += line
            if self._printed.count("event: text.delta") == FIRST_WORDS:
                break

    def rest(self) -> str:
        """All that it prints."""
        assert self._process.stdout is not None
        return self._printed + self._process.stdout.read()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()  # closes its pipe


@pytest.mark.timeout(PATIENCE)
def test_every_command_prints_what_the_page_says(server: str, require: Callable[[str, bool], None]) -> None:
    require("curl", shutil.which("curl") is not None)
    with ExitStack() as stack:
        shell = stack.enter_context(closing(Shell(server)))
        streams: list[Streaming] = []
        for step in steps():
            if step.streams:
                streams.append(stack.enter_context(closing(Streaming(step, server))))
            else:
                step.check(shell.run(step))
        for streaming in streams:
            streaming.step.check(streaming.rest())
    assert len(streams) == 2


def test_the_table_of_routes_has_every_route_and_no_other() -> None:
    table = PAGE[PAGE.index("## All routes") : PAGE.index("## Options")]
    documented = set(re.findall(r"`(GET|POST|PATCH|DELETE) (/[^`]*)`", table))
    paths = create_app(Agent("scripted:Hi", name="poet")).openapi()["paths"]
    assert documented == {(method.upper(), path) for path, found in paths.items() for method in found}


def test_the_table_of_options_has_every_option_and_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_command(["serve", "--help"])
    shown = capsys.readouterr().out
    table = PAGE[PAGE.index("## Options") : PAGE.index("## In your own app")]
    options = set(re.findall(r"^ +(?:-h, )?(--[\w-]+)", shown, re.MULTILINE))
    assert set(re.findall(r"`(--[\w-]+)`", table)) | {"--help"} == options | {"--port"}
    defaults = re.findall(r"^\| `--[\w-]+` \| `([^`]+)` \|", table, re.MULTILINE)
    words = " ".join(shown.split())
    assert [each for each in defaults if f"default {each}" not in words] == []
