"""A composition is checked where it is made and where it is run, and running it never changes it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from halter import Agent, Budget
from halter.compose import Loop, Parallel, Race, Sequential
from halter.core.runnable import Runnable
from halter.errors import ConfigurationError
from halter.models import OpenAIChat
from halter.models.scripted import Scripted
from halter.testing import MemorySource, run
from halter.testing.memory import chat_stream

from .kinds import COMPOSITIONS, KINDS, SOME_TRIPLES, Kind, each
from .parts import gives, speaker

MAKERS = [Sequential, Parallel, Loop, Race]
a, b = speaker("a", "one"), speaker("b", "two")


@pytest.mark.parametrize("make", [Sequential, Parallel, Race])
def test_a_composition_of_nothing_is_refused(make: Any) -> None:
    with pytest.raises(ConfigurationError, match="needs something to run"):
        make()


async def plain(ctx: Any) -> None: ...


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("part", [None, "scripted:Hello", plain, Agent, [a, b]], ids=lambda part: type(part).__name__)
def test_a_part_that_does_not_run_is_refused(make: Any, part: Any) -> None:
    """A plain function too: the message names `@runnable`."""
    with pytest.raises(ConfigurationError, match="@runnable"):
        make(part)


WRONG = [
    (lambda: Parallel(a, on_failure="ignore"), "on_failure must be one of 'cancel', 'wait', 'collect'"),
    (lambda: Loop(a, until=3), "until must be a function"),
    (lambda: Loop(a, max_iterations=0), "max_iterations must be 1 or more"),
    (lambda: Loop(a, max_iterations=True), "max_iterations"),
    (lambda: Race(a, name=3), "name must be text"),
    (lambda: Sequential(a, description=b""), "description must be text"),
]


@pytest.mark.parametrize(("make", "why"), WRONG, ids=[why for _, why in WRONG])
def test_a_wrong_argument_is_refused_where_it_is_given(make: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        make()


def test_it_is_called_after_its_kind_unless_it_has_a_name() -> None:
    """And shows its parts."""
    assert [make(a).name for make in MAKERS] == [make(a).kind for make in MAKERS]
    chain = Sequential(a, b, name="chain", description="What it is for.")
    assert (chain.name, chain.description, chain.kind, chain.parts) == (
        "chain", "What it is for.", "sequential", (a, b)
    )  # fmt: skip
    assert repr(chain) == f"Sequential({a!r}, {b!r}, name='chain')"


# --- run() --------------------------------------------------------------------------------------------------


@pytest.mark.scenario("B15")
@each([*COMPOSITIONS])
@pytest.mark.parametrize("input", [None, "", "  ", 7, {"a": 1}], ids=repr)
def test_bad_input_is_refused_before_anything_starts(kind: Kind, input: Any) -> None:
    """By `run()` itself, also through compositions in compositions."""
    with pytest.raises(ConfigurationError):
        kind.make(lambda name: a).run(input)
    with pytest.raises(ConfigurationError):
        Sequential(Parallel(gives(1), Race(kind.make(lambda name: a)))).run(input)


def test_only_those_that_get_the_input_are_asked_whether_they_take_it() -> None:
    """What a later part takes is seen when it is its turn."""
    Sequential(gives("text"), a).run({"any": "thing"})


@each(COMPOSITIONS)
def test_a_limit_in_dollars_needs_the_prices_of_all_parts(kind: Kind) -> None:
    """One whose price nobody knows is refused by `run()`, however deep it is."""
    unpriced = Agent(OpenAIChat("unheard-of", api_key="any", base_url="http://127.0.0.1:1/v1"), name="unpriced")
    for whole in (kind.make(lambda name: unpriced), Sequential(a, Parallel(a, kind.make(lambda name: unpriced)))):
        with pytest.raises(ConfigurationError, match="unheard-of"):
            whole.run("go", budget=Budget(cost_usd=1))
    kind.make(lambda name: a).run("go", budget=Budget(cost_usd=1))


# --- never changed ------------------------------------------------------------------------------------------


def spelled(thing: Any, depth: int = 6) -> Any:
    """All that a definition is made of, attribute by attribute."""
    if depth == 0 or isinstance(thing, str | int | float | bytes | None):
        return thing
    if isinstance(thing, dict):
        return [(key, spelled(value, depth - 1)) for key, value in thing.items()]
    if isinstance(thing, list | tuple | set | frozenset):
        return [spelled(each, depth - 1) for each in thing]
    if not type(thing).__module__.startswith("halter") or isinstance(thing, MemorySource):
        return id(thing)
    names = [*getattr(thing, "__dict__", ()), *getattr(thing, "__slots__", ())]
    return [type(thing), *((name, spelled(getattr(thing, name, None), depth - 1)) for name in names)]


@pytest.mark.scenario("E57")
@each([*KINDS, *SOME_TRIPLES])
def test_running_it_changes_nothing_in_it(kind: Kind) -> None:
    """To its end, stopped, failed, and several at once."""
    source = MemorySource(chat_stream(5, every=1.0), repeat=True)

    def leaf(name: str) -> Runnable[Any]:
        return Agent(OpenAIChat("any", api_key="any", source=source), name=name)

    whole = kind.make(leaf)
    before = spelled(whole)

    async def main() -> None:
        await whole.run("go")
        stopped = whole.run("go").start()
        both = asyncio.gather(whole.run("go").wait(), whole.run("go").wait())
        await asyncio.sleep(2.5)
        stopped.cancel()
        await both

    run(main)
    assert spelled(whole) == before


def test_one_object_may_stand_in_several_places() -> None:
    """A definition is no state."""

    async def main() -> Any:
        return (await Parallel(a, Sequential(a, a), Loop(a, max_iterations=2), Race(a, a)).run("go")).output

    assert run(main) == ("one", "one", "one", "one")


def test_scripted_is_free_and_needs_no_price() -> None:
    """What the test above relies on."""
    Sequential(Agent(Scripted("x"))).check_price()
