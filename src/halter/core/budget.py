"""`Budget`: a live account of tokens, dollars and calls, over any number of runs at once, on any loops and threads.

1. Each thread writes to a ledger of its own, and whoever looks adds them up: no lock, so a look is safe anywhere, also
in a signal handler. 2. A call is taken by the next number of one counter: limits on calls are exact. 3. A
budget stops the run that it was given to, and so all runs under it; `metering.py` says when.
"""

from __future__ import annotations

import math
from _thread import get_ident
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec

from halter.core.lockfree import snapshot
from halter.errors import ConfigurationError
from halter.outcome import Cancellation, CancelReason

if TYPE_CHECKING:
    from halter.core.execution import Execution


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much of each; `None`: no limit. `cost_usd`: US dollars."""

    tokens: int | None = None
    cost_usd: float | None = None
    model_calls: int | None = None
    tool_calls: int | None = None


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """How much of each. `cost_usd`: US dollars, of the models whose price is known."""

    tokens: int = 0
    cost_usd: float = 0.0
    model_calls: int = 0
    tool_calls: int = 0


class Budget:
    """How much a run, and all runs under it, may spend: `run(budget=Budget(tokens=50_000))`. Any thread may look.

    `tokens`: input and output together. `cost_usd`: US dollars; each model needs a known price. `model_calls`:
    requests to providers, repeated ones too. `tool_calls`: tools that were called. What is `None` is counted and has
    no limit. One object given to several runs is one account for all of them; it is never filled up again.

    A run that reaches its limit is stopped, with reason `budget_tokens`, `budget_cost` or `budget_calls`. Raises
    `ConfigurationError` for a limit that is no number, or less than 0.
    """

    __slots__ = ("_cost_usd", "_ledgers", "_model_calls", "_tokens", "_tool_calls", "limits")

    def __init__(
        self,
        *,
        tokens: int | None = None,
        cost_usd: float | None = None,
        model_calls: int | None = None,
        tool_calls: int | None = None,
    ) -> None:
        self.limits = Limits(
            tokens=_whole("tokens", tokens),
            cost_usd=_dollars(cost_usd),
            model_calls=_whole("model_calls", model_calls),
            tool_calls=_whole("tool_calls", tool_calls),
        )
        self._ledgers: dict[int, _Ledger] = {}
        self._model_calls = count()  # how many were wanted: whoever draws a number below the limit has a call
        self._tool_calls = count()
        self._tokens, self._cost_usd = self.limits.tokens, self.limits.cost_usd

    # --- looking --------------------------------------------------------------------------------------------

    @property
    def spent(self) -> Spent:
        """All that was spent so far; what is under way as estimated."""
        ledgers = snapshot(self._ledgers)
        return Spent(
            tokens=sum(ledger.tokens for ledger in ledgers),
            cost_usd=sum((ledger.cost_usd for ledger in ledgers), 0.0),
            model_calls=sum(ledger.model_calls for ledger in ledgers),
            tool_calls=sum(ledger.tool_calls for ledger in ledgers),
        )

    @property
    def left(self) -> Limits:
        """What there is still to spend, 0 at least; `None` where there is no limit."""
        limits, spent = self.limits, self.spent
        return Limits(
            tokens=None if limits.tokens is None else max(0, limits.tokens - spent.tokens),
            cost_usd=None if limits.cost_usd is None else max(0.0, limits.cost_usd - spent.cost_usd),
            model_calls=None if limits.model_calls is None else max(0, limits.model_calls - spent.model_calls),
            tool_calls=None if limits.tool_calls is None else max(0, limits.tool_calls - spent.tool_calls),
        )

    def refuses(self, tokens: int, cost_usd: float | None) -> Cancellation | None:
        """The stop of a run that is about to send a request with so much input: nothing would be left for an answer.

        `cost_usd`: what the input costs; `None`: the model is free.
        """
        left = self.left
        if left.tokens is not None and left.tokens <= tokens:
            return self.out_of_tokens()
        if left.cost_usd is not None and cost_usd is not None and left.cost_usd <= cost_usd:
            return self.out_of_money()
        return self._out_of_calls("model", self.limits.model_calls) if left.model_calls == 0 else None

    def refuses_tool_call(self) -> Cancellation | None:
        """The stop of a run that is about to call a tool, and for which there is no call left."""
        return self._out_of_calls("tool", self.limits.tool_calls) if self.left.tool_calls == 0 else None

    def overdrawn(self) -> Cancellation | None:
        """The stop of a run in the middle of an answer: more was spent than there was. The hot path: looks only."""
        tokens, cost_usd = self._tokens, self._cost_usd
        if tokens is not None and sum([ledger.tokens for ledger in snapshot(self._ledgers)]) > tokens:
            return self.out_of_tokens()
        if cost_usd is not None and sum([ledger.cost_usd for ledger in snapshot(self._ledgers)]) > cost_usd:
            return self.out_of_money()
        return None

    # --- spending -------------------------------------------------------------------------------------------

    def charge(self, tokens: int, cost_usd: float) -> None:
        """Adds to what was spent; less than 0 where an estimate was too high."""
        ledger = self._ledger()
        ledger.tokens += tokens
        ledger.cost_usd += cost_usd

    def _ledger(self) -> _Ledger:
        me = get_ident()
        ledger = self._ledgers.get(me)
        if ledger is None:  # a thread that is over leaves its ledger to the next with its number
            ledger = self._ledgers.setdefault(me, _Ledger())
        return ledger

    def take_model_call(self) -> Cancellation | None:
        """Counts one request; or the stop of a run for which there is none left."""
        if not _take(self._model_calls, self.limits.model_calls):
            return self._out_of_calls("model", self.limits.model_calls)
        self._ledger().model_calls += 1
        return None

    def take_tool_call(self) -> Cancellation | None:
        """Counts one call of a tool; or the stop of a run for which there is none left."""
        if not _take(self._tool_calls, self.limits.tool_calls):
            return self._out_of_calls("tool", self.limits.tool_calls)
        self._ledger().tool_calls += 1
        return None

    # --- the stops ------------------------------------------------------------------------------------------

    def out_of_tokens(self) -> Cancellation:
        """The stop of a run for which there are no tokens left."""
        said = f"the budget of {self.limits.tokens} tokens is spent"
        return Cancellation(reason=CancelReason.BUDGET_TOKENS, message=said)

    def out_of_money(self) -> Cancellation:
        """The stop of a run for which there is no money left."""
        said = f"the budget of {self.limits.cost_usd:g} US dollars is spent"
        return Cancellation(reason=CancelReason.BUDGET_COST, message=said)

    def _out_of_calls(self, kind: str, limit: int | None) -> Cancellation:
        said = f"the budget of {limit} {kind} calls is spent"
        return Cancellation(reason=CancelReason.BUDGET_CALLS, message=said)

    def __repr__(self) -> str:
        spent = msgspec.structs.asdict(self.spent)
        limits = msgspec.structs.asdict(self.limits)
        shown = [
            f"{name} {_brief(spent[name])} of {_brief(limit)}" for name, limit in limits.items() if limit is not None
        ]
        return f"<Budget {', '.join(shown) or f'without a limit, {self.spent.tokens} tokens spent'}>"


class _Ledger:
    """What one thread has spent."""

    __slots__ = ("cost_usd", "model_calls", "tokens", "tool_calls")

    def __init__(self) -> None:
        self.tokens = 0
        self.cost_usd = 0.0
        self.model_calls = 0
        self.tool_calls = 0


def _take(numbers: count[int], limit: int | None) -> bool:
    return limit is None or next(numbers) < limit  # `next` of a `count` is one step: no two threads draw the same


def _brief(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _whole(name: str, value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigurationError(f"a budget's {name} must be a whole number, 0 or more, not {value!r}")
    return value


def _dollars(value: object) -> float | None:
    if value is None:
        return None
    try:
        number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < 0:
        raise ConfigurationError(f"a budget's cost_usd must be US dollars, 0 or more, not {value!r}")
    return number


# --- which budgets are over a run ---------------------------------------------------------------------------


class Account(NamedTuple):
    """A budget over a run. `owner`: the outermost run that it was given to, which it stops."""

    budget: Budget
    owner: Execution


def accounts_over(execution: Execution, own: tuple[Budget, ...]) -> tuple[Account, ...]:
    """The budgets over a run, the outermost first; one that is given twice is charged once."""
    accounts = execution.parent.accounts if execution.parent else ()
    for budget in own:
        if all(account.budget is not budget for account in accounts):
            accounts = (*accounts, Account(budget, execution))
    return accounts


def checked_budgets(given: object) -> tuple[Budget, ...]:
    """The budgets that `run(budget=…)` was given: none, one, or several. Raises `ConfigurationError`."""
    if given is None:
        return ()
    budgets = tuple(cast("Sequence[object]", given)) if isinstance(given, list | tuple) else (given,)
    for budget in budgets:
        if not isinstance(budget, Budget):
            raise ConfigurationError(
                f"budget must be a Budget, as in Budget(tokens=50_000), or several, not {type(budget).__name__}"
            )
    return cast("tuple[Budget, ...]", budgets)


def limits_cost(accounts: tuple[Account, ...]) -> bool:
    """True if one of them has a limit in US dollars, for which prices must be known."""
    return any(account.budget.limits.cost_usd is not None for account in accounts)
