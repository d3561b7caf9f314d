"""A real PostgreSQL for tests: Debian's package, in a temporary directory, on a socket of its own."""

from __future__ import annotations

import asyncio
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import asyncpg

START = 30.0  # seconds
LOCKED = "locked"  # the one user who would need a password
PORT = 5432  # a part of the socket's name; nobody listens on the network
_MEMORY = "/dev/shm"
_ROOM = 1 << 30  # bytes
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "autovacuum": "off",
}
# Ended also where the tests are killed: then their end of the shell's input is closed.
_WITH_US = 'exec 3<&0; "$@" 3<&- </dev/null & child=$!; { read _ <&3; kill -QUIT $child; } 2>/dev/null & wait $child'


def find_programs() -> Path | None:
    """The directory of PostgreSQL's programs; the newest, if there are several."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


class Postgres:
    """A server. `settings`: by default those with which tests are fast, and which nobody would keep data under."""

    def __init__(self, programs: Path, settings: Mapping[str, str] = _SETTINGS) -> None:
        self._programs = programs
        self._settings = settings
        self._directory = Path(tempfile.mkdtemp(prefix="halter-pg-", dir=_place()))
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count()
        self._account = pwd.getpwnam("postgres") if os.geteuid() == 0 else None  # it refuses to run as root
        if self._account is not None:
            os.chown(self._directory, self._account.pw_uid, self._account.pw_gid)
        self._run("initdb", "--no-sync", "--auth=trust", "--username=halter", "--encoding=UTF8", "--locale=C", "-D")
        (self._data / "pg_hba.conf").write_text(f"local all {LOCKED} scram-sha-256\nlocal all all trust\n")

    @property
    def pid(self) -> int:
        """Of the server itself."""
        return int((self._data / "postmaster.pid").read_text().partition("\n")[0])

    @property
    def socket(self) -> Path:
        return self._directory / f".s.PGSQL.{PORT}"

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://halter@/{database}?host={self._directory}"

    def start(self) -> None:
        """Until it answers."""
        settings = {**self._settings, "unix_socket_directories": str(self._directory)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", _WITH_US, "sh", self._programs / "postgres", "-D", self._data, *options],
                **self._as_account(),
                cwd=self._directory,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        until = time.monotonic() + START
        while not asyncio.run(self._answers()):
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < until, self._log.read_text()
            time.sleep(0.02)

    def stop(self) -> None:
        """At once, and in order: what was committed is there at the next start (its "fast" shutdown)."""
        self._end(signal.SIGINT)

    def crash(self) -> None:
        """As by its own fault: no transaction ends, nobody is told."""
        self._end(signal.SIGQUIT)

    def close(self) -> None:
        """For good: nothing of it is needed any more."""
        self._end(signal.SIGQUIT)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            os.kill(self.pid, how)
            self._process.wait(START)
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process = None

    def new_place(self) -> str:
        """A URL under which nothing is there yet: a schema of its own, since a database takes far longer."""
        name = f"test_{next(self._numbers)}"
        asyncio.run(self.execute(f"CREATE SCHEMA {name}"))
        return f"{self.url()}&search_path={name}"

    async def execute(self, statement: str, url: str | None = None) -> None:
        connection = await asyncpg.connect(url or self.url())
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    async def _answers(self) -> bool:
        try:
            await self.execute("SELECT 1")
        except (OSError, asyncpg.CannotConnectNowError):
            return False
        return True

    @property
    def _log(self) -> Path:
        return self._directory / "log"

    @property
    def _data(self) -> Path:
        return self._directory / "data"

    def _run(self, program: str, *options: str) -> None:
        command = [self._programs / program, *options, self._data]
        done = subprocess.run(command, **self._as_account(), cwd=self._directory, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()

    def _as_account(self) -> dict[str, object]:
        if self._account is None:
            return {}
        return {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}


def _place() -> str:
    """In memory where there is room: each test makes sixty small files there, with its tables."""
    try:
        has_room = shutil.disk_usage(_MEMORY).free >= _ROOM and os.access(_MEMORY, os.W_OK)
    except OSError:
        has_room = False
    return _MEMORY if has_room else "/tmp"


def started(require: Callable[[str, bool], None]) -> Postgres:
    """A server that answers. `require`: what a missing one means."""
    programs = find_programs()
    require("PostgreSQL", programs is not None)
    assert programs is not None
    server = Postgres(programs)
    server.start()
    return server
