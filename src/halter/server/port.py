"""`RunStore`: the runs that a server knows, wherever they are carried. Its contract is one suite of tests.

1. A key is a tenant and an id; no call ever answers about another tenant's run. 2. `begin` decides atomically whether
a start is new. 3. A cancel that was answered takes effect, or finds the run over. 4. Events of a tree have dense
numbers; a feed gives each one once, merged where its reader is slow, and announces what is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from halter.children.work import Program
from halter.core.run import Run
from halter.events import Event, Failure
from halter.messages import Message, Usage
from halter.outcome import Cancellation, CancelReceipt, RunStatus
from halter.server.presence import OnDisconnect, Presence
from halter.snapshot import InputState, RunState, Snapshot


class RunKey(NamedTuple):
    """A run, as a client names it."""

    tenant: str
    id: str


class Position(NamedTuple):
    """The place of a run in the list of its tenant's runs. Later ones are greater.

    `created_at`: seconds since the epoch, the start for a run of which only the record is left.
    """

    created_at: float
    id: str


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was asked for.

    `fingerprint`: of the request's body; the same id with another one is a conflict. `session`: as the client named
    it. `actor`: who asked. `created_at`: seconds since the epoch. `linger`: seconds. `size`: of the request, in bytes.
    """

    key: RunKey
    agent: str
    kind: str
    actor: str
    fingerprint: str
    created_at: float
    session: str | None = None
    user: str | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = {}
    on_disconnect: OnDisconnect = "detach"
    linger: float = 0.0
    size: int = 0

    @property
    def position(self) -> Position:
        """Its place in the list."""
        return Position(self.created_at, self.key.id)


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it is now. Times are seconds since the epoch; `cost` is US dollars, `None` if a price is unknown.

    `seq`: of its newest event. `is_live`: this or another process carries it. `has_log`: its events can still be read.
    `is_cut`: its text is only a beginning.
    """

    plan: RunPlan
    epoch: int
    status: RunStatus
    seq: int = 0
    usage: Usage = Usage()
    cost: float | None = 0.0
    text: str = ""
    output: Any = None
    error: Failure | None = None
    cancelling: Cancellation | None = None
    cancellation: Cancellation | None = None
    receipt: CancelReceipt | None = None
    started_at: float | None = None
    ended_at: float | None = None
    runs: tuple[RunState, ...] = ()
    inputs: tuple[InputState, ...] = ()
    is_live: bool = False
    has_log: bool = True
    is_cut: bool = False


BeginResult: TypeAlias = Literal["new", "same", "conflict", "stopped"]


class Begun(NamedTuple):
    """What came of a start: `new`; `same`, it was started before; `conflict`, with another body; `stopped`, before
    it came, by a tombstone."""

    result: BeginResult
    info: RunInfo


class CancelAnswer(NamedTuple):
    """What came of a stop. `in_force`: the run is being stopped, or was. `wrong_epoch`: nothing was done."""

    info: RunInfo
    in_force: bool
    wrong_epoch: bool = False


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs of a tenant; what is `None` does not matter.

    `before`: those behind this place in the list. `is_live_only`: those that are not over.
    """

    tenant: str
    session: str | None = None
    user: str | None = None
    tag: str | None = None
    agent: str | None = None
    status: RunStatus | None = None
    before: Position | None = None
    is_live_only: bool = False
    limit: int = 50


class Opening(NamedTuple):
    """How a feed begins: the state at its cursor, and which events before it are lost (`gap`: the
    first and the last; the last may be unknown). `at_end`: nothing follows."""

    snapshot: Snapshot
    gap: tuple[int, int | None] | None
    at_end: bool


class EventFeed(Protocol):
    """One reader's way through the events of a run."""

    @property
    def epoch(self) -> int:
        """The epoch of the log; part of each cursor."""
        ...

    async def open(self, after: int | None) -> Opening:
        """Places it behind the event `after`; `None`: at the newest one. Once, before `next_batch`."""
        ...

    async def next_batch(self) -> Sequence[Event]:
        """Waits for events; empty after the terminal one. Cancellation-safe."""
        ...

    def close(self) -> None:
        """Reads no more; stops nothing."""
        ...


class RunStore(Protocol):
    """The runs of a server. Any method may be called for a key of any tenant; unknown keys give `None`."""

    @property
    def epoch(self) -> int:
        """The epoch of the runs that this process carries."""
        ...

    on_ended: Callable[[RunInfo], None]  # told of each run of this process that is over

    @property
    def live(self) -> int:
        """How many runs this process carries now."""
        ...

    @property
    def queued(self) -> int:
        """How many of them wait for their session's turn."""
        ...

    async def begin(self, plan: RunPlan, make: Callable[[], Run[Any]]) -> Begun:
        """Starts the run that `make()` gives, unless its key is known. What `make` raises goes on; nothing is kept."""
        ...

    async def get(self, key: RunKey) -> RunInfo | None:
        """The run as it is now."""
        ...

    async def list(self, which: RunFilter) -> Sequence[RunInfo]:
        """The runs that fit, the newest first."""
        ...

    async def cancel(
        self, key: RunKey, cancellation: Cancellation, *, if_epoch: int | None = None, tombstone: bool = False
    ) -> CancelAnswer | None:
        """Stops a run; also one under it, by its own id. `tombstone`: an unknown key is stopped before it begins."""
        ...

    async def cancel_all(self, cancellation: Cancellation) -> None:
        """Stops all runs that this process carries."""
        ...

    async def until_quiet(self, seconds: float | None) -> None:
        """Waits until this process carries no run, or for this time."""
        ...

    async def forget(self, key: RunKey) -> None:
        """Drops a run that is over, as if it had never been asked for."""
        ...

    async def wait(self, key: RunKey, seconds: float) -> RunInfo | None:
        """The run when it is over, or after this time."""
        ...

    async def answer(
        self, key: RunKey, request_id: str, value: Any, *, reason: str | None = None, by: str | None = None
    ) -> bool:
        """Answers a question of the run. False if it has none of this id. Raises `UsageError` for a wrong answer."""
        ...

    async def send(self, key: RunKey, message: Message) -> bool:
        """Steers the run. False if it is over or being stopped."""
        ...

    async def programs(self, key: RunKey) -> Sequence[Program] | None:
        """What the tools of the run, and of those under it, are running now."""
        ...

    async def feed(self, key: RunKey) -> EventFeed | None:
        """A new reader of the run's events."""
        ...

    def presence(self, key: RunKey) -> Presence | None:
        """Who is connected to a live run through this process."""
        ...

    async def aclose(self) -> None:
        """Lets go of everything; stops no run."""
        ...
