"""The record of one request to the provider in memory: when it came, how far it got, how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from halter.core.ports import HttpRequest

Phase: TypeAlias = Literal["pool", "connect", "head", "body", "over"]
How: TypeAlias = Literal["finished", "aborted", "broken"]


class MemoryRequest:
    """The record of one request. Instants are the loop's (`loop.time()`).

    `at`: when it was made. `phase`: how far it has come. `bytes_read`: how much of the body was handed over.
    `ended`: `finished` (its body was read to the end), `aborted` (left early, or closed by a stop), `broken`
    (by the script), None while it goes on; `ended_at`: when.
    """

    def __init__(self, request: HttpRequest, at: float) -> None:
        self.request = request
        self.at = at
        self.phase: Phase = "pool"
        self.bytes_read = 0
        self.ended: How | None = None
        self.ended_at: float | None = None

    @property
    def url(self) -> str:
        return self.request.url

    @property
    def headers(self) -> Mapping[str, str]:
        return self.request.headers

    @property
    def body(self) -> bytes:
        return self.request.body

    @property
    def json(self) -> Any:
        """The decoded body."""
        return msgspec.json.decode(self.request.body)

    @property
    def is_open(self) -> bool:
        return self.ended is None

    @property
    def finished_at(self) -> float | None:
        return self.ended_at if self.ended == "finished" else None

    @property
    def aborted_at(self) -> float | None:
        return self.ended_at if self.ended == "aborted" else None

    def end(self, how: How, at: float) -> None:
        """Used by the source itself. The first word counts."""
        if self.ended is None:
            self.ended, self.ended_at = how, at

    def __repr__(self) -> str:
        end = f"in phase {self.phase}" if self.ended is None else f"{self.ended} at {self.ended_at:g} s"
        return f"<MemoryRequest {self.request.label} made at {self.at:g} s, {end}>"
