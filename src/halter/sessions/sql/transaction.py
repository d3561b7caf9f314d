"""One transaction, as the steps of the store see it: the same for SQLite in its thread and PostgreSQL on the loop.

What every turn of a run does is built once (constants, and functions under `cache`), with places for values: to build a
statement takes several times as long as to run it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import sqlalchemy as sa

from halter.sessions.sql.dialects import Dialect, as_stored

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Transaction:
    """What a step works with. `again`: it may have happened before, and its answer was lost on the way.

    `is_dead`: whether an owner has certainly ended.
    """

    connection: sa.Connection
    dialect: Dialect
    is_dead: Callable[[str], bool]
    again: bool = False

    def execute(
        self, statement: Any, values: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None
    ) -> sa.CursorResult[Any]:
        return self.connection.execute(statement, values)

    def first(self, query: sa.Executable, **values: Any) -> Any:
        """The first row, or `None`."""
        return self.connection.execute(query, values).first()

    def all(self, query: sa.Executable, **values: Any) -> Sequence[Any]:
        return self.connection.execute(query, values).all()

    def insert(self, table: sa.Table) -> Any:
        return self.dialect.insert(table)

    def clock(self) -> sa.ColumnElement[float]:
        return self.dialect.clock()

    def is_over(self, owner: str, expires_at: float | None, now: float) -> bool:
        """Whether a lease has run out, or its owner has ended. `now`: of the dialect's clock for leases.

        One whose end is damaged has run out: who still has the turn renews it within seconds.
        """
        if not isinstance(expires_at, int | float):
            return True
        return self.dialect.is_over(owner, expires_at, now) or self.is_dead(owner)

    def put_words(self, table: sa.TableClause, found: Iterable[tuple[int, Iterable[str]]]) -> None:
        """Words, by the number of what they are the words of."""
        rows = [{"number": number, "found": as_stored(words)} for number, words in found]
        if rows := [row for row in rows if row["found"]]:
            self.execute(self.dialect.put_words(table), rows)


Step: TypeAlias = Callable[[Transaction], T]
