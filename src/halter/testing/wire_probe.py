"""One test's view of the recording provider: its own tag, and assertions on what the *other side* saw."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from halter.proof.wire import Record, State, Wire, WireTimeout

_numbers = itertools.count(1)
_BY_THE_CLIENT = ("eof", "reset")
_SLACK = 1.0  # seconds to wait past a bound: the record has instants, so waiting longer changes no verdict


class WireProbe:
    """The recording provider as one test sees it: only the requests with its own `tag`.

    The methods block for about a millisecond, `wait` and `assert_closed` for as long as they wait. On a loop
    use `awaited`, and call `assert_closed` after the stop has been awaited: a blocked loop closes nothing.
    """

    def __init__(self, wire: Wire, tag: str) -> None:
        self.wire = wire
        self.tag = tag

    # -- addresses

    def url(self, mode: str = "steady(20,5)") -> str:
        """A base URL ending in `/v1`. `mode`: how it behaves, such as `stall` or `steady(40,10)`."""
        return self.wire.url(mode, tag=self.tag)

    def tls_url(self, mode: str = "steady(20,5)") -> str:
        """The same over TLS; trust `ca_file`."""
        return self.wire.tls_url(mode, tag=self.tag)

    @property
    def ca_file(self) -> str:
        return self.wire.ca_file

    def no_accept_url(self) -> str:
        """A base URL where connect() hangs. Nothing is recorded there."""
        return self.wire.no_accept_url()

    # -- the record

    def requests(self) -> list[Record]:
        """This test's requests so far, in order."""
        return self.wire.requests(self.tag)

    def wait(self, state: State, count: int = 1, timeout: float = 5.0) -> list[Record]:
        """Waits until `count` requests were `started`, sent a `token`, `finished` or `closed`; returns all.

        Raises `WireTimeout` (an `AssertionError`) after `timeout` seconds.
        """
        return self.wire.wait(state, tag=self.tag, count=count, timeout=timeout)

    async def awaited(self, state: State, count: int = 1, timeout: float = 5.0) -> list[Record]:
        """`wait` for a running event loop."""
        return await self.wire.awaited(state, tag=self.tag, count=count, timeout=timeout)

    # -- assertions

    def assert_closed(self, within: float = 0.25, since: float | None = None) -> list[Record]:
        """Asserts that the client has closed every request of this test; returns them.

        `within`: seconds after `since`, an instant of `time.monotonic()` (None: now). By the provider's
        record: a connection that it ended itself, or that is open, fails. So does a test without requests.
        """
        since = time.monotonic() if since is None else since
        records = self._closed_by(since + within + _SLACK)
        if not records:
            raise AssertionError(f"the provider has seen no request tagged {self.tag!r}")
        late = [problem for record in records if (problem := _not_closed(record, since, within))]
        if late:
            raise AssertionError(f"not closed by the client within {within:g} s:" + "".join(late))
        return records

    def _closed_by(self, until: float) -> list[Record]:
        records = self.requests()
        try:
            return self.wait("closed", len(records), max(0.0, until - time.monotonic())) if records else []
        except WireTimeout as error:
            return error.records

    def assert_no_requests_after(self, instant: float) -> None:
        """Asserts that no request of this test began after `instant` (`time.monotonic()`), until now."""
        late = [record for record in self.requests() if record.started > instant]
        lines = (f"\n  {_name(record)}: {record.started - instant:.3f} s after" for record in late)
        if late:
            raise AssertionError(f"{len(late)} requests began after the instant:" + "".join(lines))

    def __repr__(self) -> str:
        return f"<WireProbe {self.tag!r} on {self.wire!r}>"


def _not_closed(record: Record, since: float, within: float) -> str | None:
    name = f"\n  {_name(record)}"
    if record.closed_at is None:
        return f"{name}: still open, {record.tokens_sent} tokens sent"
    if record.closed_how not in _BY_THE_CLIENT:
        return f"{name}: ended by the provider itself"
    late = record.closed_at - since
    return f"{name}: {late:.3f} s after the instant" if late > within else None


def _name(record: Record) -> str:
    return f"request {record.id} ({record.mode})"


@contextmanager
def provider(recordings: str | Path | None) -> Generator[Wire, None, None]:
    """The recording provider, with TLS wherever a certificate can be made."""
    can_tls = find_spec("cryptography") is not None or which("openssl") is not None
    with Wire.start(tls=can_tls, recordings=recordings) as wire:
        yield wire


def tag_for(test_name: str) -> str:
    """A tag of its own, in which the test's name can be recognised."""
    word = re.sub(r"[^A-Za-z0-9_.-]+", "-", test_name)[:80]
    return f"{word}-{next(_numbers)}"
