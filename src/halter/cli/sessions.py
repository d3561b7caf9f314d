"""`halter sessions …`: commands about a place where sessions are kept."""

from __future__ import annotations

import argparse
import asyncio
import os
from typing import TYPE_CHECKING

from halter.errors import ConfigurationError

if TYPE_CHECKING:
    from halter.sessions.records import Damage
    from halter.sessions.sql.store import SqlStore

VARIABLE = "HALTER_SESSIONS"


def add_sessions(group: argparse.ArgumentParser) -> None:
    """Adds the commands of the group."""
    group.description = "Looks after a database in which sessions are kept."
    commands = group.add_subparsers(title="commands", metavar="COMMAND", required=True)
    migrate = commands.add_parser("migrate", help="bring a database's tables to this version")
    migrate.description = (
        "Makes the tables of Halter in a database, or brings them to this version. Give a user of the database that "
        "may create and change tables; programs that open it with migrate=False need no such right."
    )
    add_place(migrate)
    migrate.set_defaults(command=_migrate)
    check = commands.add_parser("check", help="list stored rows that cannot be read, and repair them")
    check.description = (
        "Lists each stored row that cannot be read, with what a repair does. Exit code 0: there is none, or all were "
        "repaired; 1: there are some. Make a copy of the database before a repair: it overwrites the damaged bytes."
    )
    add_place(check)
    check.add_argument("--repair", action="store_true", help="replace or delete each of them")
    check.set_defaults(command=_check)


def add_place(command: argparse.ArgumentParser) -> None:
    """The argument that says where sessions are kept."""
    command.add_argument(
        "where",
        nargs="?",
        default=os.environ.get(VARIABLE),
        help=f"the path of a SQLite file, or a postgresql:// URL; {VARIABLE} if it is left out",
    )


def store_at(where: str | None) -> SqlStore:
    """The store in the database that a command was given; nothing is opened. Raises `ConfigurationError`."""
    if not where:
        raise ConfigurationError(f"say where the sessions are kept, or set {VARIABLE}")
    if where == "memory":
        raise ConfigurationError('sessions in "memory" end with their process: name a file or a database')
    from halter.sessions.sql import open_sql  # loads SQLAlchemy, which is an extra

    return open_sql(where)


def _migrate(options: argparse.Namespace) -> int:
    from halter.sessions.sql.migrations import NEWEST

    store = store_at(options.where)

    async def work() -> int:
        try:
            return await store.migrate()
        finally:
            await store.aclose()

    before = asyncio.run(work())
    done = "nothing to do" if before == NEWEST else f"brought from version {before}" if before else "tables made"
    print(f"{store.where}: version {NEWEST}, {done}")
    return 0


def _check(options: argparse.Namespace) -> int:
    store = store_at(options.where)

    async def work() -> list[Damage]:
        try:
            return await store.check(repair=options.repair)
        finally:
            await store.aclose()

    found = asyncio.run(work())
    for each in found:
        of = f" of session {each.session_id}" if each.session_id and each.kind not in ("session", "message") else ""
        done = "repaired" if each.is_repaired else "a repair would do this"
        print(f"{each.kind} {each.id}{of}: {each.why}\n    {done}: {each.remedy}")
    left = sum(not each.is_repaired for each in found)
    print(f"{store.where}: {len(found)} rows cannot be read" if left else f"{store.where}: every row can be read")
    return 1 if left else 0
