"""What the caller of `run()` asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from halter.messages import Message

if TYPE_CHECKING:
    from halter.core.budget import Budget
    from halter.core.cancellation import CancellationToken
    from halter.core.ports import SessionRef

Keep: TypeAlias = Literal["partial", "rollback"]
OnBusy: TypeAlias = Literal["reject", "enqueue", "interrupt", "steer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What the caller of `run()` asked for. `user`: who talks. `timeout`, `grace`: seconds."""

    input: Any = None
    session: SessionRef | None = None
    user: str | None = None
    keep: Keep = "partial"
    on_busy: OnBusy = "reject"
    history: tuple[Message, ...] = ()
    context: Any = None
    id: str | None = None
    cancellation: CancellationToken | None = None
    timeout: float | None = None
    budgets: tuple[Budget, ...] = ()
    grace: float = 5.0
    tags: tuple[str, ...] = ()
    state: Any = None
    task: str | None = None  # how the events of the run, and of those under it, are marked
