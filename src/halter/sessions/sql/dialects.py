"""What differs between SQLite and PostgreSQL: upserts, the clock, and how words are kept and looked for."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from halter.core import boot_clock
from halter.core.owner import is_of_another_boot

MOST_WORDS = 200  # that are looked for at once


class Dialect(Protocol):
    """A kind of database, as SQL. Two of a kind are equal: statements are built once for each kind."""

    def insert(self, table: sa.Table) -> Any:
        """An INSERT that takes ON CONFLICT."""
        ...

    def clock(self) -> sa.ColumnElement[float]:
        """Seconds since the epoch."""
        ...

    def lease_clock(self) -> sa.ColumnElement[float]:
        """The seconds by which leases run out."""
        ...

    def is_over(self, owner: str, expires_at: float | None, now: float) -> bool:
        """Whether a lease has run out; `now`: of `lease_clock`."""
        ...

    def holds(self, text: sa.ColumnElement[Any], part: str) -> sa.ColumnElement[bool]:
        """The column has this part, letter by letter."""
        ...

    def put_words(self, table: sa.TableClause) -> sa.Insert:
        """An INSERT of `number` and `found`: words between spaces."""
        ...

    def has_words(
        self, table: sa.TableClause, words: Collection[str], *, all_of_them: bool
    ) -> sa.ColumnElement[bool]: ...


@dataclass(frozen=True)
class Sqlite:
    """One clock for all, since all who use the file are on one machine: leases go by one that nobody can set."""

    def insert(self, table: sa.Table) -> Any:
        return sqlite.insert(table)

    def clock(self) -> sa.ColumnElement[float]:
        return sa.bindparam("clock", callable_=time.time, type_=sa.Double, unique=True)

    def lease_clock(self) -> sa.ColumnElement[float]:
        return sa.bindparam("lease_clock", callable_=boot_clock.now, type_=sa.Double, unique=True)

    def is_over(self, owner: str, expires_at: float | None, now: float) -> bool:
        """What began before the machine was started is over. Older versions have written times of the wall clock."""
        if expires_at is None or is_of_another_boot(owner):
            return True
        return expires_at <= (now if boot_clock.is_of_boot(expires_at) else time.time())

    def holds(self, text: sa.ColumnElement[Any], part: str) -> sa.ColumnElement[bool]:
        return sa.func.instr(text, sa.literal(part, sa.Text)) > 0

    @cache  # noqa: B019 - there are two dialects
    def put_words(self, table: sa.TableClause) -> sa.Insert:
        return sa.insert(table).values(rowid=sa.bindparam("number"), words=sa.bindparam("found"))

    def has_words(self, table: sa.TableClause, words: Collection[str], *, all_of_them: bool) -> sa.ColumnElement[bool]:
        asked = (" AND " if all_of_them else " OR ").join(f'"{word}"' for word in words)
        return sa.literal_column(table.name, sa.Text).op("MATCH", is_comparison=True)(sa.literal(asked, sa.Text))


@dataclass(frozen=True)
class Postgresql:
    """The clock is the database's: those of the machines that use it differ."""

    def insert(self, table: sa.Table) -> Any:
        return postgresql.insert(table)

    def clock(self) -> sa.ColumnElement[float]:
        return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double)

    def lease_clock(self) -> sa.ColumnElement[float]:
        return self.clock()

    def is_over(self, owner: str, expires_at: float | None, now: float) -> bool:
        return expires_at is None or expires_at <= now

    def holds(self, text: sa.ColumnElement[Any], part: str) -> sa.ColumnElement[bool]:
        return sa.func.strpos(text, sa.literal(part, sa.Text)) > 0

    @cache  # noqa: B019
    def put_words(self, table: sa.TableClause) -> sa.Insert:
        as_array = sa.func.string_to_array(sa.bindparam("found", type_=sa.Text), sa.literal_column("' '"))
        return sa.insert(table).values(rowid=sa.bindparam("number"), words=sa.func.array_to_tsvector(as_array))

    def has_words(self, table: sa.TableClause, words: Collection[str], *, all_of_them: bool) -> sa.ColumnElement[bool]:
        asked = (" & " if all_of_them else " | ").join(f"'{word}'" for word in words)
        query = sa.cast(sa.literal(asked, sa.Text), postgresql.TSQUERY)
        return table.c.words.op("@@", is_comparison=True)(query)


def as_stored(words: Iterable[str]) -> str:
    """Words as they are put into a table: each once, between spaces."""
    return " ".join(dict.fromkeys(words))


def as_asked(words: Iterable[str]) -> list[str]:
    """Words as they are looked for."""
    return list(dict.fromkeys(words))[:MOST_WORDS]
