"""Pages that servers allow to be kept, in memory: a private cache by the basics of RFC 9111.

A page is kept if its server says for how long (`max-age`, `Expires`), or gives it a validator (`ETag`,
`Last-Modified`), and does not forbid it (`no-store`, `Vary: *`). Nothing is guessed: a page without any of these is
asked for each time. All requests of one tool have the same headers, so no other `Vary` matters. From any thread.
"""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")
_DIRECTIVE = re.compile(r"([\w-]+)(?:\s*=\s*\"?([^\",]*)\"?)?")
LONGEST_AGE = 7 * 24 * 3600.0  # seconds; a server that says more is asked again after a week


class Kept(msgspec.Struct, Generic[T]):
    """A page, and until when it is fresh, on the monotonic clock."""

    page: T
    size: int
    fresh_until: float
    conditions: Mapping[str, str]  # headers that ask whether it has changed


class PageCache(Generic[T]):
    """At most `limit` bytes of pages, those used last."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._size = 0
        self._kept: OrderedDict[str, Kept[T]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, url: str) -> Kept[T] | None:
        """Returns what is kept of a URL, fresh or not."""
        with self._lock:
            if url in self._kept:
                self._kept.move_to_end(url)
            return self._kept.get(url)

    def is_fresh(self, kept: Kept[T]) -> bool:
        """Checks whether a page may be used without asking its server."""
        return self._clock() < kept.fresh_until

    def store(self, url: str, page: T, size: int, headers: Mapping[str, str]) -> None:
        """Keeps a page if its headers allow it; what was kept of its URL is let go."""
        fresh = freshness(headers)
        conditions = _conditions(headers)
        with self._lock:
            self._drop(url)
            if fresh is None or (fresh <= 0 and not conditions) or size > self._limit:
                return
            self._kept[url] = Kept(page, size, self._clock() + fresh, conditions)
            self._size += size
            while self._size > self._limit:
                self._drop(next(iter(self._kept)))

    def confirm(self, kept: Kept[T], headers: Mapping[str, str]) -> None:
        """Notes that the server says a page has not changed, and for how long that holds."""
        kept.fresh_until = self._clock() + (freshness(headers) or 0.0)

    def _drop(self, url: str) -> None:
        gone = self._kept.pop(url, None)
        if gone is not None:
            self._size -= gone.size


def freshness(headers: Mapping[str, str]) -> float | None:
    """Seconds for which an answer may be used without asking again; `None` if it may not be kept at all."""
    directives = {name.lower(): value for name, value in _DIRECTIVE.findall(headers.get("cache-control", ""))}
    if "no-store" in directives or headers.get("vary", "").strip() == "*":
        return None
    if "no-cache" in directives:
        return 0.0
    lifetime = _seconds(directives["max-age"]) if "max-age" in directives else _until_expiry(headers)
    return max(0.0, min(lifetime, LONGEST_AGE) - _seconds(headers.get("age", "0")))


def _seconds(text: str) -> float:
    return float(text[:10]) if text.isascii() and text.isdigit() else 0.0


def _until_expiry(headers: Mapping[str, str]) -> float:
    try:
        expires, date = (parsedate_to_datetime(headers[name]) for name in ("expires", "date"))
        return (expires - date).total_seconds()
    except (KeyError, ValueError, TypeError):  # missing, no date, or one without a zone
        return 0.0


def _conditions(headers: Mapping[str, str]) -> dict[str, str]:
    asks = {"etag": "if-none-match", "last-modified": "if-modified-since"}
    return {asks[name]: headers[name] for name in asks if headers.get(name)}
