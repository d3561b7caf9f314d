"""What libraries log while a terminal is in use: said as a line of ours, and never written raw into the screen."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager

from halter.terminal.safe import safe_line

LONGEST = 500  # characters of one record


class _Said(logging.Handler):
    def __init__(self, say: Callable[[str], object]) -> None:
        super().__init__(logging.WARNING)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._say(safe_line(record.getMessage(), LONGEST))
        except Exception:  # a log record must not break what it reports on
            pass


@contextmanager
def said(say: Callable[[str], object]) -> Generator[None]:
    """Within the block, `say` gets each warning that is logged or issued, from any thread, as one harmless line."""
    handler, root = _Said(say), logging.getLogger()
    logging.captureWarnings(True)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        logging.captureWarnings(False)
