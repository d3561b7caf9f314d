"""Tasks in order: what each is told, what counts as an answer, who does it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from halter import Agent, RunContext, RunFailed, RunTimedOut, events, runnable
from halter.compose import Parallel, Sequential
from halter.core.runnable import Runnable
from halter.crews import Crew, CrewState, Member, Task
from halter.errors import ConfigurationError, OutputInvalid, TurnsExhausted
from halter.models.scripted import Scripted, calls
from halter.tools import ToolContext, as_tool, tool

from .people import Asked, member, pair

virtual = pytest.mark.virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


@dataclass
class Plan:
    title: str
    parts: int = 1


# --- one after another --------------------------------------------------------------------------------------


@virtual
async def test_its_answer_is_that_of_the_last_task_and_its_state_has_them_all() -> None:
    run = pair().run({"topic": "rivers"})
    assert [text async for text in run.text_stream()] == ["four ", "five ", "six"]
    result = await run
    assert (result.output, result.text) == ("four five six", "four five six")
    assert result.state == CrewState(outputs={"research": "one two three", "write": "four five six"})
    assert [(message.role, message.text.partition("\n")[0]) for message in result.messages] == [
        ("user", "Research rivers."),
        ("assistant", "one two three"),
        ("user", "Write on rivers."),
        ("assistant", "four five six"),
    ]


@pytest.mark.scenario("E54")
@virtual
async def test_every_chunk_names_its_agent_and_its_task() -> None:
    run = pair().run("rivers")
    said = [(event.agent, event.task, event.text) async for event in run if isinstance(event, events.TextDelta)]
    assert said == [
        ("ann", "research", "one "),
        ("ann", "research", "two "),
        ("ann", "research", "three"),
        ("bob", "write", "four "),
        ("bob", "write", "five "),
        ("bob", "write", "six"),
    ]
    log = [event async for event in run.events()]
    kinds = [(event.kind, event.name) for event in log if isinstance(event, events.Started)]
    assert kinds == [("crew", "crew"), ("task", "research"), ("agent", "ann"), ("task", "write"), ("agent", "bob")]


@virtual
async def test_a_task_is_told_what_all_before_it_have_come_to() -> None:
    model = Asked("Done.")
    first = Task(description="First.", agent=member("ann", "one"), name="first")
    second = Task(description="Second.", agent=member("bob", "two"), name="second")
    third = Task(description="Third.", agent=member("carl", model))
    await Crew([first, second, third]).run()
    assert model.prompts == [
        "Third.\n\nWhat other tasks have come to:\n\n"
        '<output task="first">\none\n</output>\n\n<output task="second">\ntwo\n</output>'
    ]


@pytest.mark.parametrize(("chosen", "told"), [((), []), ((1,), ["two"]), ((1, 0), ["two", "one"])])
@virtual
async def test_a_task_with_a_context_is_told_that_alone(chosen: tuple[int, ...], told: list[str]) -> None:
    model = Asked("Done.")
    before = [Task(description="Go.", agent=member(name, name)) for name in ("one", "two")]
    last = Task(description="Third.", agent=member("carl", model), context=[before[place] for place in chosen])
    await Crew([*before, last]).run()
    assert [line for line in model.prompts[0].splitlines() if line in ("one", "two")] == told


@virtual
async def test_a_history_is_told_to_each_task() -> None:
    models = Asked("Fine."), Asked("Fine.")
    crew = Crew([Task(description="Go on.", agent=member(f"m{at}", model)) for at, model in enumerate(models)])
    first = await Agent(Scripted("Hello, Anna.")).run("I am Anna.")
    await crew.run(history=first.messages)
    for model in models:
        assert [message.text for message in model.requests[0].messages[1:3]] == ["I am Anna.", "Hello, Anna."]


@virtual
async def test_whatever_runs_can_do_a_task() -> None:
    """An agent, a function, a composition, a crew; what is no text is told to the next one as JSON."""
    model = Asked("Done.")

    @runnable
    async def count(ctx: RunContext, input: str) -> dict[str, int]:
        return {"letters": len(input)}

    inner = Crew([Task(description="Inner: {what}", agent=member("ann", "from within"))], name="inner")
    both = Parallel(Agent(Scripted("a")), Agent(Scripted("b")))
    doers: list[Runnable[Any]] = [count, inner, Sequential(Agent(Scripted("x")), count), both]
    tasks = [Task(description="Twelve chars", agent=doer, context=()) for doer in doers]
    result = await Crew([*tasks, Task(description="Sum up.", agent=Agent(model))]).run()
    assert result.state.outputs == {
        "task 1": {"letters": 12},
        "task 2": "from within",
        "task 3": {"letters": 1},
        "task 4": ["a", "b"],
        "task 5": "Done.",
    }
    assert '<output task="task 1">\n{"letters":12}\n</output>' in model.prompts[0]


@virtual
async def test_an_output_that_could_not_be_stored_fails_the_crew() -> None:
    """The state is JSON, whatever has produced it."""

    @runnable
    async def work(ctx: RunContext, input: str) -> object:
        return object()

    result = await Crew([Task(description="Go.", agent=work)]).run().finished()
    assert isinstance(result.error, ConfigurationError)
    assert "object" in str(result.error)


@virtual
async def test_the_caller_s_context_reaches_the_tools_of_members() -> None:
    seen: list[Any] = []

    @tool
    async def look(ctx: ToolContext) -> str:
        seen.append(ctx.context)
        return "ok"

    script = Scripted(calls("look"), "Done.")
    ann = member("ann", script, tools=[look])
    boss = Scripted(calls("ann", input="Look."), "Done.")
    await Crew([Task(description="Look.", agent=ann)]).run(context="mine")
    hierarchical = Crew([Task(description="Look.")], agents=[ann], process="hierarchical", manager=boss)  # pyright: ignore
    await hierarchical.run(context="mine")
    await Crew([Task(description="Look.", agent=member("bob", script), tools=[look])]).run_each([None], context="mine")
    assert seen == ["mine"] * 3


# --- at once ------------------------------------------------------------------------------------------------


@virtual
async def test_parallel_tasks_next_to_each_other_are_done_at_once() -> None:
    """The next one waits for all, and is told all; they are not told of each other, but of those before."""
    model = Asked("Done.")
    before = Task(description="Before.", agent=member("zoe", "zero", pace=1))
    slow = Asked("one two three", pace=1)
    sides = [
        Task(description="Side.", agent=member("ann", slow), parallel=True),
        Task(description="Side.", agent=member("bob", "four", pace=1), parallel=True),
    ]
    crew = Crew([before, *sides, Task(description="After.", agent=member("carl", model))])
    await crew.run()
    assert now() == 1 + 3
    assert "zero" in slow.prompts[0]
    assert "four" not in slow.prompts[0]
    assert [word in model.prompts[0] for word in ("zero", "one two three", "four")] == [True] * 3


@virtual
async def test_a_parallel_task_that_fails_stops_its_siblings() -> None:
    """What had been done is in the state, and so is the conversation that was cut short."""

    @runnable(name="fails")
    async def fails(ctx: RunContext, input: str) -> None:
        await asyncio.sleep(1.5)
        raise LookupError("nothing there")

    crew = Crew([
        Task(description="Quick.", agent=member("ann", "one", pace=1), parallel=True, name="quick"),
        Task(description="Slow.", agent=member("bob", "one two three", pace=1), parallel=True, name="slow"),
        Task(description="Fail.", agent=fails, parallel=True, name="fail"),
        Task(description="Never.", agent=member("carl", "never"), name="never"),
    ])  # fmt: skip
    run = crew.run()
    result = await run.finished()
    assert now() == 1.5
    assert repr(result.error) == "LookupError('nothing there')"
    assert result.state.outputs == {"quick": "one"}
    assert [message.text for message in result.state.open["slow"]] == ["Slow.", "one "]
    ends = [event.reason async for event in run.events() if isinstance(event, events.Cancelled)]
    assert ends == ["parent_cancelled", "sibling_failed"]


# --- what counts as an answer -------------------------------------------------------------------------------


@virtual
async def test_a_task_with_an_output_gives_a_value_of_that_type() -> None:
    """The last one's is the crew's; the others are told as JSON, and stand so in the state."""
    plan = Task(description="Plan.", agent=member("ann", '{"title": "Rivers", "parts": 3}'), output=Plan, name="plan")
    model = Asked('{"title": "Lakes"}')
    again = Task(description="Again.", agent=member("bob", model), output=Plan, name="again")
    result = await Crew([plan, again]).run()
    assert result.output == Plan("Lakes")
    assert result.state.outputs["plan"] == {"title": "Rivers", "parts": 3}
    assert '{"title":"Rivers","parts":3}' in model.prompts[0]
    assert model.requests[0].output is not None


@virtual
async def test_an_answer_that_the_guardrail_refuses_is_asked_for_again() -> None:
    """In the same conversation, with the reason; the last answer counts."""
    model = Asked("too long by far", "short")
    task = Task(description="Be brief.", agent=member("ann", model), guardrail=lambda said: len(said) < 6 or "too long")
    result = await Crew([task]).run()
    assert (result.output, result.text) == ("short", "short")
    assert [message.text for message in model.requests[1].messages[1:]] == [
        "Be brief.",
        "too long by far",
        "Your answer was not accepted: too long\nAnswer again, with the whole corrected answer.",
    ]


@virtual
async def test_a_guardrail_may_wait_and_sees_the_value() -> None:
    seen: list[Any] = []

    async def check(plan: Plan) -> str | None:
        await asyncio.sleep(1)
        seen.append(plan)
        return None if plan.parts > 1 else "a plan has two parts"

    script = Scripted('{"title": "x"}', '{"title": "x", "parts": 2}')
    result = await Crew([
        Task(description="Plan.", agent=member("ann", script), output=Plan, guardrail=check)
    ]).run()  # fmt: skip
    assert seen == [Plan("x", 1), Plan("x", 2)]
    assert (result.output, now()) == (Plan("x", 2), 2)


@pytest.mark.parametrize("retries", [0, 1, 2])
@virtual
async def test_after_so_many_refusals_the_crew_fails_and_the_next_task_never_starts(retries: int) -> None:
    model, after = Asked("bad"), Asked("never")
    task = Task(
        description="Go.", agent=member("ann", model), guardrail=lambda _: False, guardrail_retries=retries, name="go"
    )
    with pytest.raises(RunFailed) as caught:
        await Crew([task, Task(description="Next.", agent=member("bob", after))]).run()
    assert isinstance(caught.value.__cause__, OutputInvalid)
    assert (caught.value.__cause__.text, caught.value.__cause__.reasons) == ("bad", ("it is not accepted",))
    assert len(model.requests) == retries + 1
    assert after.requests == []


@pytest.mark.parametrize("verdict", [(False, "no"), (True, "x"), 1, []], ids=str)
@virtual
async def test_a_guardrail_that_says_neither_yes_nor_no_fails_the_crew(verdict: Any) -> None:
    """A pair is true to Python, whatever it says: never taken for a yes."""
    task = Task(description="Go.", agent=member("ann", "fine"), guardrail=lambda _: verdict)
    result = await Crew([task]).run().finished()
    assert result.is_failed
    assert "a guardrail returns" in str(result.error)


@virtual
async def test_a_guardrail_that_raises_fails_the_crew_with_that_error() -> None:
    def check(output: str) -> None:
        raise KeyError("its own mistake")

    result = await Crew([Task(description="Go.", agent=member("ann", "fine"), guardrail=check)]).run().finished()
    assert isinstance(result.error, KeyError)


@virtual
async def test_what_is_no_agent_is_asked_anew_with_the_reason() -> None:
    """It has no conversation to go on with."""
    given: list[str] = []

    @runnable
    async def work(ctx: RunContext, input: str) -> int:
        given.append(input)
        return len(given)

    task = Task(description="Go.", agent=work, guardrail=lambda count: count == 3 or f"{count} is not 3")
    assert (await Crew([task]).run()).output == 3
    assert [text.splitlines() for text in given] == [
        ["Go."],
        ["Go.", "", "Your answer was not accepted: 1 is not 3", "Answer again, with the whole corrected answer."],
        ["Go.", "", "Your answer was not accepted: 2 is not 3", "Answer again, with the whole corrected answer."],
    ]


@virtual
async def test_a_task_s_time_out_fails_the_crew() -> None:
    """It is the task's own: `RunTimedOut` is the cause."""
    slow = Task(description="Go.", agent=member("ann", "one two three", pace=1), timeout=1.5)
    with pytest.raises(RunFailed) as caught:
        await Crew([slow]).run()
    assert isinstance(caught.value.__cause__, RunTimedOut)
    assert now() == 1.5


@virtual
async def test_a_task_s_tools_are_its_own() -> None:
    """Those of the agent besides; the agent's other task does not see them."""
    model = Asked("Done.")

    @tool
    async def dig() -> str:
        return "dug"

    @tool
    async def look() -> str:
        return "seen"

    ann = member("ann", model, tools=[look])
    await Crew([Task(description="Dig.", agent=ann, tools=[dig]), Task(description="Look.", agent=ann)]).run()
    assert [[spec.name for spec in request.tools] for request in model.requests] == [["look", "dig"], ["look"]]


# --- under a manager ----------------------------------------------------------------------------------------


def managed(boss: Scripted, *tasks: Task, **options: Any) -> Crew:
    agents = [
        Member(Scripted("found it"), role="{field} researcher", goal="Find {topic}", name="ann"),
        Agent(Scripted("written"), name="the writer", description="Writes {well}."),
    ]
    return Crew(tasks, agents=agents, process="hierarchical", manager=boss, **options)  # pyright: ignore


@virtual
async def test_a_manager_asks_the_others_and_answers_himself() -> None:
    boss = Asked(calls("ann", input="Find it."), "They found it.")
    run = managed(boss, Task(description="Find {topic}.", name="find")).run({"topic": "rivers", "field": "water"})
    said = [(event.agent, event.task, event.text) async for event in run if isinstance(event, events.TextDelta)]
    assert said == [
        ("ann", "find", "found "),
        ("ann", "find", "it"),
        ("manager", "find", "They "),
        ("manager", "find", "found "),
        ("manager", "find", "it."),
    ]
    assert (run.outcome.output, run.text) == ("They found it.", "They found it.")  # pyright: ignore
    told = boss.requests[0].messages[0].text
    assert "- ann: water researcher. Their goal: Find rivers\n- the_writer: Writes {well}." in told
    assert [spec.name for spec in boss.requests[0].tools] == ["ann", "the_writer"]


@virtual
async def test_a_task_with_an_agent_lets_the_manager_ask_that_one_alone() -> None:
    boss = Asked(calls("ann", input="Find it."), "Done.")
    ann = member("ann", "found it")
    crew = Crew(
        [Task(description="Find.", agent=ann)], agents=[ann, member("bob", "x")], process="hierarchical", manager=boss
    )  # pyright: ignore
    assert (await crew.run()).output == "Done."
    assert [spec.name for spec in boss.requests[0].tools] == ["ann"]


@virtual
async def test_a_manager_s_answer_is_validated_as_any_other() -> None:
    """The type of the task's output, and its guardrail."""
    boss = Asked('{"title": "x"}', "no JSON", '{"title": "y", "parts": 2}')
    check = lambda plan: plan.parts > 1 or "one part is not enough"  # noqa: E731
    crew = managed(boss, Task(description="Plan {topic} in {field}.", output=Plan, guardrail=check))
    result = await crew.run({"topic": "rivers", "field": "water"})
    assert result.output == Plan("y", 2)
    assert ["not accepted" in prompt for prompt in boss.prompts] == [False, True, False]


@virtual
async def test_an_agent_of_your_own_can_be_the_manager() -> None:
    """With its own instructions and tools, besides the coworkers."""
    seen: list[str] = []

    @tool
    async def note(text: str) -> str:
        seen.append(text)
        return "noted"

    model = Asked((calls("note", text="begun"), calls("bob", input="Write.")), "Done.")
    boss = Agent(model, name="boss", instructions=lambda ctx: "I decide {nothing}.", tools=[note])
    crew = Crew([Task(description="Go.")], agents=[member("bob", "x")], process="hierarchical", manager=boss)
    assert (await crew.run()).output == "Done."
    assert seen == ["begun"]
    assert model.requests[0].messages[0].text.startswith("I decide {nothing}.\n\nYour coworkers.")


@virtual
async def test_a_coworker_that_fails_is_told_to_the_manager() -> None:
    """The crew goes on: it is the manager's business."""
    boss = Asked(calls("bob", input="Go."), "Then without.")
    endless = member("bob", calls("nothing"), max_turns=1)
    crew = Crew([Task(description="Go.")], agents=[endless], process="hierarchical", manager=boss)  # pyright: ignore
    assert (await crew.run()).output == "Then without."
    assert TurnsExhausted.__name__ in boss.requests[1].messages[-1].parts[0].content  # pyright: ignore


# --- in other things ----------------------------------------------------------------------------------------


@virtual
async def test_a_crew_is_a_tool_and_a_part_like_any_other() -> None:
    crew = Crew([Task(description="On {topic}.", agent=member("ann", "done"))], name="team", description="Does it.")
    asks = Agent(Scripted(calls("team", input="rivers"), "Told."), tools=[as_tool(crew)])
    assert (await asks.run("Go.")).text == "Told."
    assert (await Sequential(Agent(Scripted("rivers")), crew).run("Go.")).text == "done"
