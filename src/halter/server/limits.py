"""How much one tenant may have at once, and may spend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

import msgspec

from halter.core.budget import Budget
from halter.server.problems import Problem


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Of one tenant; `None`: no limit.

    `runs`: live at once. `streams`: open at once. `tokens`, `cost_usd`: that all its runs may spend together while the
    server lives; a run that reaches it is stopped, and later ones are refused.
    """

    runs: int | None = 200
    streams: int | None = 1_000
    tokens: int | None = None
    cost_usd: float | None = None


UNLIMITED = Limits(runs=None, streams=None)


class TenantUsage:
    """How many runs and streams each tenant has now, and what it has spent.

    Args:
        limits: of each tenant.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._runs: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()
        self._budgets: dict[str, Budget] = {}

    def check(self, tenant: str) -> None:
        """Raises `Problem` 429 if the tenant has as many live runs as it may, or has spent all it may."""
        _check("live runs", self._runs[tenant], self.limits.runs)
        budget = self.budget(tenant)
        if budget is not None and (budget.left.tokens == 0 or budget.left.cost_usd == 0):
            raise Problem(429, "all that you may spend is spent", code="budget_spent", retry_after=3_600)

    def started(self, tenant: str) -> None:
        """One more run is live."""
        self._runs[tenant] += 1

    def ended(self, tenant: str) -> None:
        """One run less is live."""
        self._runs[tenant] -= 1

    def budget(self, tenant: str) -> Budget | None:
        """What all runs of the tenant share; `None` if there is no limit."""
        if self.limits.tokens is None and self.limits.cost_usd is None:
            return None
        found = self._budgets.get(tenant)
        if found is None:
            found = self._budgets[tenant] = Budget(tokens=self.limits.tokens, cost_usd=self.limits.cost_usd)
        return found

    def check_streams(self, tenant: str) -> None:
        """Raises `Problem` 429 if the tenant has as many open streams as it may."""
        _check("open streams", self._streams[tenant], self.limits.streams)

    @contextmanager
    def stream(self, tenant: str) -> Generator[None]:
        """Within this block the tenant has one more stream."""
        self._streams[tenant] += 1
        try:
            yield
        finally:
            self._streams[tenant] -= 1


def _check(what: str, now: int, limit: int | None) -> None:
    if limit is not None and now >= limit:
        raise Problem(429, f"you have {now} {what}, and {limit} is the limit", code="too_many", retry_after=2)
