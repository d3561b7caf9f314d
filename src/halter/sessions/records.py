"""What is stored: sessions, run records, and what stands for a part of a conversation. Frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from halter.core.options import Keep
from halter.events import Failure, LateOutcome
from halter.messages import Message, Usage
from halter.outcome import Cancellation, CancelReceipt, RunStatus


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation, without its messages.

    `user`: whose it is; facts are shared by the sessions of one user. `title`, `tags`, `metadata`: yours. `state`: what
    the last run of a team, a crew or a flow has left to go on from, as JSON. `messages`: how many there are in all.
    `holder`: the run that has its turn. `created_at`, `updated_at`: seconds since the epoch.
    """

    id: str
    user: str | None = None
    title: str = ""
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = {}
    state: Any = None
    messages: int = 0
    holder: str | None = None
    created_at: float = 0.0
    updated_at: float = 0.0


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction: for a model, `messages` stand for the first `upto` messages of the conversation.

    `run_id`: of the run that has made it. The messages themselves are all still there.
    """

    upto: int
    messages: tuple[Message, ...]
    run_id: str


class LateResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool call that had been given up came to, after the end of its run. `elapsed`: seconds."""

    call_id: str
    name: str
    outcome: LateOutcome
    result: str
    elapsed: float


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One run, from its start to how it ended.

    `user`: who talked: the session's user when the run began. `owner`: the process and the event loop that carry it.
    `keep`: what becomes of its turn if it is stopped. `base`: messages of the session before it. `input`: what was
    asked, as text. `cost`: US dollars, `None` if a price is not known. `late`: what came of its tool calls after its
    end. `started_at`, `ended_at`: seconds since the epoch.
    Without content (`store_content=False`), `input`, `text`, and what errors and stops say are empty.
    """

    run_id: str
    session_id: str | None = None
    user: str | None = None
    name: str = ""
    kind: str = ""
    model: str | None = None
    tags: tuple[str, ...] = ()
    owner: str = ""
    status: RunStatus = RunStatus.RUNNING
    keep: Keep = "partial"
    base: int = 0
    input: str = ""
    text: str = ""
    usage: Usage = Usage()
    cost: float | None = None
    error: Failure | None = None
    cancellation: Cancellation | None = None
    receipt: CancelReceipt | None = None
    late: tuple[LateResult, ...] = ()
    started_at: float = 0.0
    ended_at: float | None = None


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A message in which something was found. `position`: its place in the conversation, from 0."""

    session_id: str
    position: int
    role: str
    text: str


ScopeKind: TypeAlias = Literal["user", "session", "custom"]


class FactScope(msgspec.Struct, frozen=True):
    """The owner of facts. Equal names of different kinds have nothing in common.

    `kind`: `"user"`, the user of sessions; `"session"`, one session that has no user; `"custom"`, a name that an
    agent's own `scope` function gave. `name`: the user's name, the session's id, or that name; names are compared
    character by character.
    """

    kind: ScopeKind
    name: str


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is known of somebody, or of one conversation.

    `scope`: whom it is known of. `session_id`: in which conversation it was learned. `recalled_at`: when it was last
    put into a prompt. Times are seconds since the epoch.
    """

    id: str
    scope: FactScope
    text: str
    session_id: str | None = None
    created_at: float = 0.0
    updated_at: float = 0.0
    recalled_at: float = 0.0
    embedding: tuple[float, ...] | None = None


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """A stored row that cannot be read. `kind`: `session`, `message`, `compaction`, `run`, `stop`, `mail` or `fact`.

    `id`: the row's; of a message the session's id, a slash, and its position. `session_id`: the session that it belongs
    to, if that is known. `why`: what is wrong with it. `remedy`: what a repair does. `is_repaired`: that was done.
    """

    kind: str
    id: str
    session_id: str | None
    why: str
    remedy: str
    is_repaired: bool = False
