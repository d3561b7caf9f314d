"""What the errors of databases mean: whether they pass, and whether what was asked may have happened all the same.

Sources: https://www.sqlite.org/rescode.html, https://www.postgresql.org/docs/current/errcodes-appendix.html
"""

from __future__ import annotations

import sqlite3
import ssl
from dataclasses import dataclass

from sqlalchemy import exc


@dataclass(frozen=True, slots=True)
class Failure:
    """`why`: for a reader. `passes`: the same may succeed later. `is_unsure`: the transaction may have happened.

    `is_mistake`: what was given is wrong.
    """

    why: str
    passes: bool = False
    is_unsure: bool = False
    is_mistake: bool = False


_SQLITE = {
    sqlite3.SQLITE_BUSY: Failure("the database is locked by another process", passes=True),
    sqlite3.SQLITE_LOCKED: Failure("the database is locked", passes=True),
    sqlite3.SQLITE_PROTOCOL: Failure("the database is locked by another process", passes=True),
    sqlite3.SQLITE_SCHEMA: Failure("the database's tables have changed", passes=True),
    sqlite3.SQLITE_FULL: Failure("the disk is full"),
    sqlite3.SQLITE_READONLY: Failure("the file, or its directory, is read-only"),
    sqlite3.SQLITE_CANTOPEN: Failure("the file cannot be opened: is there its directory, and may it be written to?"),
    sqlite3.SQLITE_PERM: Failure("the file may not be used"),
    sqlite3.SQLITE_AUTH: Failure("the file may not be used"),
    sqlite3.SQLITE_NOTADB: Failure("the file is no SQLite database"),
    sqlite3.SQLITE_CORRUPT: Failure("the file is damaged"),
    sqlite3.SQLITE_IOERR: Failure("the disk has failed"),
    sqlite3.SQLITE_TOOBIG: Failure("a message is larger than SQLite takes"),
}

_AWAY = Failure("the connection to the database was lost", passes=True, is_unsure=True)
_RESTARTING = Failure("the database is stopping, or starting", passes=True, is_unsure=True)
_IN_THE_WAY = Failure("another transaction was in the way", passes=True)
_NOT_ALLOWED = Failure("the database does not let us in: wrong user, password or host rule")
_BY_STATE = {
    "57P01": _RESTARTING,
    "57P02": _RESTARTING,
    "57P03": _RESTARTING,
    "57P05": _RESTARTING,
    "25P03": Failure("the transaction took too long", passes=True),
    "57014": Failure("the database has cancelled the query", passes=True),
    "53300": Failure("the database has no connection left", passes=True),
    "53100": Failure("the database's disk is full"),
    "53200": Failure("the database has no memory left", passes=True),
    "40001": _IN_THE_WAY,
    "40P01": _IN_THE_WAY,
    "55P03": _IN_THE_WAY,
    "25006": Failure("the database is read-only"),
    "3D000": Failure("there is no such database"),
    "3F000": Failure("there is no such schema"),
    "42501": Failure("the database's user may not do this"),
}
_NEEDED_BY_OTHERS = "2BP01"
_REFUSED_SETTING = ("42704", "22023")  # only settings of a connection have such names and values
_BY_CLASS = {"08": _AWAY, "28": _NOT_ALLOWED}


def failure_of(error: Exception) -> Failure | None:
    """What an error of a database means; `None` for one that is no database's."""
    for each in layers(error):
        if isinstance(each, sqlite3.Error):
            return _of_sqlite(each)
        if type(each).__name__ == "ClientConfigurationError":  # asyncpg's: of parameters that it knows, no passwords
            return Failure(f"its URL is wrong: {each}", is_mistake=True)
        if isinstance(each, ssl.SSLError) and each.library in ("X509", "PEM"):
            return Failure(f"its URL is wrong: a file of it holds no certificate or key: {each}", is_mistake=True)
        if isinstance(each, ssl.SSLCertVerificationError):
            return Failure(f"the database's certificate is not accepted: {each.verify_message}")
        state = getattr(each, "sqlstate", None)
        if isinstance(state, str) and state:
            if state in _REFUSED_SETTING or "startup parameter" in str(each):
                return Failure(f"its URL is wrong, the server refuses a parameter of it: {each}", is_mistake=True)
            if state == _NEEDED_BY_OTHERS:
                return _needed_by_others(error)
            return _BY_STATE.get(state) or _BY_CLASS.get(state[:2]) or Failure(_said(each))
    if isinstance(error, exc.TimeoutError):
        return Failure("no connection to the database was free in time", passes=True)
    if isinstance(error, TimeoutError):
        return Failure("the database did not answer in time", passes=True, is_unsure=True)
    if isinstance(error, OSError):
        return Failure(f"the database cannot be reached: {_said(error)}", passes=True, is_unsure=True)
    if isinstance(error, exc.DBAPIError):
        lost = error.connection_invalidated or isinstance(error, exc.InterfaceError)
        return _AWAY if lost else Failure(_said(error.orig or error))
    if type(error).__module__.partition(".")[0] == "asyncpg":  # while connecting: SQLAlchemy lets it through as it is
        return _AWAY
    return None


def _needed_by_others(error: Exception) -> Failure:
    """Views, and whatever else somebody has made on top of our tables and views."""
    told = (getattr(each, "detail", None) for each in layers(error))
    which = next((detail for detail in told if detail), _said(error))
    return Failure(
        "the tables cannot be brought to this version, because something that is not Halter's is made of them: "
        f"{'; '.join(str(which).splitlines())}; drop that, run `halter sessions migrate`, and make it again"
    )


def layers(error: BaseException | None) -> list[BaseException]:
    """The error, what the driver has said, and what that came of."""
    found: list[BaseException] = []
    each = error
    while each is not None and each not in found:
        found.append(each)
        each = each.orig if isinstance(each, exc.DBAPIError) else each.__cause__
    return found


def _of_sqlite(error: sqlite3.Error) -> Failure:
    code = getattr(error, "sqlite_errorcode", None)
    known = _SQLITE.get(code & 0xFF) if isinstance(code, int) else None
    return known or Failure(_said(error))


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]
