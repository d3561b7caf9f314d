"""A real PgBouncer for tests, in transaction mode, in front of a PostgreSQL, on a socket of its own."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg

from .postgres import Postgres

PORT = 6432  # a part of the socket's name
_SETTINGS = """[databases]
* = host={server} user=halter
[pgbouncer]
listen_addr =
listen_port = {port}
unix_socket_dir = {directory}
auth_type = any
pool_mode = transaction
default_pool_size = 2
max_client_conn = 100
server_reset_query_always = 0
"""


def find_program() -> str | None:
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


class PgBouncer:
    """In front of one server; it has two connections to each database there, so that its clients share them."""

    def __init__(self, program: str, server: Postgres) -> None:
        self._server = server
        self._directory = Path(tempfile.mkdtemp(prefix="halter-pgb-", dir="/tmp"))
        settings = self._directory / "settings.ini"
        settings.write_text(_SETTINGS.format(server=server.socket.parent, port=PORT, directory=self._directory))
        account: dict[str, Any] = {}
        if os.geteuid() == 0:  # it refuses to run as root
            found = pwd.getpwnam("postgres")
            os.chown(self._directory, found.pw_uid, found.pw_gid)
            account = {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
        with (self._directory / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [program, "-q", str(settings)], stdin=subprocess.DEVNULL, stderr=log, **account
            )  # pyright: ignore[reportCallIssue, reportArgumentType]

    def url(self, database: str) -> str:
        return f"postgresql://halter@/{database}?host={self._directory}&port={PORT}"

    def new_place(self) -> str:
        """A URL of a database in which nothing is there yet: a schema would need a setting of the session."""
        name = f"bouncer_{time.monotonic_ns()}"
        asyncio.run(self._server.execute(f"CREATE DATABASE {name} TEMPLATE template0"))
        asyncio.run(self._until_it_answers(self.url(name)))
        return self.url(name)

    async def _until_it_answers(self, url: str) -> None:
        until = time.monotonic() + 30.0
        while True:
            try:
                connection = await asyncpg.connect(url, statement_cache_size=0)
            except OSError:
                assert self._process.poll() is None, (self._directory / "log").read_text()
                assert time.monotonic() < until
                await asyncio.sleep(0.02)
            else:
                return await connection.close()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


def started(require: Callable[[str, bool], None], server: Postgres) -> PgBouncer:
    """`require`: what a missing program means."""
    program = find_program()
    require("PgBouncer", program is not None)
    assert program is not None
    return PgBouncer(program, server)
