"""Sessions in a database: SQLite by a path, PostgreSQL by a URL. Needs the extra `sql`; loaded when named."""

from __future__ import annotations

from halter.errors import ConfigurationError

try:
    from halter.sessions.sql.opening import open_sql
except ImportError as error:
    if (error.name or "").partition(".")[0] != "sqlalchemy":
        raise
    raise ConfigurationError('sessions in a database need SQLAlchemy: pip install "halter[sql]"') from error

__all__ = ["open_sql"]
