"""What one request to a model is charged, from before it is sent until the provider has counted.

1. Before it: a budget that has nothing left stops its run. 2. While it is answered: the provider's own count where it
gives one, and our estimate of what has come since; looked at after each read. 3. At its end: what the provider has
counted; what it has not stays as estimated, as does an answer that was stopped or broke.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from halter.core.assembly import Assembly
from halter.core.budget import Account, limits_cost
from halter.core.ports import Price
from halter.core.tokens import CALL, estimate_input, estimate_request, estimate_tokens
from halter.errors import ConfigurationError, RunCancelled
from halter.messages import Message, Usage
from halter.outcome import Cancellation
from halter.request import ModelRequest, Settings

if TYPE_CHECKING:
    from halter.core.execution import Execution

SMALLEST_ANSWER = 16  # tokens: less than that, OpenAI's Responses refuse to be asked for
LEAST_THINKING = 1024  # tokens: Anthropic takes no smaller budget, others some hundreds
MOST = 1e15  # tokens: no model answers with more, and a float holds it exactly
SURELY_POSSIBLE = 4096  # tokens: each model can answer with so many; some refuse to be asked for more
OFTEN = 64  # characters after which what is shown is estimated anew
STRETCH = 500  # characters that are estimated together: one by one, their fractions would add up to too much
TOO_LONG = frozenset(("length", "max_tokens", "MAX_TOKENS", "max_output_tokens"))  # as each provider says it
NO_PRICE = (
    "a budget with cost_usd needs a price, and that of {} is not known: "
    "give it as price=Price(…), or with halter.models.prices.set_price(…)"
)


class Ceiling(NamedTuple):
    """So many output tokens a budget leaves. `stop()`: the stop of its run for an answer that has reached it."""

    most: int
    account: Account
    stop: Callable[[], Cancellation]


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What the budgets over a run leave for one request.

    `input`: its size in tokens, estimated. `price`: its model's. `ceiling`: the output that is left; `None`: no limit.
    `told`: the most output that the provider was told of, because no more was left.
    """

    input: int = 0
    price: Price | None = None
    ceiling: Ceiling | None = None
    told: int | None = None

    def lower(self, settings: Settings, longest: int | None = None) -> tuple[Settings, Allowance]:
        """The settings with no more output than is left, if the provider has to be told; and what it is told.

        `longest`: the most tokens that the model answers with if it is told nothing, where that is known. Thinking is
        output: it has half of what is told at most, and is not asked for where that is less than providers take.
        """
        asked = settings.max_output_tokens
        if self.ceiling is None or self.ceiling.most >= (asked or longest or SURELY_POSSIBLE):
            return settings, self
        told = max(SMALLEST_ANSWER, self.ceiling.most)
        if asked is not None and asked <= told:
            return settings, self
        thinking = settings.reasoning_tokens
        if thinking is not None and thinking + SMALLEST_ANSWER > told:
            thinking = told // 2 if told // 2 >= LEAST_THINKING else None
        lowered = msgspec.structs.replace(settings, max_output_tokens=told, reasoning_tokens=thinking)
        return lowered, msgspec.structs.replace(self, told=told)


def allowance_for(execution: Execution, request: ModelRequest, price: Price | None) -> Allowance:
    """What the budgets over a run leave for this request."""
    asked = estimate_request(request)
    ceilings = (ceiling for account in execution.accounts for ceiling in _ceilings(account, asked, price))
    return Allowance(input=asked, price=price, ceiling=min(ceilings, key=lambda ceiling: ceiling.most, default=None))


def _ceilings(account: Account, asked: int, price: Price | None) -> Iterator[Ceiling]:
    budget, left = account.budget, account.budget.left
    if left.tokens is not None:
        yield Ceiling(max(0, left.tokens - asked), account, budget.out_of_tokens)
    if left.cost_usd is not None and price is not None:
        question = price.cost(Usage(input=asked))
        million = price.cost(Usage(input=asked, output=1_000_000)) - question
        if million > 0:
            most = max(0.0, min(MOST, (left.cost_usd - question) / million * 1e6))
            yield Ceiling(int(most), account, budget.out_of_money)


def admit(execution: Execution, allowance: Allowance | None) -> Allowance:
    """Lets one request out, and counts it; or stops the run of a budget that has nothing left.

    Raises `RunCancelled` for a stop, and `ConfigurationError` if there is a limit in dollars and no price.
    """
    allowance = allowance or Allowance(input=estimate_input(execution.conversation))
    if allowance.price is None and limits_cost(execution.accounts):
        raise ConfigurationError(NO_PRICE.format("this model"))
    cost = None if allowance.price is None else _question_cost(allowance.price, allowance.input)
    for account in execution.accounts:
        _stop_if(account.budget.refuses(allowance.input, cost), account, execution)
    for account in execution.accounts:
        _stop_if(account.budget.take_model_call(), account, execution)
    return allowance


def _question_cost(price: Price, asked: int) -> float | None:
    """US dollars for a request's input; `None` if the model is free, which no account is too empty for."""
    return price.cost(Usage(input=asked)) if price.cost(Usage(input=1_000_000, output=1_000_000)) > 0 else None


def admit_tool(execution: Execution) -> None:
    """Counts one call of a tool; raises `RunCancelled` as `admit`."""
    for account in execution.accounts:
        _stop_if(account.budget.refuses_tool_call(), account, execution)
    for account in execution.accounts:
        _stop_if(account.budget.take_tool_call(), account, execution)


def _stop_if(request: Cancellation | None, account: Account, execution: Execution) -> None:
    if request is None:
        return
    account.owner.request_stop(request)
    execution.token.raise_if_cancelled()
    raise RunCancelled(f"stopped: {request}", cancellation=request)  # its owner is over already, and this run soon


class Meter:
    """One request's charge on each budget over its run. Home loop only."""

    __slots__ = (
        "_accounts",
        "_allowance",
        "_charged",
        "_cost",
        "_counted",
        "_is_settled",
        "_price",
        "came_whole",
        "shown",
    )

    def __init__(self, accounts: tuple[Account, ...], allowance: Allowance, assembly: Assembly) -> None:
        self.shown = Shown(assembly)  # since the provider has counted
        self.came_whole = False  # an answer that could not be looked at on the way
        self._accounts = accounts
        self._allowance = allowance
        self._price = allowance.price
        self._counted = Usage(input=allowance.input)  # by the provider, as far as it has
        self._charged = 0
        self._cost = 0.0
        self._is_settled = False
        assembly.on_count = self._on_count
        self._charge(self._counted)

    def after_read(self) -> None:
        """Charges what has arrived, and stops the run of each budget that is overdrawn."""
        if self._is_settled:
            return
        self._charge_live()
        for account in self._accounts:
            if account.budget.overdrawn() is not None:
                self.shown.estimate()  # once more, and not by its length: nobody is stopped for a rough guess
                self._charge_live()
                self._stop_overdrawn()
                return

    def settle(self, message: Message, usage: Usage) -> bool:
        """The answer is over, and has cost `usage`. True if it was cut off by the budget: then `stop()` it."""
        if self._is_settled:
            return False
        self._is_settled = True
        self._charge(usage)
        told = self._allowance.told
        return told is not None and message.finish_reason in TOO_LONG and usage.output >= told * _reached(usage)

    def stop(self, was_cut: bool) -> None:
        """Stops the run of an answer that was cut off, or that came whole and was too much: it is no success."""
        ceiling = self._allowance.ceiling
        if was_cut and ceiling is not None:
            ceiling.account.owner.request_stop(ceiling.stop())
        if self.came_whole:
            self._stop_overdrawn()

    def refund(self) -> None:
        """The request has not left, or was refused: no provider bills for that. It stays counted as a call."""
        if not self._is_settled:
            self._is_settled = True
            self._charge(Usage())

    def _stop_overdrawn(self) -> None:
        for account in self._accounts:
            request = account.budget.overdrawn()
            if request is not None:
                account.owner.request_stop(request)

    # --- counting -------------------------------------------------------------------------------------------

    def _on_count(self, usage: Usage) -> None:
        """The provider has counted: what came before is in it. A count that does not grow counts nothing."""
        if self._is_settled:
            return
        before = self._counted
        if usage.output > before.output:
            self.shown.forget()
        self._counted = msgspec.structs.replace(
            usage, input=usage.input or before.input, output=max(usage.output, before.output)
        )

    def _charge_live(self) -> None:
        """What the provider has counted, and our estimate of what it has shown since."""
        counted, since = self._counted, self.shown.tokens()
        if counted.input + counted.output + since == self._charged:
            return
        if self._price is not None:
            self._charge(msgspec.structs.replace(counted, output=counted.output + since))
        else:
            self._charge_tokens(counted.input + counted.output + since, 0.0)

    def _charge(self, usage: Usage) -> None:
        self._charge_tokens(usage.total, 0.0 if self._price is None else self._price.cost(usage))

    def _charge_tokens(self, tokens: int, cost: float) -> None:
        for account in self._accounts:
            account.budget.charge(tokens - self._charged, cost - self._cost)
        self._charged, self._cost = tokens, cost


def _reached(usage: Usage) -> float:
    """The part of the length it was told at which an answer is sure to have ended for that; an estimate may be low."""
    return 0.75 if usage.estimated else 0.95


class Shown:
    """How much of an answer has been shown, in tokens. `pieces`: all that is shown is appended to it.

    A look costs nothing but an addition: what has come since the last estimate counts by its length. Estimated is
    every `OFTEN` characters, and a stretch at a time.
    """

    __slots__ = ("_assembly", "_before", "_calls", "_known", "_rate", "_text", "length", "pieces")

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._rate = 1 / 3  # tokens in a character, until that is known
        self.forget()

    def forget(self) -> None:
        """Counts from here on."""
        self.pieces: list[str] = []
        self.length = 0  # of the pieces, in characters
        self._text = ""  # the stretch that is still growing
        self._before = 0  # tokens, of what is far behind
        self._known = 0
        self._calls = self._assembly.calls_begun

    def add(self, text: str) -> None:
        self.pieces.append(text)
        self.length += len(text)

    def tokens(self) -> int:
        if self.length >= OFTEN:
            self.estimate()
        return self._known + int(self.length * self._rate) + CALL * (self._assembly.calls_begun - self._calls)

    def estimate(self) -> None:
        if not self.pieces:
            return
        self._text += "".join(self.pieces)
        self.pieces.clear()
        self.length = 0
        worth = estimate_tokens(self._text)
        self._rate = worth / max(1, len(self._text))
        self._known = self._before + worth
        if len(self._text) >= STRETCH:
            self._before, self._text = self._known, ""
