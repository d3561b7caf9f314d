"""What the stopping tests share: each adapter, each form, and the provider's ports."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Generator
from typing import Any
from urllib.parse import urlsplit

import pytest

from halter.core.home import Home, _homes, is_background
from halter.net.sockets import SocketSource
from halter.testing.wire_probe import WireProbe

from .adapters import ADAPTERS, Adapter
from .forms import AsyncForm, BlockingForm, forms


@pytest.fixture(params=ADAPTERS, ids=lambda adapter: adapter.name)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    return request.param


@pytest.fixture(params=forms(), ids=repr)
def form(request: pytest.FixtureRequest) -> AsyncForm | BlockingForm:
    """How the run is used: awaited on asyncio, on uvloop, or read by blocking code."""
    return request.param


@pytest.fixture(params=["plain", "tls"])
def reach(request: pytest.FixtureRequest, wire: WireProbe) -> Callable[[str], tuple[str, dict[str, Any], int]]:
    """How a mode is reached: `reach(mode)` gives the URL, the model's options and the port, plain and over TLS."""

    def plain(mode: str) -> tuple[str, dict[str, Any], int]:
        return wire.url(mode), {}, port_of(wire.url(mode))

    def tls(mode: str) -> tuple[str, dict[str, Any], int]:
        return wire.tls_url(mode), {"source": SocketSource(ca_file=wire.ca_file)}, port_of(wire.tls_url(mode))

    return plain if request.param == "plain" else tls


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


@pytest.fixture(autouse=True)
def no_connection_is_kept_from_before() -> None:
    """A provider that broke off its answer may close a kept connection just when the next test would use it."""
    background = next((home for loop, home in list(_homes.items()) if is_background(loop)), None)
    if background is not None:
        closed = threading.Event()
        background.loop.call_soon_threadsafe(_close_idle, background, closed)
        assert closed.wait(5)


def _close_idle(home: Home, closed: threading.Event) -> None:
    for pool in home.kept.values():
        connector = getattr(pool, "_connector", None)  # what else is kept has no connections
        for kept in list(connector._conns.values()) if connector is not None else ():
            for protocol, _ in kept:
                protocol.close()
    closed.set()


@pytest.fixture
def port(wire: WireProbe) -> int:
    return port_of(wire.url())


@pytest.fixture
def on_signal() -> Generator[Callable[[int, Callable[[], object]], None]]:
    """`on_signal(number, fn)`: a plain handler for the length of the test."""
    before: dict[int, Any] = {}

    def install(number: int, fn: Callable[[], object]) -> None:
        before.setdefault(number, signal.getsignal(number))
        signal.signal(number, lambda *_: fn())

    yield install
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def quiet_loop() -> Callable[[], list[dict[str, Any]]]:
    """`quiet_loop()` on a loop: a list of all that is reported to its exception handler from now on."""

    def listen() -> list[dict[str, Any]]:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        return reported

    return listen
