"""Every approval that is remembered anywhere in this process: for a session, for a tree of runs, in a file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress

from halter.core.approval_file import Allowed, ApprovalFile
from halter.core.approvals import FILES, Remembered
from halter.core.held import all_made_by
from halter.core.home import LIVE
from halter.core.lockfree import snapshot
from halter.errors import ConfigurationError

_logger = logging.getLogger("halter")


def remembered() -> list[tuple[str, Allowed]]:
    """All of them, each with the answer that it was: `session` or `always`. Blocks. A broken file has none."""
    found = [("session", each) for allowed in _of_sessions() for each in tuple(allowed)]
    return found + [("always", each) for file in snapshot(FILES) for each in _read(file)]


def forget(fits: Callable[[Allowed], bool]) -> bool:
    """Takes back those that fit; False if there are none. Blocks. Raises `OSError` if a file cannot be written."""
    is_found = False
    for allowed in _of_sessions():
        for each in filter(fits, tuple(allowed)):
            with suppress(ValueError):  # its session has ended just now
                allowed.remove(each)
            is_found = True
    for file in snapshot(FILES):
        if any(map(fits, _read(file))):
            is_found = file.remove(fits) or is_found
    return is_found


def _of_sessions() -> Iterator[list[Allowed]]:
    yield from all_made_by(Remembered)
    for execution in snapshot(LIVE):
        if execution.parent is None:
            yield execution.allowed


def _read(file: ApprovalFile) -> tuple[Allowed, ...]:
    try:
        return file.read()
    except (ConfigurationError, OSError) as error:
        _logger.warning("stored approvals are not used: %s", error)
        return ()
