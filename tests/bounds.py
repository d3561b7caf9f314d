"""Bounds of real time: one that was missed is measured again, three times in all, and the summary tells it.

A machine that is busy with something else misses a bound through no fault of the code; code that is slow misses it each
time. 1. Only `Late` is measured again: what fails for any other reason fails at once. 2. Each measurement is the whole
test, with fixtures set up anew, after a pause in which what the machine was busy with may end. 3. The
specification's bound for a stop stays what it is: `T`.
"""

from __future__ import annotations

import time
from collections.abc import Generator

import pytest
from _pytest.runner import runtestprotocol

from halter.proof.wire import Record
from halter.testing.wire_probe import WireProbe

T = 0.25  # seconds
PAUSES = (0.25, 1.0)  # seconds before the second measurement, and before the third
PROPERTY = "measured again"
_LATE = pytest.StashKey[bool]()


class Late(AssertionError):
    """Right, but not in time. Raise it for nothing else: it is what a second measurement may excuse."""


def assert_within(bound: float, took: float, what: str = "it") -> None:
    """Raises `Late` unless `took`, in seconds, is less than `bound`. `what` took so long is for the message."""
    if took >= bound:
        raise Late(f"{what} took {took:.3f} s, and should have taken less than {bound:g} s")


def assert_in_time(is_so: bool, what: str) -> None:
    """As `assert_within`, of what the code itself gives up after a time: raises `Late` unless `is_so`."""
    if not is_so:
        raise Late(f"not in time: {what}")


class TimedProbe(WireProbe):
    """The probe of this suite: a close that the client has made, only too late, is `Late`."""

    def assert_closed(self, within: float = T, since: float | None = None) -> list[Record]:
        try:
            return super().assert_closed(within, since)
        except AssertionError as error:
            records = self.requests()
            if records and all(record.closed_how in ("eof", "reset") for record in records):
                raise Late(str(error)) from error
            raise


class MeasuredAgain:
    """The plugin that runs a test again which was `Late`."""

    def __init__(self) -> None:
        self._tests: dict[str, int] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "call" and call.excinfo is not None and isinstance(call.excinfo.value, Late):
            item.stash[_LATE] = True
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in _measured(item, nextitem):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        again = sum(name == PROPERTY for name, _ in report.user_properties)
        if again:
            self._tests[report.nodeid] = again

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._tests:
            terminalreporter.section("measured again: they had missed a bound of real time")
        for test, again in sorted(self._tests.items()):
            terminalreporter.write_line(f"{test}: {again} x")


def _measured(item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
    """The reports of the last measurement: the first that is not only late, or the third."""
    for pause in PAUSES:
        item.stash[_LATE] = False
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if not item.stash[_LATE] or sum(report.failed for report in reports) > 1:
            return reports
        item.user_properties.append((PROPERTY, item.nodeid))
        item._initrequest()  # pyright: ignore  # as pytest does it before the first
        time.sleep(pause)
    return runtestprotocol(item, log=False, nextitem=nextitem)
