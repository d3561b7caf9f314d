"""Where the candidates of a table store what they store: fresh for each measurement, and gone at the end."""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from tests.services.postgres import Postgres, find_programs

NOWHERE, MEMORY, SQLITE, POSTGRES = "no session", "memory", "SQLite", "PostgreSQL"
BY_HAND = ("sqlite3 by hand", "asyncpg by hand")
AS_DELIVERED = {"listen_addresses": ""}  # each commit is on the disk before it is answered


class Places:
    """A directory for files, and a PostgreSQL of its own if the machine has one (Debian's package)."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._numbers = count(1)
        self._server: Postgres | None = None

    def __enter__(self) -> Self:
        self._directory = Path(self._open.enter_context(TemporaryDirectory()))
        programs = find_programs()
        if programs is None:
            print("PostgreSQL is not installed, and not measured", file=sys.stderr)
        else:
            self._server = self._open.enter_context(closing(Postgres(programs, AS_DELIVERED)))
            self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def ways(self) -> tuple[str, ...]:
        """What can be measured here: where sessions are kept, each with its floor behind it."""
        ways = (MEMORY, SQLITE, BY_HAND[0], POSTGRES, BY_HAND[1])
        return ways if self._server is not None else ways[:3]

    def new(self, way: str) -> str | None:
        """Where one measurement stores: `None` for nowhere, "memory", a path, or a URL."""
        if way in (NOWHERE, MEMORY):
            return None if way == NOWHERE else MEMORY
        if way in (SQLITE, BY_HAND[0]):
            return str(self._directory / f"{next(self._numbers)}.db")
        assert self._server is not None
        return self._server.new_place()
