"""Turns with tools: what the model is asked, structured answers, steering, handoffs, agents as tools, approvals."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import msgspec
import pytest

from halter import Agent, CancelMode, Run, RunContext, RunFailed, RunResult, events, tool
from halter.core.call import RUN_STOPPED
from halter.core.history import MAY_HAVE_RUN, NOT_RUN
from halter.errors import ConfigurationError, OutputInvalid, UsageError
from halter.hooks import Hooks
from halter.messages import Message, ToolCall, ToolResult
from halter.models.scripted import Scripted, calls
from halter.request import ModelRequest, OnlyTool
from halter.tools import ToolContext
from halter.turns import ONE_HANDOFF

from .conversations import bodies_of, check_bodies
from .loops import in_real_time

virtual = pytest.mark.virtual_time


class Place(msgspec.Struct):
    city: str
    people: int


class Asked:
    """A scripted model that remembers what it was asked."""

    def __init__(self, *answers: Any, pace: float = 0.0) -> None:
        self._script = Scripted(*answers, pace=pace)
        self.requests: list[ModelRequest] = []

    @property
    def name(self) -> str:
        return "asked"

    async def respond(self, request: ModelRequest, ctx: RunContext) -> Message:
        self.requests.append(request)
        return await self._script.respond(request, ctx)


async def look(city: str = "Kyoto") -> str:
    await asyncio.sleep(1)
    return f"sunny in {city}"


def results_in(result: RunResult[Any]) -> list[str]:
    return [part.content for message in result.messages for part in message.parts if isinstance(part, ToolResult)]


# --- the request --------------------------------------------------------------------------------------------


@virtual
async def test_results_go_back_in_one_message_in_the_order_of_the_calls() -> None:
    """However they ended."""

    async def wait(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return str(seconds)

    script = Scripted(("I look. ", calls("wait", seconds=3), calls("wait", seconds=1)), "done")
    result = await Agent(script, tools=[wait]).run("hi")
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "assistant"]
    assert results_in(result) == ["3.0", "1.0"]
    check_bodies(bodies_of(result.messages), 2)


@virtual
async def test_a_forced_choice_holds_until_a_tool_was_called() -> None:
    """Else the agent could never answer; a new run begins with it again."""
    model = Asked(calls("look"), "done")
    agent = Agent(model, tools=[look], tool_choice=OnlyTool("look"))
    await agent.run("hi")
    await agent.run("hi")
    assert [request.tool_choice for request in model.requests] == [OnlyTool("look"), None] * 2


@virtual
async def test_instructions_are_asked_for_before_each_turn() -> None:
    """Plain or async, with the run's context; they are not kept in the conversation."""
    for is_async in (False, True):
        model = Asked(calls("look"), "done")

        def told(ctx: RunContext) -> str:
            return f"{ctx.context}, message {len(ctx.messages)}"

        async def told_async(ctx: RunContext) -> str:
            await asyncio.sleep(1)
            return told(ctx)

        agent = Agent(model, instructions=told_async if is_async else told, tools=[look])
        result = await agent.run("hi", context="ada")
        assert [request.messages[0].text for request in model.requests] == ["ada, message 1", "ada, message 3"]
        assert [message.role for message in result.messages] == ["user", "assistant", "tool", "assistant"]


@pytest.mark.scenario("D39", "E57")
@virtual
async def test_running_an_agent_changes_nothing_in_it_and_a_stopped_one_runs_like_a_fresh_one() -> None:
    """Twenty runs at once, some of them stopped, then one more: the same turns, the same requests."""
    model = Asked(("so ", calls("look")), "done")
    agent = Agent(model, tools=[look], handoffs=[Agent("scripted:x", name="other")], tool_choice="auto")
    before = {name: repr(value) for name, value in vars(agent).items()}
    fresh = await agent.run("hi")
    asked_before = list(model.requests)
    runs = [agent.run("hi").start() for _ in range(20)]
    await asyncio.sleep(0.5)
    for run in runs[::2]:
        run.cancel()
    results = [await run.finished() for run in runs]
    assert [result.is_cancelled for result in results] == [True, False] * 10
    model.requests.clear()
    again = await agent.run("hi")
    assert {name: repr(value) for name, value in vars(agent).items()} == before

    def shape(result: RunResult[Any]) -> list[Any]:
        return [(message.role, message.text, len(message.tool_calls)) for message in result.messages]

    assert shape(again) == shape(fresh) == shape(results[1])
    assert [len(request.messages) for request in model.requests] == [len(request.messages) for request in asked_before]


@virtual
async def test_two_tools_of_one_name_and_what_is_no_tool_are_refused() -> None:
    """Where the agent is made; groups of tools are taken apart."""
    with pytest.raises(ConfigurationError, match="two tools are called 'look'"):
        Agent("scripted:x", tools=[look, look])
    for wrong in (7, str, "look", object()):
        with pytest.raises(ConfigurationError):
            Agent("scripted:x", tools=[wrong])
    with pytest.raises(ConfigurationError, match="a handoff is to an Agent"):
        Agent("scripted:x", handoffs=[look])  # type: ignore[list-item]
    assert list(Agent("scripted:x", tools=[(look,), [tool(look, name="see")]]).toolbox.tools) == ["look", "see"]


# --- structured answers -------------------------------------------------------------------------------------


@virtual
async def test_tools_and_repairs_go_together_on_the_way_to_a_structured_answer() -> None:
    """A call, an answer that does not fit, the complaint, the corrected one."""
    script = Scripted(calls("look"), '{"city": "Kyoto"}', '{"city": "Kyoto", "people": 1463723}')
    result = await Agent(script, tools=[look], output=Place).run("hi")
    assert result.output == Place("Kyoto", 1_463_723)
    assert [message.role for message in result.messages] == [
        "user", "assistant", "tool", "assistant", "user", "assistant",
    ]  # fmt: skip


@virtual
async def test_an_answer_that_never_fits_fails_the_run() -> None:
    """After the repairs that are allowed."""
    with pytest.raises(RunFailed) as caught:
        await Agent(Scripted(calls("look"), "no"), tools=[look], output=Place, output_retries=2).run("hi")
    assert isinstance(caught.value.__cause__, OutputInvalid)
    assert caught.value.result is not None
    assert [m.role for m in caught.value.result.messages].count("assistant") == 4


# --- steering -----------------------------------------------------------------------------------------------


@virtual
async def test_what_is_sent_during_a_tool_is_heard_after_its_result() -> None:
    """Behind the results, in the next request; nothing stands between a call and its result."""
    model = Asked(calls("look"), "done")
    run = Agent(model, tools=[look]).run("hi").start()
    await asyncio.sleep(0.5)
    assert run.send("and hurry")
    result = await run
    assert [message.role for message in model.requests[1].messages] == ["user", "assistant", "tool", "user"]
    assert model.requests[1].messages[-1].text == "and hurry"
    assert result.undelivered == ()


@virtual
async def test_what_is_sent_too_late_is_told_and_not_lost() -> None:
    """A stop came first: it is `undelivered`."""
    run = Agent(Scripted(calls("look"), "done"), tools=[look]).run("hi").start()
    await asyncio.sleep(0.5)
    assert run.send("and hurry")
    run.cancel()
    result = await run.finished()
    assert [message.text for message in result.undelivered] == ["and hurry"]
    assert run.send("still there?") is False


# --- handoffs -----------------------------------------------------------------------------------------------


def agent(name: str, *script: Any, **options: Any) -> Agent[Any]:
    return Agent(Scripted(*script), name=name, **options)


@pytest.mark.scenario("E54")
@virtual
async def test_after_a_handoff_the_same_run_goes_on_under_the_other_agents_name() -> None:
    """Its model, tools, instructions and output type; one run, one conversation, one terminal event."""
    model = Asked("unused", calls("look"), '{"city": "Kyoto", "people": 1}')
    target = Agent(model, name="clerk", instructions="You are the clerk.", tools=[look], output=Place)
    run = agent("front", (calls("transfer_to_clerk")), handoffs=[target]).run("hi")
    result = await run
    assert result.output == Place("Kyoto", 1)
    assert model.requests[0].messages[0].text == "You are the clerk."
    log = [event async for event in run.events()]
    assert {event.run_id for event in log} == {run.id}
    (handoff,) = [event for event in log if isinstance(event, events.Handoff)]
    assert (handoff.from_agent, handoff.to_agent) == ("front", "clerk")
    for event in log:
        if isinstance(event, events.AgentEvent) and event is not handoff:
            assert event.agent == ("front" if event.seq < handoff.seq else "clerk")


@virtual
async def test_of_two_handoffs_in_one_answer_the_first_counts() -> None:
    """The other is an error that says why; another tool in the same answer has its result as well."""
    front = agent(
        "front",
        (calls("transfer_to_b"), calls("look"), calls("transfer_to_c")),
        tools=[look],
        handoffs=[agent("b", "x", "I am b"), agent("c", "x", "I am c")],
    )
    result = await front.run("hi")
    assert result.text == "I am b"
    assert results_in(result) == ["b goes on from here.", "sunny in Kyoto", ONE_HANDOFF]


@virtual
@pytest.mark.parametrize("arguments", ['{"to": "x"}', '{"a'])
async def test_a_handoff_that_goes_wrong_hands_nothing_over(arguments: str) -> None:
    """Its call is an error, and the agent goes on itself."""
    script = (ToolCall("", "transfer_to_b", arguments), "I stay")
    result = await agent("front", *script, handoffs=[agent("b", "x", "I am b")]).run("hi")
    assert result.text == "I stay"


@virtual
@pytest.mark.parametrize("text", ["not allowed", ""])
async def test_a_handoff_that_a_hook_has_answered_hands_nothing_over(text: str) -> None:
    """Nothing has run: the agent goes on, and so the next handoff of that answer counts."""

    class Guard(Hooks):
        def before_tool(self, ctx: ToolContext, call: ToolCall) -> str | None:
            return text if call.name == "transfer_to_b" else None

    others = [agent("b", "x", "I am b"), agent("c", "x", "I am c")]
    front = agent("front", calls("transfer_to_b"), "I stay", handoffs=others, hooks=Guard())
    assert (await front.run("hi")).text == "I stay"
    both = agent("front", (calls("transfer_to_b"), calls("transfer_to_c")), handoffs=others, hooks=Guard())
    assert (await both.run("hi")).text == "I am c"


@virtual
async def test_a_call_that_a_hook_turns_into_a_handoff_hands_over() -> None:
    """What the model reads is what happens."""

    class Redirect(Hooks):
        def before_tool(self, ctx: ToolContext, call: ToolCall) -> ToolCall | None:
            return ToolCall(call.id, "transfer_to_b", "{}") if call.name == "look" else None

    front = agent(
        "front", calls("look"), "I stay", tools=[look], handoffs=[agent("b", "x", "I am b")], hooks=Redirect()
    )
    result = await front.run("hi")
    assert (results_in(result), result.text) == (["b goes on from here."], "I am b")


@virtual
async def test_a_stop_while_a_handoff_is_made_is_a_stop_of_the_run() -> None:
    """The transfer has its result, or never ran; the other agent's model is not asked."""
    model = Asked("x", "I am b")
    front = agent("front", (calls("transfer_to_b"), calls("look")), tools=[look], handoffs=[Agent(model, name="b")])
    run = front.run("hi").start()
    await asyncio.sleep(0.5)
    run.cancel()
    result = await run.finished()
    assert result.is_cancelled
    assert not model.requests
    assert results_in(result)[0] == "b goes on from here."


# --- agents as tools ----------------------------------------------------------------------------------------


@pytest.mark.scenario("C34", "E54", "J89")
@virtual
async def test_a_stop_reaches_an_agent_in_an_agent_in_an_agent_deepest_first() -> None:
    """Each is told once, each ends once; every run's events are in the root's log, with its own agent's name."""
    inner = Agent(Scripted("one two three", pace=1), name="inner")
    middle = agent("middle", calls("inner", input="go"), tools=[inner])
    outer = agent("outer", calls("middle", input="go"), tools=[middle])
    run = outer.run("hi").start()
    await asyncio.sleep(1.5)
    run.cancel("enough")
    await run.finished()
    assert asyncio.get_running_loop().time() == 1.5
    log = [event async for event in run.events()]
    names = {event.run_id: event.name for event in log if isinstance(event, events.Started)}
    ended = [event for event in log if isinstance(event, events.Cancelled)]
    assert [names[event.run_id] for event in ended] == ["inner", "middle", "outer"]
    assert [event.reason for event in ended] == ["parent_cancelled", "parent_cancelled", "user_stop"]
    assert {event.agent for event in log if isinstance(event, events.TextDelta)} == {"inner"}


@pytest.mark.scenario("C35")
@virtual
async def test_the_stop_of_an_agent_that_is_a_tool_does_not_stop_its_parent() -> None:
    """The call is an error, and the parent's model goes on."""
    inner = Agent(Scripted("one two three", pace=1), name="inner")
    run = agent("outer", calls("inner", input="go"), "without it", tools=[inner]).run("hi").start()
    started: list[str] = []
    async for event in run.events():
        if isinstance(event, events.Started) and event.parent_id:
            started.append(event.run_id)
        if isinstance(event, events.TextDelta) and event.agent == "inner":
            break
    assert Run.observing(next(iter(run._execution.children.values()))).cancel("only this")
    result = await run
    assert result.text == "without it"
    assert results_in(result)[0] == RUN_STOPPED


@pytest.mark.scenario("C35")
@virtual
async def test_a_child_that_a_cut_call_starts_is_born_cancelled() -> None:
    """In its clean-up: no request is made."""
    model = Asked("never")
    born: list[Any] = []

    async def work(ctx: ToolContext) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            child = ctx.start(Agent(model), "go")
            born.append(await child.finished())

    run = Agent(Scripted(calls("work")), tools=[work]).run("hi").start()
    await asyncio.sleep(1)
    run.cancel()
    await run.finished()
    assert [result.is_cancelled for result in born] == [True]
    assert not model.requests


# --- approvals ----------------------------------------------------------------------------------------------


def wary(ran: list[str], **options: Any) -> Agent[Any]:
    @tool(approval="always", **options)
    async def delete(path: str) -> str:
        ran.append(path)
        return "deleted"

    return Agent(Scripted(calls("delete", path="/tmp/x"), "done"), tools=[delete])


async def question_of(run: Run[Any]) -> events.InputRequested:
    async for event in run.events():
        if isinstance(event, events.InputRequested):
            return event
    raise AssertionError("nothing was asked")


@virtual
@pytest.mark.parametrize(("answer", "does_run"), [(True, True), ("yes", True), (False, False), ("no", False)])
async def test_a_call_runs_when_somebody_says_yes_and_only_then(answer: Any, does_run: bool) -> None:
    """The question names the tool and its arguments; a no is told to the model, and the run goes on."""
    ran: list[str] = []
    run = wary(ran).run("hi")
    run.start()
    asked = await question_of(run)
    assert (asked.kind, asked.options) == ("approval", ("yes", "no"))
    assert asked.prompt == 'May delete be called with {"path":"/tmp/x"}?'
    assert run.status == "waiting"
    for wrong in ("maybe", 1.5, None):
        with pytest.raises(UsageError):
            run.answer(asked.request_id, wrong)
    run.answer(asked.request_id, answer)
    result = await run
    assert ran == (["/tmp/x"] if does_run else [])
    assert results_in(result) == ["deleted" if does_run else "This call was not allowed."]
    outcomes = [event.outcome async for event in run.events() if isinstance(event, events.ToolFinished)]
    assert outcomes == ["ok" if does_run else "denied"]


@pytest.mark.scenario("C38")
@virtual
async def test_where_nobody_answers_the_time_out_is_a_no() -> None:
    """Headless: an event, and never a yes."""
    ran: list[str] = []
    run = wary(ran, approval_timeout=60).run("hi")
    result = await run
    assert asyncio.get_running_loop().time() == 60
    assert not ran
    assert results_in(result) == ["This call was not allowed. Nobody answered in time."]
    received = [event.outcome async for event in run.events() if isinstance(event, events.InputReceived)]
    assert received == ["expired"]


@pytest.mark.scenario("C36")
@pytest.mark.parametrize("mode", CancelMode)
@virtual
async def test_a_stop_takes_the_question_back_and_the_tool_never_runs(mode: CancelMode) -> None:
    """Resolved as cancelled, also by a stop after the turn: what had not begun when it was asked for does not begin."""
    ran: list[str] = []
    run = wary(ran, approval_timeout=60).run("hi")
    run.start()
    asked = await question_of(run)
    run.cancel(mode=mode)
    result = await run.finished()
    assert not ran
    assert result.is_cancelled
    received = [event.outcome async for event in run.events() if isinstance(event, events.InputReceived)]
    assert received == ["cancelled"]
    assert results_in(result) == [NOT_RUN]
    with pytest.raises(UsageError):
        run.answer(asked.request_id, True)


@in_real_time
async def test_an_approval_is_answered_from_another_thread_on_the_roots_handle() -> None:
    """The question is of an agent that is a tool; whoever holds the root answers it."""
    ran: list[str] = []
    inner = wary(ran)
    outer = Agent(Scripted(calls("agent", input="go"), "done"), name="outer", tools=[inner])
    run = outer.run("hi")
    run.start()
    asked = await question_of(run)
    assert asked.run_id != run.id
    answering = threading.Thread(target=run.answer, args=(asked.request_id, True))
    answering.start()
    await run
    answering.join()
    assert ran == ["/tmp/x"]


@pytest.mark.scenario("C34")
@virtual
async def test_an_agent_as_a_tool_that_is_drained_is_told_as_any_call_that_was_cut() -> None:
    """Its model stops, its own tool finishes; no run's id reaches the outer model."""
    done: list[str] = []

    @tool
    async def work() -> str:
        await asyncio.sleep(2)
        done.append("work")
        return "worked"

    inner = Agent(Scripted(calls("work"), "done"), tools=[work], name="inner")
    run = Agent(Scripted(calls("inner", input="go"), "done"), tools=[inner]).run("go").start()
    await asyncio.sleep(1)
    run.cancel(mode=CancelMode.DRAIN_TOOLS)
    result = await run.finished()
    assert done == ["work"]
    [told] = [part.content for part in result.messages[-1].parts if isinstance(part, ToolResult)]
    assert told == MAY_HAVE_RUN
