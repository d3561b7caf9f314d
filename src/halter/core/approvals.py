"""Who is asked before a call runs, and which answers are remembered.

1. A remembered yes is compared with exactly what runs, and holds for one agent, one tool and one user. 2. It never
holds for more than the question has shown: its pattern is part of the question. 3. What cannot be read or stored is not
allowed: then somebody is asked again.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from weakref import WeakValueDictionary

import msgspec

from halter import checked
from halter.core.approval_file import Allowed, ApprovalFile
from halter.core.held import held
from halter.core.ids import new_id
from halter.core.threads import call_in_thread
from halter.errors import ConfigurationError
from halter.risk import Risk
from halter.shown import shown

if TYPE_CHECKING:
    from halter.core.asking import Answer
    from halter.core.execution import Execution
    from halter.core.ports import Question

Asking: TypeAlias = Literal["never", "ask", "always"]
_STRICT: tuple[Asking, ...] = ("never", "ask", "always")
TENANT_TAG = "halter.tenant="  # by which a server marks the runs of a tenant
FILES: WeakValueDictionary[Path, ApprovalFile] = WeakValueDictionary()  # of all policies of this process
MOST_DECISIONS = 1_000  # that a process knows
_logger = logging.getLogger("halter")


class Policy:
    """Which tools of an agent ask, by the harm that they can do; immutable. A tool's own `approval` comes first.

    Args:
        reads, changes, destroys, network: For tools of this class of risk; of several classes, the strictest counts.
            `"never"`: they run unasked. `"ask"`: somebody is asked, and a yes may be remembered. `"always"`: somebody
            is asked each time.
        undeclared: For tools that declare no risk.
        remember: The file in which an *always* is stored, made if need be; `None`: nobody can answer *always*. Keep it
            where no tool can write.

    Raises:
        ConfigurationError: One of them is another word.
    """

    def __init__(
        self,
        *,
        reads: Asking = "never",
        changes: Asking = "ask",
        destroys: Asking = "ask",
        network: Asking = "never",
        undeclared: Asking = "never",
        remember: str | os.PathLike[str] | None = None,
    ) -> None:
        given: dict[str, Asking] = {"reads": reads, "changes": changes, "destroys": destroys, "network": network}
        self._by_risk: dict[str, Asking] = {risk: checked.one_of(risk, asks, _STRICT) for risk, asks in given.items()}
        self._undeclared: Asking = checked.one_of("undeclared", undeclared, _STRICT)
        file = None if remember is None else ApprovalFile(remember)
        self.file = None if file is None else FILES.setdefault(file.path, file)

    def asking(self, risks: frozenset[Risk]) -> Asking:
        """Whether a tool with these classes of risk asks."""
        found = [_STRICT.index(self._by_risk[risk]) for risk in risks]
        return _STRICT[max(found)] if found else self._undeclared

    def allowed(self) -> tuple[Allowed, ...]:
        """Every *always* that is stored, the oldest first. Blocks. Raises `ConfigurationError` for a broken file."""
        return () if self.file is None else self.file.read()

    def forget(self, id: str) -> bool:
        """Takes back a stored *always*; False if there is none of this id. Raises `ConfigurationError`, `OSError`."""
        return self.file is not None and self.file.remove(lambda each: each.id == id)


DEFAULT = Policy()


def checked_policy(given: Any) -> Policy | None:
    """Raises `ConfigurationError` for what is no policy."""
    if given is not None and not isinstance(given, Policy):
        raise ConfigurationError(f"approvals must be a Policy, as in Agent(…, approvals=Policy()), not {shown(given)}")
    return given


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one question of the kind `approval`.

    `id`: of what is remembered of it, too. `at`: seconds since the epoch. `answer`: `yes` (once), `session`, `always`,
    `no`, or `expired`. `by`: who has answered, as far as `run.answer(by=…)` says. `tenant`: of a server, whose run it
    was. `pattern`: what a remembered yes holds for.
    """

    id: str
    at: float
    run_id: str
    agent: str
    tool: str
    answer: str
    by: str | None
    reason: str | None
    user: str | None
    session: str | None
    tenant: str | None
    pattern: Mapping[str, Any] | None


DECISIONS: deque[Decision] = deque(maxlen=MOST_DECISIONS)


class Remembered(list[Allowed]):
    """Every yes that holds for a session, as long as this process has it."""

    async def close(self) -> None:
        self.clear()

    def lose(self) -> None:
        self.clear()


def policy_of(execution: Execution) -> Policy:
    """The policy of the agent that runs, else of the nearest one above it, else the default."""
    at: Execution | None = execution
    while at is not None:
        if at.policy is not None:
            return at.policy
        at = at.parent
    return DEFAULT


def options_for(execution: Execution, question: Question) -> tuple[str, ...]:
    """The answers that a question takes."""
    if question.pattern is None:
        return ("yes", "no")
    return ("yes", "session", *(("always",) if policy_of(execution).file is not None else ()), "no")


async def is_allowed(execution: Execution, tool: str, fits: Callable[[Mapping[str, Any]], bool]) -> bool:
    """True if somebody has said yes to such calls of this tool, of this agent, for this user, and it is remembered."""
    found: Sequence[Allowed] = _of_session(execution)
    file = policy_of(execution).file
    if file is not None:
        try:
            found = (*found, *await call_in_thread(file.read))
        except (ConfigurationError, OSError) as error:
            _logger.warning("stored approvals are not used: %s", error)
    whose = (execution.agent_stamp["agent"], tool, execution.user, _tenant_of(execution))
    return any((each.agent, each.tool, each.user, each.tenant) == whose and fits(each.pattern) for each in found)


async def decide(execution: Execution, tool: str, question: Question, answer: Answer | None) -> None:
    """Remembers an answer, as far as it says so; `None`: nobody gave one."""
    said = "expired" if answer is None else str(answer.value)
    by, reason = (None, None) if answer is None else (answer.by, answer.reason)
    agent, user, session = execution.agent_stamp["agent"], execution.user, execution.session_id
    decision = Decision(
        id=new_id(),
        at=time.time(),
        run_id=execution.id,
        agent=agent,
        tool=tool,
        answer=said,
        by=by,
        reason=reason,
        user=user,
        session=session,
        tenant=_tenant_of(execution),
        pattern=question.pattern,
    )
    DECISIONS.append(decision)
    if question.pattern is None or said not in ("session", "always"):
        return
    allowed = Allowed(
        id=decision.id,
        at=decision.at,
        agent=agent,
        tool=tool,
        pattern=question.pattern,
        user=user,
        tenant=decision.tenant,
        by=by,
        run=execution.id,
    )
    file = policy_of(execution).file
    try:
        if said == "always" and file is not None:
            await call_in_thread(file.add, allowed)
        else:
            _of_session(execution).append(allowed)
    except (ConfigurationError, OSError) as error:
        _logger.warning("an approval could not be stored, and holds for this session: %s", error)
        _of_session(execution).append(allowed)


def allowed_in(execution: Execution) -> tuple[Allowed, ...]:
    """Every yes that holds for the session of this run, or, without one, for its tree."""
    return tuple(_of_session(execution))


def _tenant_of(execution: Execution) -> str | None:
    """On a server, whose user it is: also where nobody has named a user."""
    tags = execution.root.options.tags
    return next((tag.removeprefix(TENANT_TAG) for tag in tags if tag.startswith(TENANT_TAG)), None)


def _of_session(execution: Execution) -> list[Allowed]:
    key = execution.session_key
    return execution.root.allowed if key is None else held(key, Remembered)
