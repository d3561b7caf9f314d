"""The control endpoint, `/control/…`: reads the journal, and waits on it so that no test has to poll."""

import asyncio
from urllib.parse import parse_qsl, urlsplit

import msgspec

from halter.proof.wire.http1 import Head, json_response
from halter.proof.wire.journal import Waiter
from halter.proof.wire.provider import Provider
from halter.proof.wire.records import STATES, State
from halter.proof.wire.request import Line

PREFIX = "/control/"
LONGEST_WAIT = 600.0


class ControlRequest:
    """One control request, answered exactly once unless it is dropped. Its body is ignored."""

    def __init__(self, provider: Provider, line: Line, head: Head) -> None:
        parts = urlsplit(head.target)
        self._provider = provider
        self._journal = provider.journal
        self._line = line
        self._keep_alive = head.keep_alive
        self._route = f"{head.method} {parts.path}"
        self._query = dict(parse_qsl(parts.query))
        self._waiting: tuple[Waiter, asyncio.TimerHandle] | None = None

    def __repr__(self) -> str:
        return f"<ControlRequest {self._route}>"

    def took(self, data: bytes) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...

    def complete(self) -> None:
        """Answer, now or when what is waited for has happened."""
        try:
            self._answer()
        except ValueError as error:
            self._send(400, {"error": str(error)})

    def drop(self) -> None:
        """The asker is gone: wait no longer."""
        if self._waiting is not None:
            waiter, timer = self._waiting
            self._waiting = None
            self._journal.forget(waiter)
            timer.cancel()

    @property
    def _tag(self) -> str | None:
        return self._query.get("tag") or None

    def _answer(self) -> None:
        match self._route:
            case "GET /control/requests":
                after = int(self._query.get("after") or 0)
                self._send(200, self._journal.select(self._tag, after))
            case "GET /control/wait":
                self._wait()
            case "GET /control/stats":
                self._send(200, self._provider.stats())
            case "POST /control/clear":
                self._provider.clear()
                self._send(200, {})
            case _:
                self._send(404, {"error": f"no control route {self._route}"})

    def _wait(self) -> None:
        state = _state(self._query.get("state", "started"))
        count = int(self._query.get("count", "1"))
        timeout = min(float(self._query.get("timeout", "5")), LONGEST_WAIT)
        waiter = self._journal.wait(state, self._tag, count, self._met)
        if waiter is None:
            self._send_records(200)
            return
        timer = asyncio.get_running_loop().call_later(timeout, self._timed_out)
        self._waiting = (waiter, timer)

    def _met(self) -> None:
        # Called from the middle of what happens to a request: let its record be complete first.
        self.drop()
        asyncio.get_running_loop().call_soon(self._send_records, 200)

    def _timed_out(self) -> None:
        self.drop()
        self._send_records(504)

    def _send_records(self, status: int) -> None:
        self._send(status, self._journal.select(self._tag))

    def _send(self, status: int, content: object) -> None:
        self._line.write(json_response(status, msgspec.json.encode(content), self._keep_alive))
        self._line.ended(keep_alive=self._keep_alive)


def _state(text: str) -> State:
    for state in STATES:
        if text == state:
            return state
    raise ValueError(f"state must be one of {', '.join(STATES)}, not {text!r}")
