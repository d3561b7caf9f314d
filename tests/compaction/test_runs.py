"""Compaction in runs of an agent, on virtual time: before a request, after a refusal, failed, stopped."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from halter import Agent, Budget, CancelMode, RunContext, RunStatus, events, runtime, tool
from halter.compaction import Compaction
from halter.compaction.plan import HEADING, HEADING_WITHIN
from halter.compaction.shape import BEGINNING
from halter.core.tokens import estimate_input, estimate_tokens
from halter.errors import ContextTooLong
from halter.hooks import Hooks
from halter.messages import Message, ToolResult, Usage
from halter.models import Fallback
from halter.models.scripted import Scripted, calls
from halter.request import Settings
from halter.testing import Answer, MemorySource
from halter.testing.memory import chat_stream, cut, eof, error_frame, error_status, stalled

from ..agents.conversations import bodies_of, check_bodies, check_history
from .asking import (
    ASKED,
    HISTORY,
    SUMMARY,
    WINDOW,
    agent,
    compactions,
    finished,
    is_for_a_summary,
    log_of,
    model,
    said_in,
    summarising,
    summary,
    too_long,
    unchanged,
)
from .talk import calling, long_talk, returned

pytestmark = pytest.mark.virtual_time


# --- before a request ---------------------------------------------------------------------------------------


async def test_a_conversation_over_the_threshold_is_summarised_before_it_is_sent() -> None:
    """Asked for a summary first, then with it; what was said stays as it was, and the answer is the agent's alone."""
    source = MemorySource(summary(usage=(2_000, 9)), chat_stream("So it is.", usage=(900, 3)))
    run = agent(source, instructions="Be brief.").run(ASKED, history=HISTORY)
    text = "".join([piece async for piece in run.text_stream()])
    result, log = await run, await log_of(run)
    assert text == result.text == "So it is."
    assert unchanged(result)
    assert len(result.messages) == len(HISTORY) + 2
    asked, sent = source.requests
    assert is_for_a_summary(asked)
    assert "question 0 " in said_in(asked)[0]
    instructions, beginning, *rest = said_in(sent)
    assert instructions == "Be brief."
    kept = [message.text for message in HISTORY[-len(rest) :]]
    assert beginning == f"{HEADING}\n\n{SUMMARY}\n\n{kept[0]}"  # two messages of one user in a row are one
    assert rest == [*kept[1:], ASKED]
    assert len(rest) >= 5, "the newest turns, as they were"
    started, done = compactions(log)
    assert isinstance(started, events.CompactionStarted)
    assert isinstance(done, events.CompactionFinished)
    assert (started.reason, started.messages, started.agent) == ("threshold", len(HISTORY) + 1, "agent")
    assert done.outcome == "ok"
    assert done.tokens_before == started.tokens > 0.8 * WINDOW
    assert done.tokens_after is not None
    assert done.tokens_after <= 0.5 * WINDOW
    assert (done.summary, done.trimmed, done.upto) == (SUMMARY, 0, len(HISTORY) - len(rest))
    assert (result.usage.input, result.usage.output) == (2_900, 12)
    (child,) = (event for event in log if isinstance(event, events.Started) and event.parent_id)
    assert (child.name, child.kind, child.model, child.input) == ("compaction", "compaction", "openai:m", None)
    assert {event.agent for event in log if isinstance(event, events.TextDelta)} == {"compaction", "agent"}


async def test_a_conversation_below_the_threshold_is_sent_as_it_is() -> None:
    source = MemorySource(chat_stream("So it is."))
    run = agent(source, Compaction(window=6_500)).run(ASKED, history=HISTORY)
    log = await log_of(run)
    assert compactions(log) == []
    assert said_in(source.requests[0]) == [*(message.text for message in HISTORY), ASKED]


@pytest.mark.parametrize("given", [{}, {"compaction": None}], ids=["by default", "never"])
async def test_without_a_session_nothing_is_compacted_that_was_not_asked_for(given: dict[str, Any]) -> None:
    """A refusal is raised, too, and without a note."""
    source = MemorySource(too_long())
    result = await Agent(model(source), **given).run(ASKED, history=long_talk(50)).finished()
    assert isinstance(result.error, ContextTooLong)
    assert not hasattr(result.error, "__notes__")
    assert len(source.requests) == 1


async def test_long_results_are_trimmed_without_asking_anybody() -> None:
    """The gentlest measure: what is enough needs no summary."""
    history = [*HISTORY[:2], Message.user("look"), *_looked("x" * 20_000), *HISTORY[2:8]]
    source = MemorySource(chat_stream("So it is."))
    run = agent(source, Compaction(window=5_000)).run(ASKED, history=history)
    result, log = await run, await log_of(run)
    assert unchanged(result, history)
    done = finished(log)
    assert (done.outcome, done.trimmed, done.summary) == ("ok", 1, None)
    assert sum(len(text) for text in said_in(source.requests[0]) if text.startswith("xxx")) <= 2_000


def _looked(text: str) -> list[Message]:
    return [calling("c1", text="I look."), returned("c1", text=text), Message.assistant("Seen.")]


class _Telling:
    """Gives these answers in turn, and tells of each how many tokens its request was; 0: nothing."""

    name = "telling"

    def __init__(self, *answers: tuple[Any, int]) -> None:
        self._answers = iter(answers)

    async def respond(self, request: Any, ctx: RunContext) -> Message:
        said, counted = next(self._answers)
        answer = await Scripted(said).respond(request, ctx)
        return msgspec.structs.replace(answer, usage=Usage(input=counted, output=9))


async def test_what_was_counted_before_a_compaction_counts_no_more() -> None:
    """Though the conversation has as many messages as before: it would be compacted before each request."""

    @tool
    async def look() -> str:
        """Looks."""
        return "Seen."

    history = [*HISTORY[:2], Message.user("look"), *_looked("x" * 20_000), *HISTORY[2:8]]
    told = _Telling((calls("look"), 7_999), (calls("look"), 0), ("So it is.", 0))
    compaction = Compaction("scripted:They looked.", window=10_000)
    run = Agent(told, tools=[look], compaction=compaction).run(ASKED, history=history)
    assert (await run).text == "So it is."
    assert finished(await log_of(run)).trimmed == 1


async def test_what_was_counted_for_one_agent_does_not_count_for_the_next() -> None:
    """Which has other instructions, and another model."""
    other = Agent("scripted:So it is.", name="other", compaction=Compaction(window=6_000))
    first = Agent(_Telling((calls("transfer_to_other"), 5_500)), handoffs=[other], compaction=None)
    run = first.run(ASKED, history=HISTORY[:6])
    assert (await run).text == "So it is."
    assert compactions(await log_of(run)) == []


async def test_another_model_may_write_the_summary_in_other_words() -> None:
    """By a template of one's own; braces in it and in the conversation are text."""
    ours, theirs = MemorySource(chat_stream("So it is.")), MemorySource(summary())
    template = "Sum {up} this: {conversation}!"
    history = [Message.user("{braces} {conversation}"), Message.assistant("{0}"), *HISTORY]
    compaction = Compaction(model(theirs, "small"), window=WINDOW, template=template)
    await agent(ours, compaction).run(ASKED, history=history)
    (asked,) = theirs.requests
    (said,) = said_in(asked)
    assert said.startswith(
        'Sum {up} this: {"by":"user","text":"{braces} {conversation}"}\n{"by":"assistant","text":"{0}"}'
    )
    assert said.endswith("!")
    assert asked.json["model"] == "small"
    assert asked.json["max_completion_tokens"] == 8_192
    assert len(ours.requests) == 1


async def test_what_does_not_fit_the_summarising_model_is_summarised_in_pieces() -> None:
    """Each with the summary of those before it; the last one's is used."""
    history = long_talk(60)
    answers = [summary(f"Summary {number}.") for number in range(30)]
    source, theirs = MemorySource(chat_stream("So it is.")), MemorySource(*answers)
    small = Fallback(model(theirs, "gpt-4"))  # 8,192 tokens
    compaction = Compaction(small, window=15_000, threshold=0.9, target=0.2)
    await agent(source, compaction).run(ASKED, history=history)
    asked = [said_in(request)[0] for request in theirs.requests]
    assert 5 <= len(asked) <= 12
    assert all('{"by":"an earlier summary","text":"Summary ' in text for text in asked[1:])
    assert all(estimate_input([Message.user(text)]) < 8_192 * 0.75 for text in asked)
    assert said_in(source.requests[0])[0].startswith(f"{HEADING}\n\nSummary {len(asked) - 1}.\n\n")
    everything = "".join(asked)
    assert all(f"question {turn} question {turn}" in everything for turn in range(40))


async def test_what_is_summarised_at_once_leaves_room_for_what_a_model_thinks() -> None:
    """All that it may answer counts in its window, besides what it is asked."""
    window = 55_000
    source = summarising(chat_stream("So it is."))
    thinks = model(source, settings=Settings(reasoning_effort="high"))
    compaction = Compaction(window=window, threshold=25_000, target=5_000)
    await Agent(thinks, compaction=compaction).run(ASKED, history=long_talk(60))
    asked = [request.json for request in source.requests if is_for_a_summary(request)]
    assert asked
    for body in asked:
        assert estimate_tokens(body["messages"][0]["content"]) + body["max_completion_tokens"] <= window


async def test_instructions_given_by_a_function_are_asked_for_once_a_turn() -> None:
    """Whatever is done between."""
    asked = itertools.count()
    source = MemorySource(too_long(), summary(), chat_stream("So it is."))
    told = agent(source, Compaction(), instructions=lambda ctx: f"Told {next(asked)} times.")
    await told.run(ASKED, history=HISTORY)
    assert said_in(source.requests[-1])[0] == "Told 0 times."


# --- without a summary --------------------------------------------------------------------------------------

REFUSAL = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","refusal":"No."},"finish_reason":"stop"}]}\n\n'

BROKEN: dict[str, Answer] = {
    "refused": error_status(400, message="no"),
    "down": error_status(500, message="boom"),
    "cut": cut(3),
    "eof": eof(3),
    "error frame": error_frame(3),
    "length": chat_stream("They talked about", finish="length"),
    "filter": chat_stream("They talked about", finish="content_filter"),
    "empty": chat_stream([]),
    "blank": chat_stream("  \n "),
    "declined": Answer(body=((0.0, REFUSAL + b"data: [DONE]\n\n"),)),
    "too long": chat_stream("word " * 9_000, every=0.0),
    "its prompt too long": too_long(),
}


@pytest.mark.scenario("D45")
@pytest.mark.parametrize("broken", BROKEN.values(), ids=list(BROKEN))
async def test_a_summary_that_is_none_is_never_used(broken: Answer) -> None:
    """The request goes out as it would have without; the conversation is as it was; the event says why."""
    source, theirs = MemorySource(chat_stream("So it is.")), MemorySource(broken, repeat=True)
    run = agent(source, Compaction(model(theirs), window=WINDOW)).run(ASKED, history=HISTORY)
    result, log = await run, await log_of(run)
    assert result.text == "So it is."
    assert unchanged(result)
    assert said_in(source.requests[0]) == [*(message.text for message in HISTORY), ASKED]
    done = finished(log)
    assert (done.outcome, done.tokens_after, done.summary, done.upto) == ("failed", None, None, None)
    assert done.error is not None
    assert done.error.message


async def test_what_has_failed_is_not_tried_again_before_each_request() -> None:
    """A provider that is down for summaries is left alone until the conversation has grown."""

    @tool
    async def look() -> str:
        """Looks."""
        return "Seen."

    theirs = MemorySource(error_status(400), repeat=True)
    busy = Agent(_Counting(4), tools=[look], compaction=Compaction(model(theirs), window=WINDOW))
    result = await busy.run(ASKED, history=HISTORY)
    assert result.text == "Done."
    assert len(theirs.requests) == 1


async def test_a_summary_that_is_stopped_by_itself_stops_nothing_else() -> None:
    """A child's stop does not stop its parent: the run goes on as it was."""
    source, theirs = MemorySource(chat_stream("So it is.")), MemorySource(stalled())
    run = agent(source, Compaction(model(theirs), window=WINDOW)).run(ASKED, history=HISTORY)
    log: list[events.Event] = []
    async for event in run.events():
        log.append(event)
        if isinstance(event, events.TextDelta) and event.run_id != run.id:
            await runtime().cancel(event.run_id)
    assert finished(log).outcome == "cancelled"
    assert (await run).text == "So it is."
    assert theirs.open_requests == []


# --- after a refusal ----------------------------------------------------------------------------------------


async def test_a_prompt_that_was_refused_as_too_long_is_compacted_and_asked_again() -> None:
    """Though nobody knows the model's window."""
    source = MemorySource(too_long(), summary(), chat_stream("So it is."))
    run = agent(source, Compaction()).run(ASKED, history=HISTORY)
    result, log = await run, await log_of(run)
    assert result.text == "So it is."
    assert unchanged(result)
    refused, asked, sent = source.requests
    assert len(said_in(refused)) == len(HISTORY) + 1
    assert is_for_a_summary(asked)
    assert said_in(sent)[0].startswith(HEADING)
    assert sum(map(len, said_in(sent))) < 0.6 * sum(map(len, said_in(refused)))
    started = compactions(log)[0]
    assert isinstance(started, events.CompactionStarted)
    assert (started.reason, finished(log).outcome) == ("overflow", "ok")
    assert [event.message.text for event in log if isinstance(event, events.MessageFinished) and not event.parent_id]
    assert len(result.messages) == len(HISTORY) + 2


async def test_a_frame_after_200_is_a_refusal_too() -> None:
    frame = b'data: {"error": {"message": "too long", "code": "context_length_exceeded"}}\n\n'
    source = MemorySource(Answer(body=((0.0, frame),)), summary(), chat_stream("So it is."))
    result = await agent(source, Compaction()).run(ASKED, history=HISTORY)
    assert result.text == "So it is."


async def test_nothing_is_asked_again_after_something_was_shown() -> None:
    """Two answers must not be glued together."""
    error = b'data: {"error": {"message": "too long", "code": "context_length_exceeded"}}\n\n'
    words = chat_stream("So it ")
    source = MemorySource(Answer(body=(*words.body[:-1], (0.0, error))))
    result = await agent(source, Compaction()).run(ASKED, history=HISTORY).finished()
    assert isinstance(result.error, ContextTooLong)
    assert result.text == "So it "
    assert len(source.requests) == 1


async def test_a_prompt_that_is_refused_again_is_not_asked_a_third_time() -> None:
    source = MemorySource(too_long(), summary(), too_long())
    result = await agent(source, Compaction()).run(ASKED, history=HISTORY).finished()
    assert isinstance(result.error, ContextTooLong)
    assert len(source.requests) == 3


async def test_a_refusal_without_a_summary_is_raised_and_says_why() -> None:
    source, theirs = MemorySource(too_long()), MemorySource(error_status(400, message="out of order"))
    run = agent(source, Compaction(model(theirs))).run(ASKED, history=HISTORY)
    result, log = await run.finished(), await log_of(run)
    assert isinstance(result.error, ContextTooLong)
    (note,) = result.error.__notes__
    assert "was not compacted" in note
    assert "out of order" in note
    assert finished(log).outcome == "failed"
    assert unchanged(result)


async def test_a_refusal_of_what_cannot_be_shorter_is_raised_and_says_so() -> None:
    """One question, by itself too long."""
    source = MemorySource(too_long())
    run = agent(source, Compaction()).run("What? " * 5_000)
    result, log = await run.finished(), await log_of(run)
    assert isinstance(result.error, ContextTooLong)
    assert "nothing in it that could be left out" in result.error.__notes__[0]
    assert compactions(log) == []


async def test_what_a_refusal_tells_of_the_window_counts_from_then_on() -> None:
    """The next compaction comes before a refusal."""

    @tool
    async def look() -> str:
        """Looks."""
        return "sand " * 1_500

    limited = too_long("prompt is too long: 4700 tokens > 4500 maximum")
    source = summarising(limited, _calling(), _calling(), chat_stream("Done."))
    run = agent(source, Compaction(), tools=[look]).run(ASKED, history=HISTORY)
    result, log = await run, await log_of(run)
    assert result.text == "Done."
    reasons = [event.reason for event in log if isinstance(event, events.CompactionStarted)]
    assert reasons == ["overflow", "threshold"]


def _calling() -> Answer:
    call = b'{"index":0,"id":"call_%d","type":"function","function":{"name":"look","arguments":"{}"}}' % next(_NUMBERS)
    frame = b'data: {"choices":[{"index":0,"delta":{"tool_calls":[%s]},"finish_reason":"tool_calls"}]}\n\n' % call
    return Answer(body=((0.0, frame + b"data: [DONE]\n\n"),))


_NUMBERS = itertools.count()


# --- a long loop of tools -----------------------------------------------------------------------------------


@pytest.mark.parametrize("steered", [False, True])
async def test_a_long_loop_of_tools_stays_within_the_window(steered: bool) -> None:
    """100 steps of 1,000 characters in a window of 4,000 tokens, without a session; what was asked for stays, also
    behind what was said since."""
    window, steps = 4_000, 100
    sizes: list[int] = []

    class Watching(Hooks):
        def before_model(self, ctx: RunContext, request: Any) -> None:
            sizes.append(estimate_input(request.messages, request.tools))
            assert sum(message.text == ASKED for message in request.messages) == 1
            if steered and len(sizes) == steps // 4:
                ctx.run.send("Look for crabs, too.")
            check_history([message for message in request.messages if message.role != "system"])

    @tool
    async def look() -> str:
        """Looks."""
        return "sand and stones " * 60

    theirs = MemorySource(summary(), repeat=True)
    busy = Agent(
        _Counting(steps),
        tools=[look],
        max_turns=steps + 1,
        hooks=Watching(),
        compaction=Compaction(model(theirs), window=window),
    )
    run = busy.run(ASKED)
    result, log = await run, await log_of(run)
    assert result.text == "Done."
    assert len(result.messages) == 2 * steps + 2 + steered
    assert max(sizes) <= window
    assert len(sizes) == steps + 1
    done = [event for event in log if isinstance(event, events.CompactionFinished)]
    assert 5 <= len(done) <= 40
    assert {event.outcome for event in done} == {"ok"}
    check_history(result.messages)
    check_bodies(bodies_of(result.messages), steps)
    assert all(isinstance(part, ToolResult) and len(part.content) > 900 for part in result.messages[2].parts)
    assert not any(message.text.startswith(BEGINNING) for message in result.messages)
    assert any(event.summary for event in done)


class _Counting:
    """Calls a tool so many times: a scripted model sees from the conversation which answer is due."""

    name = "counting"

    def __init__(self, steps: int) -> None:
        self._left = steps

    async def respond(self, request: Any, ctx: RunContext) -> Message:
        self._left -= 1
        return await Scripted(calls("look") if self._left >= 0 else "Done.").respond(request, ctx)


async def test_the_request_behind_a_summary_is_the_user_s_own() -> None:
    """A turn of many steps: the summary says that it is of what was done so far."""
    history = [Message.user("Dig.")]
    for number in range(20):
        history += [calling(f"d{number}"), returned(f"d{number}", text="sand " * 150)]
    source = MemorySource(too_long(), summary(), chat_stream("So it is."))
    result = await agent(source, Compaction()).run(ASKED, history=history)
    assert result.text == "So it is."
    sent = said_in(source.requests[-1])
    assert sent[0].startswith((HEADING, HEADING_WITHIN))
    assert ASKED in sent


# --- budgets ------------------------------------------------------------------------------------------------


async def test_a_summary_counts_in_the_budget() -> None:
    """One call is left for two requests: the run is stopped before the second."""
    source = MemorySource(summary(), chat_stream("So it is."))
    result = await agent(source).run(ASKED, history=HISTORY, budget=Budget(model_calls=1)).finished()
    assert result.status is RunStatus.CANCELLED
    assert result.cancellation is not None
    assert result.cancellation.reason == "budget_calls"
    assert len(source.requests) == 1


# --- stopped ------------------------------------------------------------------------------------------------


async def test_a_stop_after_the_turn_lets_a_summary_end() -> None:
    """It is part of the turn that may end."""
    source = MemorySource(summary(every=0.1), chat_stream("So it is.", every=0.1))
    run = agent(source).run(ASKED, history=HISTORY)
    async for event in run.events():
        if isinstance(event, events.TextDelta):
            run.cancel(mode=CancelMode.AFTER_TURN)
    result = await run.finished()
    assert result.text == "So it is."
    assert unchanged(result)
