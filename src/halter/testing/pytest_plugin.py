"""Halter's pytest plugin, for your tests too: virtual time, both event loops, the recording provider, leaks.

1. It runs `async def` tests that carry one of *its* markers, and touches no other: pytest-asyncio and anyio
keep theirs. 2. Every suite where Halter is installed imports it, so that it imports next to nothing: what a
fixture needs comes when a test asks for it.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from halter.proof.wire import Wire
    from halter.testing.leaks import Snapshot
    from halter.testing.wire_probe import WireProbe

MARKERS = (
    "virtual_time(seed=None, timeout=None, start=0.0, max_steps=1000000, real_threads=False, debug=False): "
    "run this async test on halter.testing.VirtualTimeLoop, with these arguments of halter.testing.run",
    "real_loop(*names): run this async test on a real event loop, once for each name: "
    "asyncio (the default), uvloop, asyncio-debug, asyncio-eager (Python 3.12)",
    "loops: run this async test under asyncio and uvloop, as real_loop('asyncio', 'uvloop')",
)
BOTH = ("asyncio", "uvloop")
OURS = ("virtual_time", "real_loop", "loops")
LOOPS = (*BOTH, "asyncio-debug", "asyncio-eager")
_LOOP = "halter_loop"


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


# -- async tests


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test on several loops is several tests, each with its loop in its name."""
    names = _loops_of(metafunc.definition)
    if len(names) > 1 and inspect.iscoroutinefunction(metafunc.function):
        metafunc.fixturenames.append(_LOOP)
        metafunc.parametrize(_LOOP, names, indirect=True)


@pytest.fixture
def halter_loop(request: pytest.FixtureRequest) -> str:
    """The name of the loop that carries this test: of one marked `loops` or `real_loop`."""
    names = _loops_of(request.node)
    return getattr(request, "param", names[0] if names else "none")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object:
    """Runs the async tests that carry one of our markers; True says so to pytest."""
    run = _runner_of(pyfuncitem)
    if run is None:
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    given = {name: value for name, value in pyfuncitem.funcargs.items() if name in names}
    run(lambda: pyfuncitem.obj(**given))
    return True


_Main = Callable[[], Coroutine[Any, Any, object]]


def _runner_of(item: pytest.Function) -> Callable[[_Main], object] | None:
    marker = _marker_of(item) if inspect.iscoroutinefunction(item.obj) else None
    if marker is None:
        return None
    if marker.name == "virtual_time":
        return lambda main: _run_virtually(main, marker)
    names = _loops_of(item)
    callspec = getattr(item, "callspec", None)
    name = callspec.params.get(_LOOP, names[0]) if callspec else names[0]
    return lambda main: _run_really(main, name)


def _marker_of(node: pytest.Item | pytest.Collector) -> pytest.Mark | None:
    """Our marker on a test; of several the nearest: a function's before its module's."""
    return next((marker for marker in node.iter_markers() if marker.name in OURS), None)


def _loops_of(node: pytest.Item | pytest.Collector) -> tuple[str, ...]:
    """The real loops that a test asks for."""
    marker = _marker_of(node)
    if marker is None or marker.name == "virtual_time":
        return ()
    names = BOTH if marker.name == "loops" else marker.args or ("asyncio",)
    if unknown := [name for name in names if name not in LOOPS]:
        raise pytest.UsageError(f"{node.nodeid}: real_loop knows {', '.join(LOOPS)}; not {unknown[0]!r}")
    return names


def _run_virtually(main: _Main, marker: pytest.Mark) -> None:
    from halter.testing.virtual_time import run

    run(main, *marker.args, **marker.kwargs)


def _run_really(main: _Main, name: str) -> None:
    with asyncio.Runner(debug=name == "asyncio-debug" or None, loop_factory=_factory(name)) as runner:
        runner.run(main())


def _factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    if name == "uvloop":
        return pytest.importorskip("uvloop").new_event_loop
    return _eager_loop if name == "asyncio-eager" else asyncio.new_event_loop


def _eager_loop() -> asyncio.AbstractEventLoop:
    if sys.version_info < (3, 12):
        pytest.skip("eager tasks came with Python 3.12")
    loop = asyncio.new_event_loop()
    loop.set_task_factory(asyncio.eager_task_factory)
    return loop


# -- the recording provider


@pytest.fixture(scope="session")
def wire_recordings() -> Path | None:
    """Where `replay(file)` of the recording provider looks; override it to use that mode."""
    return None


@pytest.fixture(scope="session")
def wire_process(wire_recordings: Path | None) -> Generator[Wire, None, None]:
    """The session's recording provider: a process of its own, started when the first test asks for it."""
    from halter.testing.wire_probe import provider

    with provider(wire_recordings) as wire:
        yield wire


@pytest.fixture
def wire(wire_process: Wire, request: pytest.FixtureRequest) -> WireProbe:
    """The recording provider as this test sees it: `url(mode)`, `wait(…)`, `assert_closed(…)`."""
    from halter.testing.wire_probe import WireProbe, tag_for

    return WireProbe(wire_process, tag_for(request.node.name))


# -- leaks


@pytest.fixture
def no_leaks(request: pytest.FixtureRequest) -> Generator[Snapshot, None, None]:
    """Fails the test if it leaves threads, descriptors, children, or tasks of Halter's background loop."""
    from halter.core.threads import background_loop
    from halter.testing.leaks import leak_check

    if "wire" in request.fixturenames:
        request.getfixturevalue("wire_process")  # the session's, and here before the test
    with leak_check(background_loop(), warmup=_run_once) as before:
        yield before


def _run_once() -> None:
    """A first blocking run brings what Halter keeps: its background loop, its watchdog, its wake-up pipe."""
    from halter.core.runnable import runnable

    async def nothing(_: object) -> None:
        pass

    runnable(nothing).run(parent=None).result()
