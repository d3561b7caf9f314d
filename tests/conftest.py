"""What every test here lives with: nothing is left behind, no warning is let pass, scenarios have numbers."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

import pytest
from hypothesis import settings

from halter.core import elsewhere
from halter.proof.wire import Wire
from halter.testing import pytest_plugin
from halter.testing.wire_probe import WireProbe, tag_for

from .bounds import MeasuredAgain, TimedProbe
from .conformance_report import ConformanceReport

pytest_plugins = ["pytester"]

GRACE = 2.0  # seconds that a run gets to end after its test
SERVICES = "HALTER_REQUIRE_SERVICES"
STRICT = ("PytestUnraisableExceptionWarning", "PytestUnhandledThreadExceptionWarning")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--conformance", action="store_true", help="print the table of conformance scenarios")


# A bound on the time of one example fails where another process has the processor.
settings.register_profile("halter", deadline=None)
settings.load_profile("halter")


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until all is imported: nothing of it is garbage
    manager = config.pluginmanager
    if not manager.is_registered(pytest_plugin):  # it is where Halter is installed, not on a bare PYTHONPATH
        manager.register(pytest_plugin, "halter")
    manager.register(ConformanceReport(config), "conformance")
    manager.register(MeasuredAgain(), "measured-again")
    for name in STRICT:
        config.addinivalue_line("filterwarnings", f"error::pytest.{name}")
    _surroundings_are_ordinary()


def _surroundings_are_ordinary() -> None:
    """What the shell that started the tests may have changed, and what the programs of the tests would inherit."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background, under `nohup`: Ctrl-C would do nothing
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Hundreds of programs are started, and each would compile Halter anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def pytest_collection_finish() -> None:
    """What is there before the first test stays: the collector need not look at it in each of its pauses."""
    gc.enable()
    gc.collect()
    gc.freeze()


# -- services that a machine may lack


def require_service(name: str, found: bool) -> None:
    """Skips the test if the service was not found; fails it where `HALTER_REQUIRE_SERVICES=1`."""
    if found:
        return
    if os.environ.get(SERVICES, "0") not in ("", "0"):
        pytest.fail(f"{name} was not found, and {SERVICES} is set", pytrace=False)
    pytest.skip(f"needs {name}")


@pytest.fixture(scope="session")
def require() -> Callable[[str, bool], None]:
    """`require("nginx", found)`: see `require_service`."""
    return require_service


# -- the provider's record


@pytest.fixture
def wire(wire_process: Wire, request: pytest.FixtureRequest) -> WireProbe:
    """The plugin's fixture; what it asserts of real time may be measured again."""
    return TimedProbe(wire_process, tag_for(request.node.name))


# -- no run outlives its test


def _live() -> dict[str, Any]:
    """The live runs; none where nothing has imported the machinery."""
    home = sys.modules.get("halter.core.home")
    if home is None:
        return {}
    if home._homes:
        _let_starts_arrive(home)
    return dict(home.LIVE)


def _let_starts_arrive(home: Any) -> None:
    """What was started from here on the background loop counts as live once that has heard of it."""
    loop = next((loop for loop in list(home._homes) if home.is_background(loop)), None)
    if loop is not None:
        heard = threading.Event()
        loop.call_soon_threadsafe(heard.set)
        heard.wait(GRACE)


@pytest.fixture(autouse=True)
def no_place_is_known() -> None:
    """A place of sessions that an earlier test has dropped is known until the garbage collector finds it."""
    elsewhere._open.clear()  # pyright: ignore[reportPrivateUsage]


@pytest.fixture(autouse=True)
def no_run_is_left(request: pytest.FixtureRequest) -> Generator[None, None, None]:
    """Fails a test that leaves live runs behind, and stops them, so that the next test is not blamed."""
    before = _live()
    yield
    left = _left_since(before, GRACE)
    names = [repr(execution) for execution in left.values()]
    for execution in left.values():
        execution.cancel("its test is over")
    if left and not _left_since(before, GRACE):
        names.append("(they ended when they were cancelled)")
    if left:
        pytest.fail(f"{request.node.name} has left live runs behind:\n  " + "\n  ".join(names), pytrace=False)


def _left_since(before: dict[str, Any], wait: float) -> dict[str, Any]:
    until = time.monotonic() + wait
    left = _new(before)
    while left and time.monotonic() < until:
        left = {}
        gc.collect()  # a handle in a cycle is dropped now, and its run stopped
        time.sleep(0.005)
        left = _new(before)
    return left


def _new(before: dict[str, Any]) -> dict[str, Any]:
    return {id: execution for id, execution in _live().items() if id not in before}
