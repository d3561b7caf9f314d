"""`--conformance`: which of the conformance scenarios are proven by tests that ran and passed.

The scenarios are the rows of docs/conformance.md; `@pytest.mark.scenario("A1", 16)` names those that a test proves. The
number decides, the letter is for readers. 1. A scenario passes only if a test of it ran and passed, and none failed.
2. Skipped is not passed, and neither is expected to fail. 3. A number that is not in the list stops the collection.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

LIST = Path(__file__).parents[1] / "docs" / "conformance.md"
PROPERTY = "scenario"
Result = Literal["passed", "failed", "skipped"]
Status = Literal["pass", "fail", "skipped", "not built"]
STATUSES: tuple[Status, ...] = ("pass", "fail", "skipped", "not built")
COLOURS = {"pass": "green", "fail": "red", "skipped": "yellow", "not built": "white"}
_ROW = re.compile(r"^\| *([A-Z])(\d+) *\| *(.+?) *\|$", re.MULTILINE)
_NUMBER = re.compile(r"([A-Z]?)(\d+)")


@dataclass
class Scenario:
    """One row of the list, and what the tests of this session say about it; `results`: the worst of each test."""

    letter: str
    number: int
    title: str
    results: dict[str, Result] = field(default_factory=dict)

    @property
    def status(self) -> Status:
        results = set(self.results.values())
        if "failed" in results:
            return "fail"
        if "passed" in results:
            return "pass"
        return "skipped" if results else "not built"

    @property
    def counted(self) -> str:
        """`3 passed, 1 skipped`."""
        counts = Counter(self.results.values())
        return ", ".join(f"{counts[result]} {result}" for result in ("passed", "failed", "skipped") if counts[result])

    def note(self, test: str, result: Result) -> None:
        """Counts one phase of a test: a failure stays, a skip is stronger than the phases that passed."""
        order = ("passed", "skipped", "failed")
        self.results[test] = max(self.results.get(test, result), result, key=order.index)


def scenarios(text: str) -> dict[int, Scenario]:
    """The rows of the list, by number."""
    rows = [Scenario(letter, int(number), title) for letter, number, title in _ROW.findall(text)]
    return {row.number: row for row in rows}


def number_of(name: object, known: Iterable[int]) -> int:
    """`"A1"`, `"1"` and `1` are 1. Raises `UsageError` for what is in no list."""
    match = _NUMBER.fullmatch(str(name))
    if match is None or int(match[2]) not in known:
        raise pytest.UsageError(f"there is no conformance scenario {name!r}; see {LIST.name}")
    return int(match[2])


def result_of(report: pytest.TestReport) -> Result | None:
    """What one phase of a test says; `None`: nothing (its set-up or tear-down went well)."""
    if report.failed or hasattr(report, "wasxfail"):
        return "failed"
    if report.skipped:
        return "skipped"
    return "passed" if report.when == "call" else None


class ConformanceReport:
    """Carries the numbers from the markers to the reports (also across processes), and prints the table."""

    def __init__(self, config: pytest.Config) -> None:
        self._is_wanted = bool(config.getoption("--conformance"))
        self._scenarios = scenarios(LIST.read_text(encoding="utf-8"))

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        names = [name for marker in item.iter_markers("scenario") for name in marker.args]
        for number in sorted({number_of(name, self._scenarios) for name in names}):
            item.user_properties.append((PROPERTY, number))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        result = result_of(report)
        for name, number in report.user_properties if result else ():
            if name == PROPERTY and result:
                self._scenarios[int(str(number))].note(report.nodeid, result)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._is_wanted:
            return
        write = terminalreporter.write
        terminalreporter.section("conformance")
        for row in self._scenarios.values():
            write(f"{row.letter}{row.number:<3} ")
            write(f"{row.status:<10}", **{COLOURS[row.status]: True})
            write(f"{row.title}{f' ({row.counted})' if row.results else ''}\n")
        write(f"\n{self.summary()}\n")

    def summary(self) -> str:
        """`112 scenarios: 12 pass, 0 fail, 1 skipped, 99 not built`."""
        counts = Counter(row.status for row in self._scenarios.values())
        return f"{len(self._scenarios)} scenarios: " + ", ".join(f"{counts[s]} {s}" for s in STATUSES)
