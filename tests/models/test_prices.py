"""Prices and windows come from a dated table, by name or family; your own come first; nothing is guessed."""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path
from threading import Thread

import pytest

from halter.errors import ConfigurationError
from halter.messages import Usage
from halter.models import OpenAIChat
from halter.models.names import COMPATIBLE_PREFIXES, PREFIXES
from halter.models.price_table import AS_OF, MODELS
from halter.models.prices import FREE, LongPrompt, Price, context_window, cost_of, max_output, price_of, set_price

OWN = Price(input=1.0, output=2.0, cached=0.5)


@pytest.fixture(autouse=True)
def _no_own_prices() -> Generator[None]:
    yield
    for name in ("openai:gpt-4o", "openai:my-model", "ollama:llama3"):
        set_price(name, None)


def test_a_request_costs_its_tokens_each_at_its_rate() -> None:
    """A million of each: fresh input, cached input, output; reasoning is part of the output."""
    usage = Usage(input=2_000_000, cached=1_000_000, output=1_000_000, reasoning=400_000)
    assert OWN.cost(usage) == pytest.approx(1.0 + 0.5 + 2.0)
    assert Price(input=1.0, output=2.0).cost(usage) == pytest.approx(2.0 + 2.0)
    assert OWN.cost(Usage()) == 0.0
    assert OWN.cost(Usage(cached=1_000_000)) == pytest.approx(0.5)


def test_a_long_prompt_has_its_own_rates_for_all_of_the_request() -> None:
    price = Price(input=1.0, output=2.0, long=LongPrompt(above=200_000, input=2.0, output=4.0))
    assert price.cost(Usage(input=199_999)) == pytest.approx(0.199999)
    assert price.cost(Usage(input=200_000, output=1_000_000)) == pytest.approx(0.4 + 4.0)


def test_a_dated_name_and_an_alias_have_the_price_of_their_family() -> None:
    family = price_of("openai:gpt-4o")
    assert family == Price(input=2.5, output=10.0, cached=1.25)
    assert price_of("openai:gpt-4o-2024-11-20") == family
    assert price_of("openai-responses:gpt-4o") == family
    assert price_of("openai:gpt-4o-2024-05-13") != family
    assert price_of("anthropic:claude-sonnet-4-5-20250929") == price_of("anthropic:claude-sonnet-4-5")
    assert price_of("gemini:models/gemini-2.5-flash-001") == price_of("gemini:gemini-2.5-flash")


@pytest.mark.parametrize(
    "name", ["openai:gpt-9", "openai:gpt-4o-audio", "openai:", "gpt-4o", "", "azure:gpt-4o", "x:y"]
)
def test_what_is_not_known_is_none_and_never_a_guess(name: str) -> None:
    assert price_of(name) is None
    assert cost_of(name, Usage(input=1)) is None
    assert context_window(name) is None
    assert max_output(name) is None


@pytest.mark.parametrize("name", ["ollama:llama3", "vllm:x", "lmstudio:x", "scripted:Hello"])
def test_models_on_your_own_machine_cost_nothing(name: str) -> None:
    assert price_of(name) is FREE
    assert cost_of(name, Usage(input=10**9, output=10**9)) == 0.0


def test_your_own_price_comes_first_for_all_dates_and_can_be_taken_back() -> None:
    before = price_of("openai:gpt-4o")
    set_price("openai-responses:gpt-4o", OWN)
    assert price_of("openai:gpt-4o-2024-11-20") is OWN
    set_price("openai:gpt-4o", None)
    assert price_of("openai:gpt-4o") == before
    set_price("ollama:llama3", OWN)
    assert price_of("ollama:llama3") is OWN


def test_a_price_may_be_set_in_one_thread_and_asked_in_others() -> None:
    seen: set[Price | None] = set()
    threads = [Thread(target=lambda: seen.update(price_of("openai:my-model") for _ in range(500))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(500):
        set_price("openai:my-model", OWN)
        set_price("openai:my-model", None)
    for thread in threads:
        thread.join()
    assert seen <= {OWN, None}


@pytest.mark.parametrize("amount", [-1.0, float("nan"), float("inf"), "1", True, None])
def test_what_is_no_amount_of_money_is_refused(amount: object) -> None:
    with pytest.raises(ConfigurationError, match="US dollars"):
        Price(input=amount, output=1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "price"), [("gpt-4o", OWN), (4, OWN), ("openai:gpt-4o", 4.0)])
def test_a_price_for_no_model_and_a_price_that_is_none_are_refused(name: object, price: object) -> None:
    with pytest.raises(ConfigurationError):
        set_price(name, price)  # type: ignore[arg-type]


def test_a_model_knows_its_price_unless_it_is_given_another() -> None:
    assert OpenAIChat("gpt-4o", api_key="k").price == price_of("openai:gpt-4o")
    assert OpenAIChat("gpt-4o", api_key="k", price=OWN).price is OWN
    assert OpenAIChat("my-model", api_key="k").price is None


@pytest.mark.parametrize("name", MODELS)
def test_each_row_of_the_table_is_of_a_model_we_can_ask_and_makes_sense(name: str) -> None:
    row, price = MODELS[name], price_of(name)
    assert name.partition(":")[0] in {*PREFIXES, *COMPATIBLE_PREFIXES}
    assert price is not None
    assert price.output >= price.input >= (price.cached or 0.0) > 0.0 or price.cached is None
    assert row.window > (row.longest or 0)
    assert price.long is None or (price.long.input > price.input and price.long.above <= row.window)
    assert context_window(name) == row.window
    assert max_output(name) == row.longest


def test_the_page_says_of_which_day_the_table_is() -> None:
    page = (Path(__file__).parents[2] / "docs" / "usage.md").read_text(encoding="utf-8")
    assert re.findall(r"as of (\d{4}-\d{2}-\d{2})", page) == [AS_OF.isoformat()]
