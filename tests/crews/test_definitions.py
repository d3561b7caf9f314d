"""What cannot work is an error where the crew is made, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from halter import Agent, Budget, runnable
from halter.crews import Crew, Member, Task
from halter.errors import ConfigurationError
from halter.models.scripted import Scripted

from .people import member, pair

ANN = member("ann", "Hello.")
BOB = member("bob", "Hello.")


@runnable(name="function")
async def function(ctx: Any, input: Any) -> str:
    return str(input)


def do(agent: Any = ANN, **options: Any) -> Task:
    return Task(description="Do it.", agent=agent, **options)


def one_after_another(*tasks: Task) -> Crew:
    return Crew(tasks)


class Priceless(Scripted):
    @property
    def price(self) -> Any:
        return None


LATE = do(name="late")
HANDING = member("carl", "Hello.", handoffs=[Agent(Scripted("I go on."), name="dan")])
WRONG: list[tuple[str, Callable[[], Any], str]] = [
    ("no tasks", lambda: Crew([]), "a crew needs tasks"),
    ("no list", lambda: Crew("research"), "a list is needed"),  # pyright: ignore
    ("no task", lambda: Crew(["research"]), "made of Tasks"),  # pyright: ignore
    ("one name", lambda: one_after_another(do(name="a"), do(name="a")), "two tasks are called 'a'"),
    ("one task twice", lambda: one_after_another(LATE, LATE), "two tasks are called 'late'"),
    ("no agent", lambda: Crew([do(None)]), "'task 1' has no agent"),
    ("nobody of the crew", lambda: Crew([do(BOB)], agents=[ANN]), "'bob', is not among the crew's agents"),
    ("no agents", lambda: Crew([do()], agents=["ann"]), "not 'ann'"),  # pyright: ignore
    ("context after", lambda: one_after_another(do(context=[LATE]), LATE), "the context of 'task 1' is not there yet"),
    ("context elsewhere", lambda: Crew([do(context=[do()])]), "not there yet"),
    ("context at once", lambda: one_after_another(a := do(parallel=True), do(parallel=True, context=[a]), LATE), "yet"),
    ("two at the end", lambda: one_after_another(do(parallel=True), do(parallel=True)), "a crew ends with one task"),
    ("no manager", lambda: Crew([do()], agents=[ANN], process="hierarchical"), "needs a manager"),
    ("two bosses", lambda: Crew([do()], manager=BOB), "a sequential crew has no manager"),
    ("a lonely boss", lambda: Crew([do(None)], process="hierarchical", manager=BOB), "needs agents to ask"),
    ("two of one name", lambda: Crew([do()], process="hierarchical", agents=[ANN], manager=ANN), "are called 'ann'"),
    ("not asked", lambda: Crew([do(BOB)], process="hierarchical", agents=[ANN], manager="scripted:x"), "'bob', is not"),
    ("no process", lambda: Crew([do()], process="consensual"), "process must be one of"),  # pyright: ignore
    ("no model", lambda: Crew([do()], process="hierarchical", agents=[ANN], manager="nobody:x"), "nobody"),
    ("no description", lambda: Task(description=" ", agent=ANN), "a task needs a description"),
    ("no agent at all", lambda: do("ann"), "a task's agent is"),
    ("no type", lambda: do(output="Plan"), "output"),
    ("no guardrail", lambda: do(guardrail="short"), "guardrail must be a function"),
    ("no retries", lambda: do(guardrail_retries=-1), "guardrail_retries must be 0 or more"),
    ("no time", lambda: do(timeout=0), "timeout must be more than 0"),
    ("no tools", lambda: do(tools="search"), "a list is needed"),
    ("no context", lambda: do(context=["research"]), "context is a list of tasks"),
    ("a tool twice", lambda: Crew([do(member("ann", "Hi.", tools=[function]), tools=[function])]), "two tools"),
    ("a function with tools", lambda: Crew([do(function, tools=[function])]), "takes no tools= and output= of a task"),
    ("a function's output", lambda: Crew([do(function, output=int)]), "takes no tools= and output= of a task"),
    ("an output handed over", lambda: Crew([do(HANDING, output=int)]), "give it no handoffs"),
    ("no role", lambda: Member("scripted:x", role="", goal="g"), "a member needs a role"),
    ("no goal", lambda: Member("scripted:x", role="r", goal=" "), "a member needs a goal"),
]


@pytest.mark.parametrize(("make", "message"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_what_cannot_work_is_refused_with_a_reason(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()


@pytest.mark.parametrize(
    "state",
    [
        7,
        {"outputs": 7},
        {"turns": ["ann"]},
        {"outputs": {"nobody's": "x"}},
        {"open": {"research": "x"}},
        {"open": {"other": []}},
    ],
    ids=str,
)
def test_a_state_that_is_none_of_this_crew_is_refused(state: Any) -> None:
    with pytest.raises(ConfigurationError, match="state"):
        pair().run("rivers", state=state)


def test_a_state_whose_output_is_not_of_the_tasks_type_is_refused() -> None:
    crew = Crew([do(member("ann", "7"), output=int, name="count")])
    with pytest.raises(ConfigurationError, match="the state's output of 'count'"):
        crew.run(state={"outputs": {"count": "seven"}})


def test_a_budget_in_dollars_needs_the_price_of_every_member() -> None:
    """The manager's and that of those whom he may ask."""
    priceless = member("ann", Priceless("Hello."))
    for crew in (
        Crew([do(BOB), do(priceless)]),
        Crew([do(None)], agents=[priceless], process="hierarchical", manager=BOB),
        Crew([do(None)], agents=[BOB], process="hierarchical", manager=priceless),
    ):
        with pytest.raises(ConfigurationError, match="cost"):
            crew.run(budget=Budget(cost_usd=1.0))
        with pytest.raises(ConfigurationError, match="cost"):
            crew.run_each([None], budget=Budget(cost_usd=1.0))


@pytest.mark.scenario("E57")
@pytest.mark.virtual_time
async def test_running_changes_no_definition() -> None:
    """Neither the members, nor the tasks, nor the crew."""
    agent = member("ann", '{"value": 7}', tools=[function])
    crew = Crew([do(agent, output=int, tools=[runnable(name="more")(function._fn)])])  # pyright: ignore
    before = [dict(vars(each)) for each in (agent, crew, *crew.tasks.values())]
    assert (await crew.run()).output == 7
    assert (await crew.run_each([None, None])).output == (7, 7)
    assert [dict(vars(each)) for each in (agent, crew, *crew.tasks.values())] == before
    assert list(agent.toolbox.tools) == ["function"]
    assert agent.answer is None
