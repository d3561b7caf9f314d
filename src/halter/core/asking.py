"""A question that a run has asked, and waits to have answered."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from halter.errors import UsageError

_WORDS = {True: "yes", False: "no"}


class Asked(NamedTuple):
    """`options`: the answers that it takes, if not all."""

    answer: asyncio.Future[Any]
    kind: str
    options: tuple[str, ...]

    def read(self, value: Any) -> Any:
        """The value, if it is an answer: an approval takes a bool as well. Raises `UsageError`."""
        if self.kind == "approval" and isinstance(value, bool):
            value = _WORDS[value]
        if self.options and value not in self.options:
            raise UsageError(f"the answer must be one of {', '.join(map(repr, self.options))}, not {value!r}")
        return value

    def give(self, value: Any) -> None:
        """Answers it, once. Home loop only."""
        if not self.answer.done():
            self.answer.set_result(value)
