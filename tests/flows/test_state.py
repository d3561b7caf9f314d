"""The state of a flow: its types, a copy for each step, and what becomes of their changes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import date
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from halter.errors import ConfigurationError, StateConflict, UsageError
from halter.flows import Flow, FlowState, listen, start

virtual = pytest.mark.virtual_time


class Struct(msgspec.Struct):
    topic: str = "rivers"
    day: date = date(2026, 1, 1)
    notes: list[str] = []


class Frozen(msgspec.Struct, frozen=True):
    topic: str = "rivers"
    day: date = date(2026, 1, 1)
    notes: tuple[str, ...] = ()


@dataclass
class Data:
    topic: str = "rivers"
    day: date = date(2026, 1, 1)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FrozenData:
    topic: str = "rivers"
    day: date = date(2026, 1, 1)
    notes: list[str] = field(default_factory=list)


class Model(pydantic.BaseModel):
    topic: str = "rivers"
    day: date = date(2026, 1, 1)
    notes: list[str] = []


class Typed(TypedDict, total=False):
    topic: str
    day: date
    notes: list[str]


def encoded(value: Any) -> Any:
    return value.model_dump(mode="json")


# --- types --------------------------------------------------------------------------------------------------


@virtual
@pytest.mark.parametrize("kind", [Struct, Data, Model, FrozenData], ids=lambda kind: kind.__name__)
async def test_a_state_of_any_type_with_fields_is_read_changed_stored_and_read_again(kind: Any) -> None:
    class Keeps(Flow[kind]):
        @start()
        async def a(self) -> None:
            self.state.notes.append("a")

        @listen(a)
        async def b(self) -> None:
            await asyncio.sleep(1)
            self.state.notes.append("b")

    keeps = Keeps()
    given = {"topic": "lakes", "day": "2026-02-03"}
    run = keeps.run(given).start()
    await asyncio.sleep(0.5)
    run.cancel()
    state = (await run.finished()).state
    assert state.state == kind(topic="lakes", day=date(2026, 2, 3), notes=["a"])
    stored = msgspec.json.decode(msgspec.json.encode(state, enc_hook=encoded))
    for given in (state, stored):
        assert (
            (await keeps.run(state=given)).state.state == kind("lakes", date(2026, 2, 3), ["a", "b"])
            if (kind is not Model)
            else Model(topic="lakes", day=date(2026, 2, 3), notes=["a", "b"])
        )


@virtual
async def test_a_frozen_state_is_replaced() -> None:
    class Keeps(Flow[Frozen]):
        @start()
        async def a(self) -> None:
            self.state = msgspec.structs.replace(self.state, notes=("a",))

        @start()
        async def b(self) -> None:
            self.state = msgspec.structs.replace(self.state, topic="lakes")

    assert (await Keeps().run()).state.state == Frozen("lakes", notes=("a",))


@virtual
async def test_a_typed_dict_and_a_dict_are_states_too() -> None:
    class Keeps(Flow[Typed]):
        @start()
        async def a(self) -> None:
            self.state["notes"] = ["a"]

        @start()
        async def b(self) -> None:
            del self.state["topic"]

    assert (await Keeps().run({"topic": "lakes", "day": "2026-02-03"})).state.state == {
        "day": date(2026, 2, 3),
        "notes": ["a"],
    }
    with pytest.raises(ConfigurationError, match="has no 'x'"):
        Keeps().run({"x": 1})

    class Loose(Flow):
        @start()
        async def a(self) -> Any:
            self.state["seen"] = self.state.get("day")

    assert (await Loose().run({"day": date(2026, 2, 3)})).state.state["seen"] == date(2026, 2, 3)
    assert (await Loose().run()).state.state == {"seen": None}


@virtual
async def test_a_run_has_a_copy_of_what_it_was_given_and_each_run_its_own() -> None:
    class Keeps(Flow[Struct]):
        @start()
        async def a(self) -> None:
            await asyncio.sleep(0)
            self.state.notes.append(self.state.topic)

    keeps, given = Keeps(), Struct("lakes")
    results = await asyncio.gather(keeps.run(given), keeps.run(given), keeps.run(), keeps.run({"topic": "seas"}))
    assert [result.state.state.notes for result in results] == [["lakes"], ["lakes"], ["rivers"], ["seas"]]
    assert given == Struct("lakes")
    first = results[0].state
    again = await keeps.run(state=FlowState(state=first.state, pending=first.pending)).finished()
    assert again.state.state is not first.state


# --- steps --------------------------------------------------------------------------------------------------


class Twice(Flow[Struct]):
    """Two steps at once; what each does to the state is given by name."""

    def __init__(self, first: Any, second: Any) -> None:
        self.first = first
        self.second = second
        self.seen: list[Any] = []

    @start()
    async def one(self) -> None:
        self.first(self.state)
        await asyncio.sleep(1)

    @start()
    async def two(self) -> None:
        self.second(self.state)
        await asyncio.sleep(2)

    @listen(one)
    async def meanwhile(self) -> None:
        self.seen.append(msgspec.to_builtins(self.state))


def topic(to: str) -> Any:
    return lambda state: setattr(state, "topic", to)


@virtual
async def test_steps_at_once_do_not_see_each_others_changes_and_all_of_them_count() -> None:
    """A step sees those of the steps that had ended when it began."""
    twice = Twice(topic("lakes"), lambda state: state.notes.append("two"))
    assert (await twice.run()).state.state == Struct("lakes", notes=["two"])
    assert twice.seen == [{"topic": "lakes", "day": "2026-01-01", "notes": []}]


@virtual
async def test_two_steps_at_once_that_change_one_field_are_a_conflict() -> None:
    """Nobody's change is lost silently: the second fails, and the flow."""
    run = Twice(lambda state: state.notes.append("one"), lambda state: state.notes.append("two")).run()
    result = await run.finished()
    assert isinstance(result.error, StateConflict)
    assert str(result.error).startswith("step 'two' has changed 'notes' of the state, and so has a step that ran")
    assert result.state.state == Struct(notes=["one"])
    assert [pending.step for pending in result.state.pending] == ["two"]
    assert (await Twice(topic("x"), lambda state: state.notes.append("two")).run(state=result.state)).is_completed


@virtual
async def test_two_steps_at_once_may_come_to_the_same() -> None:
    assert (await Twice(topic("lakes"), topic("lakes")).run()).state.state.topic == "lakes"


@virtual
async def test_what_is_done_to_the_state_after_the_step_is_not_in_it() -> None:
    """A reference that was kept, or handed on as the value."""
    kept: list[Struct] = []

    class Keeps(Flow[Struct]):
        @start()
        async def a(self) -> list[str]:
            kept.append(self.state)
            return self.state.notes

        @listen(a)
        async def b(self, ctx: Any, notes: list[str]) -> None:
            notes.append("by b")
            kept[0].topic = "changed by b"

    assert (await Keeps().run()).state.state == Struct()


@virtual
async def test_a_step_sets_nothing_but_the_state_and_that_to_its_type() -> None:
    class Sets(Flow[Struct]):
        @start()
        async def a(self) -> None:
            with pytest.raises(UsageError, match=r"self\.draft cannot be set in a step"):
                self.draft = "x"
            with pytest.raises(UsageError, match="replaced by one of its type"):
                self.state = {"topic": "x"}  # pyright: ignore
            self.state = Struct("whole")

    sets = Sets()
    assert (await sets.run()).state.state == Struct("whole")
    assert not hasattr(sets, "draft")


@virtual
async def test_a_dataclass_may_be_a_flow() -> None:
    """Its fields are the definition's."""

    @dataclass
    class Greets(Flow[Struct]):
        greeting: str

        @start()
        async def greet(self) -> str:
            return f"{self.greeting}, {self.state.topic}"

    assert (await Greets("Hello").run()).output == "Hello, rivers"
