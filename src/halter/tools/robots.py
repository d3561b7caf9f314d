"""What a site allows programs to fetch, as its `/robots.txt` says (RFC 9309).

With the extra `web`, Protego reads the rules, as search engines do: the longest rule counts, with `*` and `$`. Without
it, the standard library does, for which the first rule counts, without wildcards.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, TypeAlias
from urllib.robotparser import RobotFileParser

import msgspec
from yarl import URL

LARGEST = 500 * 1024  # bytes that are read: RFC 9309, 2.5
KEPT_FOR = 3600.0  # seconds; RFC 9309, 2.4, allows a day
MOST_SITES = 500

Allows: TypeAlias = Callable[[str], bool]
# Fetches a robots.txt, redirects followed: its status and text.
Get: TypeAlias = Callable[[str], Awaitable[tuple[int, str]]]
InThread: TypeAlias = Callable[..., Awaitable[Any]]


class _Site(msgspec.Struct):
    allows: Allows
    until: float


class Robots:
    """The rules of the sites that were asked last, for one user agent. From any thread."""

    def __init__(self, agent: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._agent = agent
        self._clock = clock
        self._sites: OrderedDict[str, _Site] = OrderedDict()
        self._lock = threading.Lock()

    async def allows(self, url: str, get: Get, in_thread: InThread) -> bool:
        """Checks whether a URL may be fetched; asks its site if its rules are not known, or too old.

        Rules may be long: `in_thread` calls the functions that read and compare them. Raises what `get` raises: a site
        whose rules cannot be had is not fetched from.
        """
        place = URL(url)
        origin = str(place.origin())
        site = self._sites.get(origin)
        if site is None or self._clock() >= site.until:
            status, text = await get(f"{origin}/robots.txt")
            site = _Site(await in_thread(self._rules, status, text), self._clock() + KEPT_FOR)
            with self._lock:
                self._sites[origin] = site
                if len(self._sites) > MOST_SITES:
                    self._sites.popitem(last=False)
        return await in_thread(site.allows, url)

    def _rules(self, status: int, text: str) -> Allows:
        """RFC 9309, 2.3.1: without rules all is allowed, and nothing where the server fails."""
        if status >= 500 or status == 429:
            return lambda url: False
        if status >= 400:
            return lambda url: True
        return _with_protego(text, self._agent) or _with_the_standard_library(text, self._agent)


def _with_protego(text: str, agent: str) -> Allows | None:
    try:
        rules: Any = import_module("protego").Protego.parse(text)
    except ImportError:
        return None
    return lambda url: bool(rules.can_fetch(url, agent))


def _with_the_standard_library(text: str, agent: str) -> Allows:
    rules = RobotFileParser()
    rules.parse(text.splitlines())
    return lambda url: rules.can_fetch(agent, url)
