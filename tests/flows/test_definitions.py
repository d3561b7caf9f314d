"""What a flow is made of, and what is refused where its class is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import msgspec
import pytest

from halter import Agent, Budget
from halter.compose import Sequential
from halter.errors import ConfigurationError, UsageError
from halter.flows import Flow, and_, listen, or_, router, start
from halter.flows.conditions import is_met, value_of
from halter.models.scripted import Scripted
from halter.tools import as_tool


class Draft(msgspec.Struct):
    topic: str
    words: int = 0
    notes: list[str] = []


class Report(Flow[Draft], max_steps=7):
    """Writes a report.

    In more than one line.
    """

    @start()
    async def begin(self) -> str:
        return self.state.topic

    @listen(begin)
    async def write(self, ctx: Any, value: str) -> str:
        return value


def test_a_flow_says_what_it_is() -> None:
    report = Report()
    assert (report.kind, report.name, report.description, report.max_steps) == ("flow", "Report", "Writes a report.", 7)
    assert repr(report) == "<flow Report of 2 steps>"
    assert (as_tool(report).name, as_tool(report).spec.description) == ("Report", "Writes a report.")


def test_the_class_says_how_it_is_called_and_a_class_on_top_of_it_says_so_anew() -> None:
    class Short(Report, name="short", description="Writes little."):
        @listen(Report.begin)
        async def write(self) -> str:
            return "shorter"

    short = Short()
    assert (short.name, short.description, short.max_steps) == ("short", "Writes little.", 7)
    assert list(short.graph.steps) == ["begin", "write"]
    assert [step.name for step in short.graph.listeners["begin"]] == ["write"]


def test_a_class_without_steps_is_a_place_for_what_flows_share_and_cannot_be_made() -> None:
    class Shared(Flow[Draft]):
        def shout(self) -> str:
            return self.state.topic.upper()

    with pytest.raises(ConfigurationError, match="Shared has no steps"):
        Shared()
    with pytest.raises(ConfigurationError, match="Shared has no steps"):
        Shared.to_mermaid()


# --- what is refused ----------------------------------------------------------------------------------------


def test_a_name_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"Wrong\.b listens to 'god'.*steps a, r, b, and the labels bad, good"):

        class Wrong(Flow):
            @start()
            async def a(self) -> None: ...

            @router(a)
            async def r(self) -> Literal["good", "bad"]: ...

            @listen("god")
            async def b(self) -> None: ...


def test_a_flow_that_begins_nowhere_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no step to begin with"):

        class Wrong(Flow):
            @listen("b")
            async def a(self) -> None: ...

            @listen(a)
            async def b(self) -> None: ...


def test_a_step_that_nothing_leads_to_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"Wrong\.b can never run"):

        class Wrong(Flow):
            @start()
            async def a(self) -> None: ...

            @listen("c")
            async def b(self) -> None: ...

            @listen(b)
            async def c(self) -> None: ...


def test_waiting_for_both_labels_of_a_router_that_chooses_once_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"Wrong\.both can never run"):

        class Wrong(Flow):
            @router()
            async def choose(self) -> Literal["left", "right"]: ...

            @listen("left")
            async def a(self) -> None: ...

            @listen(and_(a, or_("right", and_("left", "right"))))
            async def both(self) -> None: ...


def test_waiting_for_both_labels_of_a_router_that_may_choose_again_is_right() -> None:
    """The second time it may choose otherwise."""

    class Right(Flow):
        @start()
        async def a(self) -> None: ...

        @router(or_(a, "left"))
        async def choose(self) -> Literal["left", "right"]: ...

        @listen(and_("left", "right"))
        async def both(self) -> None: ...

    assert Right().name == "Right"


def test_waiting_for_a_label_that_two_routers_have_is_right() -> None:
    class Right(Flow):
        @router()
        async def one(self) -> Literal["x", "y"]: ...

        @router()
        async def two(self) -> Literal["x", "z"]: ...

        @listen(and_("x", "y"))
        async def both(self) -> None: ...

    assert Right().name == "Right"


def test_a_circle_without_a_way_out_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="Wrong can never end: after a, b, c another step always follows"):

        class Wrong(Flow):
            @start()
            async def a(self) -> None: ...

            @listen(or_(a, "c"))
            async def b(self) -> None: ...

            @listen(b)
            async def c(self) -> None: ...

            @router(b)
            async def r(self) -> Literal["out"]: ...


def test_a_circle_that_a_router_may_leave_is_right() -> None:
    class Right(Flow):
        @start()
        async def a(self) -> None: ...

        @router(or_(a, "again"))
        async def r(self) -> Literal["again", "enough"]: ...

    assert Right().name == "Right"


def test_a_circle_through_a_step_that_runs_but_once_is_right() -> None:
    class Right(Flow):
        @start()
        async def s(self) -> None: ...

        @listen(or_(s, "c"))
        async def a(self) -> None: ...

        @listen(and_(a, s))
        async def c(self) -> None: ...

    assert Right().name == "Right"


def test_a_step_called_as_a_label_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'good' is both a step and a label"):

        class Wrong(Flow):
            @router()
            async def r(self) -> Literal["good"]: ...

            @listen("good")
            async def good(self) -> None: ...


async def no_labels(self: Any) -> str: ...


async def unknown_type(self: Any) -> Literally: ...  # noqa: F821  # pyright: ignore


async def numbers(self: Any) -> Literal[1]: ...


@pytest.mark.parametrize("fn", [no_labels, unknown_type, numbers], ids=lambda fn: fn.__name__)
def test_a_router_names_its_labels_in_its_return_type(fn: Any) -> None:
    with pytest.raises(ConfigurationError, match='-> Literal\\["good", "bad"\\]'):
        router()(fn)


def keyword_only(self: Any, *, ctx: Any) -> None: ...


def many(self: Any, ctx: Any, value: Any, more: Any) -> None: ...


@pytest.mark.parametrize("fn", [keyword_only, many], ids=lambda fn: fn.__name__)
def test_a_step_takes_what_steps_get(fn: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"must take \(self\), \(self, ctx\) or \(self, ctx, value\)"):
        start(fn)


async def generates(self: Any) -> Any:
    yield 1


@pytest.mark.parametrize("given", [generates, 5, "begin", Report], ids=["generator", "number", "text", "class"])
def test_a_step_is_a_method(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="a step is a method"):
        start()(given)


def test_a_step_has_one_decorator_and_one_name() -> None:
    with pytest.raises(ConfigurationError, match="has a decorator already"):
        listen("x")(Report.begin)
    with pytest.raises(ConfigurationError, match="is step 'begin': a step has one name"):

        class Wrong(Report):
            other = Report.begin


@pytest.mark.parametrize("name", ["run", "state", "execute"])
def test_a_step_is_not_called_as_what_a_flow_has_already(name: str) -> None:
    async def step(self: Any) -> None: ...

    step.__name__ = name
    with pytest.raises(ConfigurationError, match=f"no step can be called '{name}'"):
        type("Wrong", (Flow,), {name: start(step)})


@pytest.mark.parametrize("source", [5, None, "", start, ["a"]], ids=["number", "None", "empty", "decorator", "list"])
def test_what_is_no_source_is_refused(source: Any) -> None:
    for make in (listen, lambda source: and_("a", source), lambda source: or_(source, "b")):
        with pytest.raises(ConfigurationError, match="a step listens to"):
            make(source)
    with pytest.raises(ConfigurationError, match="takes two sources or more, not 1"):
        and_("a")


@pytest.mark.parametrize("given", [int, list[str], str, Any], ids=repr)
def test_a_state_has_fields(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="the state of Wrong must be a msgspec Struct"):
        _flow_of(given)


def test_a_state_has_a_form_in_json() -> None:
    @dataclass
    class Odd:
        thing: object
        lock: type

    with pytest.raises(ConfigurationError, match="the state of Wrong must be a type that JSON can be read into"):
        _flow_of(Odd)


def _flow_of(given: Any) -> Any:
    class Wrong(Flow[given]):
        pass

    return Wrong


def test_settings_of_the_class_are_checked() -> None:
    with pytest.raises(ConfigurationError, match="max_steps must be 1 or more"):

        class Wrong(Report, max_steps=0):
            pass

    with pytest.raises(ConfigurationError, match="name must be text"):

        class Worse(Report, name=5):  # pyright: ignore
            pass


# --- what a run is given ------------------------------------------------------------------------------------


class Typed(TypedDict):
    count: int


WRONG_INPUTS = [
    ({}, "missing required field `topic`"),
    (None, "missing required field `topic`"),
    ("some text", "missing required field `topic`"),
    ({"topic": 5}, "Expected `str`, got `int`"),
    ({"topic": "x", "topci": 1}, "has no 'topci'; it has topic, words, notes"),
    ({"topic": {1, 2}, "words": object()}, "does not fit its type"),
    (5, "from a mapping of its fields, not int"),
]


@pytest.mark.parametrize(("given", "said"), WRONG_INPUTS, ids=range(len(WRONG_INPUTS)))
def test_an_input_that_does_not_fit_fails_before_anything_runs(given: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Report().run(given)


def test_a_state_that_is_another_flows_fails_before_anything_runs() -> None:
    for given, said in [
        ({"state": {"topic": "x"}, "done": ["elsewhere"]}, "Report has no step 'elsewhere'"),
        ({"state": {"topic": "x"}, "pending": [{"step": "elsewhere"}]}, "no step 'elsewhere'"),
        ({"state": {"topic": "x"}, "arrived": {"write": {"judge": 1}}}, "Report.write does not wait for 'judge'"),
        ({"state": {"topic": 1}}, "Expected `str`"),
        ({"done": []}, "no FlowState"),
        (Draft("x"), "must be the result.state of a run, not Draft"),
    ]:
        with pytest.raises(ConfigurationError, match=said):
            Report().run(state=given)
    with pytest.raises(ConfigurationError, match="not both"):
        Report().run({"topic": "x"}, state={"state": {"topic": "x"}})


def test_a_definition_has_no_state_and_is_not_changed_by_its_runs() -> None:
    report = Report()
    with pytest.raises(UsageError, match="flow 'Report' is a definition"):
        _ = report.state
    with pytest.raises(UsageError, match="in a step"):
        report.state = Draft("x")
    before = dict(vars(report))
    report.run({"topic": "x"}).result(5)
    assert vars(report) == before == {}


def test_a_price_that_is_not_known_is_refused_for_whatever_its_attributes_hold() -> None:
    class Unpriced:
        name = "unpriced"

        async def respond(self, request: Any, ctx: Any) -> Any: ...

    unpriced, priced = Agent(Unpriced(), name="x"), Agent(Scripted("y"))

    class Shared(Report):
        writer = Sequential(priced, unpriced)

    class Own(Report):
        def __init__(self, *writers: Agent) -> None:
            self.writers = writers

    for flow in (Shared(), Own(priced, unpriced)):
        with pytest.raises(ConfigurationError, match="unpriced"):
            flow.run({"topic": "x"}, budget=Budget(cost_usd=1))
    Own(priced).run({"topic": "x"}, budget=Budget(cost_usd=1)).result(5)


# --- conditions ---------------------------------------------------------------------------------------------


def test_conditions_are_met_by_what_has_arrived() -> None:
    condition = and_("a", or_("b", and_("c", "d")))
    assert not is_met(condition, {"a": 1})
    assert not is_met(condition, {"a": 1, "c": 3})
    assert not is_met(condition, {"b": 2, "c": 3, "d": 4})
    assert is_met(condition, {"a": 1, "b": 2})
    assert value_of(condition, {"a": 1, "b": 2}) == (1, 2)
    assert value_of(condition, {"a": 1, "c": 3, "d": 4}) == (1, (3, 4))
