"""What the provider knows about one request. Written by the server, read by the handle: the same structs."""

from itertools import repeat
from typing import Final, Literal

import msgspec

State = Literal["started", "token", "finished", "closed"]
STATES: Final = ("started", "token", "finished", "closed")
ClosedHow = Literal["eof", "reset", "server"]

TOKEN_TIMES_KEPT = 10_000
BODY_KEPT = 1_000_000


class Record(msgspec.Struct, kw_only=True):
    """One request. All instants are `time.monotonic()` seconds; `None`: it has not happened.

    `started` is the first byte of the head. `closed_at` is when the *connection* that carried the request
    ended, also when that was after the answer; `closed_how` says by whom: the client's FIN (`eof`), the
    client's RST or a broken connection (`reset`), or this provider (`server`).
    """

    id: int
    tag: str
    mode: str
    connection: int
    path: str
    headers: dict[str, str]
    started: float
    body: str = ""
    body_bytes: int = 0
    first_token_at: float | None = None
    last_token_at: float | None = None
    tokens_sent: int = 0
    bytes_sent: int = 0
    token_times: list[float] = []
    finished_at: float | None = None
    closed_at: float | None = None
    closed_how: ClosedHow | None = None
    open: bool = True

    def closed(self, now: float, how: ClosedHow) -> None:
        self.closed_at = now
        self.closed_how = how
        self.open = False

    def sent(self, now: float, size: int, tokens: int) -> bool:
        """Note `size` bytes with `tokens` tokens as handed over; True if they hold the first token."""
        self.bytes_sent += size
        if not tokens:
            return False
        first = self.first_token_at is None
        if first:
            self.first_token_at = now
        self.last_token_at = now
        self.tokens_sent += tokens
        room = TOKEN_TIMES_KEPT - len(self.token_times)
        if room > 0:
            self.token_times.extend(repeat(now, min(tokens, room)))
        return first

    def has_reached(self, state: State) -> bool:
        """Whether this request has been in `state`; a state once reached stays reached."""
        match state:
            case "started":
                return True
            case "token":
                return self.tokens_sent > 0
            case "finished":
                return self.finished_at is not None
            case "closed":
                return self.closed_at is not None


class Stats(msgspec.Struct, kw_only=True, frozen=True):
    """The provider process now. Control connections are not counted."""

    open_connections: int
    total_requests: int
    cpu_seconds: float
    rss_bytes: int


class Hello(msgspec.Struct, kw_only=True, frozen=True):
    """The line that the process prints when it listens."""

    port: int
    tls_port: int | None = None
    no_accept_port: int | None = None
    ca_file: str | None = None
