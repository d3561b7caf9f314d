"""What a model costs and how much it holds, from a dated table, or as you say.

1. A name is looked up as it is, then without the date, version or `latest` at its end. 2. Your own prices come first.
3. What is not known is `None`, never a guess; models on your own machines cost nothing.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Final

import msgspec

from halter.errors import ConfigurationError
from halter.messages import Usage
from halter.models.price_table import AS_OF, MODELS, Row

__all__ = ["AS_OF", "FREE", "LongPrompt", "Price", "context_window", "cost_of", "max_output", "price_of", "set_price"]

_MILLION: Final = 1e6


class LongPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """The price of a whole request that has `above` input tokens or more; US dollars for a million tokens."""

    above: int
    input: float
    output: float
    cached: float | None = None

    def __post_init__(self) -> None:
        _check(self)


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """US dollars for a million tokens. `cached`: input read from the provider's cache; `None`: as any other input.

    Reasoning costs as output does. Not in it: what providers take for filling a cache, for tools of their own, for
    faster service, or leave off for batches. Raises `ConfigurationError` for what is no amount of money.
    """

    input: float
    output: float
    cached: float | None = None
    long: LongPrompt | None = None

    def __post_init__(self) -> None:
        _check(self)

    def cost(self, usage: Usage) -> float:
        """US dollars for these tokens, taken as one request's: of several added up, `long` may be wrong."""
        long = self.long
        rates = long if long is not None and usage.input >= long.above else self
        cached = rates.input if rates.cached is None else rates.cached
        fresh = max(0, usage.input - usage.cached)
        return (fresh * rates.input + usage.cached * cached + usage.output * rates.output) / _MILLION


def _check(price: Price | LongPrompt) -> None:
    for name in ("input", "output", "cached"):
        value = getattr(price, name)
        if value is None and name == "cached":
            continue
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
            raise ConfigurationError(f"a price's {name} must be US dollars, 0 or more, not {value!r}")


FREE: Final = Price(input=0.0, output=0.0)
"""What a model on your own machine costs."""

_LOCAL: Final = frozenset(("ollama", "vllm", "lmstudio", "scripted"))
_SAME_MODELS: Final = {"openai-responses": "openai", "openai-chat": "openai"}
# `-2024-11-20`, `-20250929`, `-2512`, `-001`, `-latest`
_VERSION: Final = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8}|\d{4}|\d{3}|latest)$")
_OWN: dict[str, Price] = {}  # one assignment for each change: whole in any thread


def price_of(name: str) -> Price | None:
    """The price of the model `name`, as in `"anthropic:claude-sonnet-4-5"`; `None` if it is not known."""
    for candidate in _candidates(name):
        if (own := _OWN.get(candidate)) is not None:
            return own
    if name.partition(":")[0] in _LOCAL:
        return FREE
    row = _row(name)
    return None if row is None else _price(row)


def set_price(name: str, price: Price | None) -> None:
    """Says what a model costs, in this process, from now on; `None`: as in the table again. From any thread.

    `name`: as for `price_of`; without a date at its end it holds for all dated names. Raises `ConfigurationError`.
    """
    if not isinstance(name, str) or ":" not in name:
        raise ConfigurationError(f'the model must be named as in "openai:gpt-5.2", not {name!r}')
    if price is None:
        _OWN.pop(_common(name), None)
    elif isinstance(price, Price):
        _OWN[_common(name)] = price
    else:
        raise ConfigurationError(f"price must be a Price, not {type(price).__name__}")


def cost_of(name: str, usage: Usage) -> float | None:
    """US dollars for one request's tokens; `None` if the model's price is not known."""
    price = price_of(name)
    return None if price is None else price.cost(usage)


def context_window(name: str) -> int | None:
    """How many tokens of input and output together the model takes; `None` if that is not known."""
    row = _row(name)
    return None if row is None else row.window


def max_output(name: str) -> int | None:
    """The most output tokens of one answer; `None` if that is not known, or only the window limits it."""
    row = _row(name)
    return None if row is None else row.longest


@lru_cache(maxsize=1024)
def family_of(name: str) -> str:
    """The model's name without the date or version at its end, and by one prefix for all of a provider's APIs."""
    return _candidates(name)[-1]


def _row(name: str) -> Row | None:
    return next((MODELS[candidate] for candidate in _candidates(name) if candidate in MODELS), None)


def _candidates(name: str) -> tuple[str, ...]:
    """The name, and the name of its family."""
    name = _common(name)
    family = _VERSION.sub("", name)
    return (name,) if family == name else (name, family)


def _common(name: str) -> str:
    """The name by which all of a provider's APIs call the model."""
    prefix, colon, model = name.partition(":")
    model = model.removeprefix("models/") if prefix == "gemini" else model
    return f"{_SAME_MODELS.get(prefix, prefix)}{colon}{model}"


def _price(row: Row) -> Price:
    read, written, cached = row.price
    return Price(input=read, output=written, cached=cached, long=_long(row))


def _long(row: Row) -> LongPrompt | None:
    if row.over is None:
        return None
    above, read, written, cached = row.over
    return LongPrompt(above=above, input=read, output=written, cached=cached)
