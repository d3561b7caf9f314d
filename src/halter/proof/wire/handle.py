"""The client's side: start the provider, make its URLs, read its records. Blocking, and simple."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from halter.proof.wire.modes import ModeError, parse_mode, split_target
from halter.proof.wire.records import Hello, Record, State, Stats

HOST = "127.0.0.1"
END_TIMEOUT = 5.0
CONTROL_TIMEOUT = 10.0
_Value = TypeVar("_Value")
_SOURCES = Path(__file__).parents[3]


class WireError(Exception):
    """The provider could not be started, or did not answer as it should."""


class WireTimeout(AssertionError):
    """What was waited for has not happened in time. `records` is what was seen instead."""

    def __init__(self, message: str, records: list[Record]) -> None:
        super().__init__(message)
        self.records = records


class Wire:
    """A running recording provider. All methods are safe in any thread; they block for about a millisecond.

    On an event loop use `awaited()` for waiting: a blocked loop would freeze the very client that is tested.
    """

    def __init__(self, process: "subprocess.Popen[str]", hello: Hello) -> None:
        self._process = process
        self._hello = hello

    def __repr__(self) -> str:
        code = self._process.poll()
        state = f"pid {self._process.pid}" if code is None else f"ended with {code}"
        return f"<Wire on port {self.port}, {state}>"

    @classmethod
    def start(cls, *, tls: bool = False, recordings: str | os.PathLike[str] | None = None) -> Self:
        """Start the process; it ends with this one. Raises `WireError`."""
        command = [sys.executable, "-m", "halter.proof.wire", "--port", "0", "--parent-stdin"]
        command += ["--tls"] if tls else []
        command += ["--recordings", os.fspath(recordings)] if recordings is not None else []
        # A session of its own, so that a Ctrl-C for the tests is not one for the provider they still look at.
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_environment(),
            start_new_session=True,
        )
        return cls(process, _read_hello(process))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process and wait for it. Doing it again does nothing."""
        _end(self._process)

    @property
    def port(self) -> int:
        return self._hello.port

    @property
    def tls_port(self) -> int:
        """Raises `WireError` unless started with `tls=True`."""
        return _present(self._hello.tls_port, "start it with tls=True")

    @property
    def ca_file(self) -> str:
        """The certificate of the authority to trust; raises `WireError` unless started with `tls=True`."""
        return _present(self._hello.ca_file, "start it with tls=True")

    @property
    def pid(self) -> int:
        return self._process.pid

    def url(self, mode: str = "steady(20,5)", tag: str = "-") -> str:
        """A base URL, ending in `/v1`. Raises `ModeError` for what is no mode or no tag."""
        return f"http://{HOST}:{self.port}{_path(mode, tag)}"

    def tls_url(self, mode: str = "steady(20,5)", tag: str = "-") -> str:
        """The same over TLS; trust `ca_file`."""
        return f"https://{HOST}:{self.tls_port}{_path(mode, tag)}"

    def no_accept_url(self) -> str:
        """A base URL where connect() hangs: the listener's queue is full. Nothing is recorded there."""
        port = _present(self._hello.no_accept_port, "this platform cannot fill a listener's queue")
        return f"http://{HOST}:{port}{_path('steady', '-')}"

    def requests(self, tag: str | None = None, *, after: int = 0) -> list[Record]:
        """The requests so far, in the order of their arrival, with an id above `after`."""
        answer = self._call("GET", "requests", tag=tag or "", after=after)
        return msgspec.json.decode(_checked(*answer), type=list[Record])

    def wait(self, state: State, *, tag: str | None = None, count: int = 1, timeout: float = 5.0) -> list[Record]:
        """Wait until `count` requests with `tag` have reached `state`; returns all requests with that tag.

        Counts from the start or the last `clear()`. Raises `WireTimeout` after `timeout` seconds.
        """
        status, body = self._call(
            "GET", "wait", timeout + CONTROL_TIMEOUT, state=state, tag=tag or "", count=count, timeout=timeout
        )
        records = msgspec.json.decode(_checked(status, body, 504), type=list[Record])
        if status == 504:
            reached = sum(record.has_reached(state) for record in records)
            wanted = f"{count} requests{f' tagged {tag}' if tag else ''} {state}"
            raise WireTimeout(f"waited {timeout:g} s for {wanted}: {reached} were; seen: {records}", records)
        return records

    async def awaited(
        self, state: State, *, tag: str | None = None, count: int = 1, timeout: float = 5.0
    ) -> list[Record]:
        """`wait()` in a thread. Cancelled, it returns at once; the thread stays until its own time-out."""
        return await asyncio.to_thread(self.wait, state, tag=tag, count=count, timeout=timeout)

    def clear(self) -> None:
        """Forget all records, and that `rate-limit` and `status` have refused before."""
        _checked(*self._call("POST", "clear"))

    def stats(self) -> Stats:
        return msgspec.json.decode(_checked(*self._call("GET", "stats")), type=Stats)

    def _call(
        self, method: str, what: str, socket_timeout: float = CONTROL_TIMEOUT, **query: str | float
    ) -> tuple[int, bytes]:
        # A connection per call: it may be made from any thread, and loopback costs little.
        connection = HTTPConnection(HOST, self.port, timeout=socket_timeout)
        try:
            connection.request(method, f"/control/{what}?{urlencode(query)}", headers={"connection": "close"})
            response = connection.getresponse()
            return response.status, response.read()
        except OSError as error:
            raise WireError(f"{self!r} does not answer: {error}") from error
        finally:
            connection.close()


def _path(mode: str, tag: str) -> str:
    path = f"/{quote(mode, safe='')}/{tag}/v1"
    understood = split_target(path)
    if understood.tag != tag:
        raise ModeError(f"a tag is one word of A-Z a-z 0-9 _ . -, not {tag!r}")
    parse_mode(understood.mode)
    return path


def _present(value: _Value | None, hint: str) -> _Value:
    if value is None:
        raise WireError(f"this provider has none; {hint}")
    return value


def _checked(status: int, body: bytes, *also: int) -> bytes:
    if status not in (200, *also):
        raise WireError(f"the provider answered {status}: {body.decode(errors='replace')}")
    return body


def _environment() -> Mapping[str, str]:
    # The package may have been found by sys.path alone, which a child does not inherit.
    paths = [str(_SOURCES), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _read_hello(process: "subprocess.Popen[str]") -> Hello:
    assert process.stdout is not None
    line = process.stdout.readline()
    try:
        return msgspec.json.decode(line, type=Hello)
    except msgspec.MsgspecError as error:
        _end(process)
        raise WireError(f"the provider did not start (exit code {process.returncode}); see its stderr") from error


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(END_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
