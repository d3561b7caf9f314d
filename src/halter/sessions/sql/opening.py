"""Where a database is, as a path or a URL."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from halter.errors import ConfigurationError
from halter.sessions.sql.postgresql import PostgresqlDatabase
from halter.sessions.sql.sqlite import SqliteFile
from halter.sessions.sql.store import SqlStore

_POSTGRESQL = ("postgresql", "postgres", "postgresql+asyncpg")
_IS_FOR_A_SERVER = re.compile(r"\s*(postgres(ql)?(\+\w+)?:|(host|port|dbname|user|password)\s*=)", re.I)
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
_NOT_ASYNCPGS = {"channel_binding"}  # parameters of libpq that hosters put into URLs, and that servers would refuse


def open_sql(where: str | Path, *, patience: float = 15.0, migrate: bool = True) -> SqlStore:
    """The store in a database; nothing is opened before its first use.

    `where`: a path, `sqlite:///path`, or `postgresql://user:password@host/database`. `patience`: seconds in which a
    database that is away may come back. `migrate`: whether its tables are made and brought to this version when it is
    opened; else a database of another version is refused. Raises `ConfigurationError`, which shows no password.
    """
    scheme, separator, rest = str(where).partition("://")
    if isinstance(where, Path) or not separator:
        return SqlStore(SqliteFile(_path(str(where)), may_migrate=migrate), patience=patience)
    if scheme == "sqlite":
        return SqlStore(SqliteFile(_path(rest.removeprefix("/")), may_migrate=migrate), patience=patience)
    if scheme not in _POSTGRESQL:
        raise ConfigurationError(f"sessions are kept in a path, sqlite:///… or postgresql://…, not in {scheme}://…")
    if find_spec("asyncpg") is None:
        raise ConfigurationError('sessions in PostgreSQL need asyncpg: pip install "halter[sql]"')
    url = _url(rest)
    shown = f"PostgreSQL at {_shown(rest)}"
    return SqlStore(PostgresqlDatabase(url, shown, patience=patience, may_migrate=migrate), patience=patience)


def _path(text: str) -> Path:
    if _IS_FOR_A_SERVER.match(text):  # it may hold a password, which no file's name should show
        raise ConfigurationError("a PostgreSQL database is given as postgresql://user:password@host/name")
    if not text or text.startswith(":memory:") or "\0" in text:
        raise ConfigurationError(f'{text!r} is no path of a file; "memory" keeps sessions in this process')
    try:
        path = Path(text).expanduser().absolute()
        os.fsencode(path)
    except (RuntimeError, UnicodeEncodeError) as error:  # ~somebody who is not there; half of a surrogate pair
        raise ConfigurationError(f"{text!r} is no path of a file: {error}") from None
    return path


def _url(rest: str) -> str:
    try:
        parts = urlsplit(f"postgresql://{rest}")
        if "," not in parts.netloc:
            _ = parts.port
    except ValueError:
        raise ConfigurationError(
            "the PostgreSQL URL cannot be read: signs of a password such as / ? # @ are written as %2F %3F %23 %40"
        ) from None
    query = [(name, value) for name, value in parse_qsl(parts.query) if name not in _NOT_ASYNCPGS]
    for name, value in query:
        _check(name, value)
    return parts._replace(query=urlencode(query)).geturl()


def _check(name: str, value: str) -> None:
    """The driver would take a file that is not there for a server that is not."""
    if name in _FILES and not os.access(os.path.expanduser(value), os.R_OK):
        raise ConfigurationError(f"the PostgreSQL URL has {name}={value}, and there is no such file that can be read")
    if name == "port" and not all(port.isdecimal() for port in value.split(",")):
        raise ConfigurationError(f"the PostgreSQL URL has port={value}, which is no number")


def _shown(rest: str) -> str:
    """Host and database. What stands before the last @ may be a password, and so may what is in the query."""
    place, _, query = rest.partition("?")
    return place.rpartition("@")[2] if "@" not in query else "the given URL"
