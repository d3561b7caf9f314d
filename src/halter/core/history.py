"""What becomes of a conversation that was cut off: sealed where it stopped, and told to the model in a form that every
provider accepts.

1. Each call has exactly one result, directly behind its answer, and it is truthful. 2. That an answer was stopped is
data (`interrupted`); the model is told by a marker, put before what the user says next. 3. The same conversation gives
the same request, without clock times: a provider's prompt cache stays valid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import msgspec

from halter.messages import PAUSED, Message, Part, Text, ToolCall, ToolResult

NOT_RUN = "This call did not run: the turn was stopped before it began."
CUT_OFF = (
    "This call did not run: your answer was cut off before its arguments were complete. "
    "Call again if it is still needed, with shorter arguments if your answer was too long."
)
MAY_HAVE_RUN = "This call was stopped while it ran: part of it may have taken effect."
LOST = (
    "This call was lost with the process that ran it: it may have taken effect, in part or as a whole, or not at all."
)
UNFINISHED = "This call has no result yet: it was still running when the conversation was read."
MARKER = "[The previous answer was stopped before it was complete.]"


class Paired(NamedTuple):
    """A message, and the ids of those of its calls whose results are the next message."""

    message: Message
    answered: AbstractSet[str] = frozenset()


def calls_in(message: Message) -> Iterable[str]:
    """The ids of its tool calls."""
    return (call.id for call in message.tool_calls)


def paired(messages: Sequence[Message], calls_of: Callable[[Message], Iterable[str]] = calls_in) -> list[Paired]:
    """The conversation with the results of an answer's calls directly behind it, in one message, wherever they stood.

    Anything else is refused with 400: a call without its result, a result before its call or without one, or a second
    one. An id may be used again: a result is that of the last call before it. `calls_of`: the ids of all calls in an
    answer, where it has others than tool calls.
    """
    answers: list[tuple[Message, list[ToolResult]]] = []
    waiting: dict[str, list[list[ToolResult]]] = {}  # for each call without a result, where that belongs
    for message in messages:
        results: list[ToolResult] = []
        answers.append((message, results))
        if message.role == "assistant" and (calls := tuple(calls_of(message))):
            waiting |= {id: [results] * number for id, number in Counter(calls).items()}
        elif message.role == "tool":
            for result in _results_in(message):
                if waiting.get(result.call_id):
                    waiting[result.call_id].pop().append(result)
    found: list[Paired] = []
    for message, results in answers:
        if message.role == "tool" or results or not message.parts:
            found += _with_results(message, results)
        else:
            found.append(Paired(message))  # most messages of a long conversation
    return found


def _results_in(message: Message) -> Iterator[ToolResult]:
    return (part for part in message.parts if isinstance(part, ToolResult))


def _with_results(message: Message, results: list[ToolResult]) -> Iterator[Paired]:
    if message.role == "tool":  # its results stand behind their calls
        rest = tuple(part for part in message.parts if not isinstance(part, ToolResult))
        if rest:
            yield Paired(Message("tool", rest))
        return
    if message.parts:  # else it says only that an answer was stopped before it had begun
        yield Paired(message, {result.call_id for result in results})
    if results:
        yield Paired(Message("tool", tuple(results)))


# --- sealing ------------------------------------------------------------------------------------------------


def seal(messages: Sequence[Message], *, was_stopped: bool = False) -> Message | None:
    """What a conversation that ends here lacks: the results of its last answer's calls, which never ran; of a turn
    that was stopped before anything of its answer, or of the rest of it, had come, the answer, which says nothing but
    that."""
    if not messages:
        return None
    last = messages[-1]
    if last.role == "assistant" and last.tool_calls:
        return Message("tool", tuple(not_run(call) for call in last.tool_calls), interrupted=True)
    if was_stopped and not _is_end(last):
        return Message("assistant", (), interrupted=True)
    return None


def _is_end(message: Message) -> bool:
    """Whether nobody misses an answer behind it: it is a whole one, or says itself that it is none."""
    return message.interrupted or (message.role == "assistant" and message.finish_reason != PAUSED)


def seal_lost(messages: Sequence[Message]) -> tuple[int, tuple[Message, ...]]:
    """How a turn ends whose process was lost: from the first number on, its messages are the second.

    What it had called and has no result may have run; an answer that never came is one that was stopped.
    """
    if not messages:
        return 0, ()
    at, given, calls = _last_step(messages)
    if sum(isinstance(part, ToolResult) for part in given) < len(calls):
        return at, (_with_all_results(given, calls, LOST, interrupted=True),)
    if _is_end(messages[-1]):
        return len(messages), ()
    return len(messages), (Message("assistant", (), interrupted=True),)


def seal_unfinished(messages: Sequence[Message]) -> tuple[int, tuple[Message, ...]]:
    """How a turn that is under way is shown: from the first number on, its messages are the second.

    A call that still runs, or waits, has a result that says so.
    """
    at, given, calls = _last_step(messages)
    if sum(isinstance(part, ToolResult) for part in given) >= len(calls):
        return len(messages), ()
    return at, (_with_all_results(given, calls, UNFINISHED, interrupted=False),)


def _last_step(messages: Sequence[Message]) -> tuple[int, tuple[Part, ...], tuple[ToolCall, ...]]:
    """Where the results of the last answer's calls stand, or would stand; what is there; and those calls."""
    at = len(messages)
    given: tuple[Part, ...] = ()
    if messages and messages[-1].role == "tool":
        at, given = at - 1, messages[-1].parts
    asked = messages[at - 1] if at else None
    return at, given, tuple(asked.tool_calls) if asked is not None and asked.role == "assistant" else ()


def _with_all_results(given: Iterable[Part], calls: Sequence[ToolCall], missing: str, *, interrupted: bool) -> Message:
    """The results that there are, and for each other call one that says what is `missing`."""
    given = tuple(given)
    results = (part for part in given if isinstance(part, ToolResult))
    rest = (part for part in given if not isinstance(part, ToolResult))
    return Message("tool", (*rest, *_in_their_order(calls, results, missing)), interrupted=interrupted)


def _in_their_order(calls: Sequence[ToolCall], results: Iterable[ToolResult], missing: str) -> Iterator[ToolResult]:
    """A result for each call, in their order: some providers know by it which is whose. Ids may be equal."""
    left = list(results)
    for call in calls:
        given = next((result for result in left if result.call_id == call.id), None)
        if given is not None:
            left.remove(given)
        yield _missing(call, missing) if given is None else given


def _missing(call: ToolCall, why: str) -> ToolResult:
    return ToolResult(call.id, CUT_OFF if call.incomplete else why, is_error=True)


def not_run(call: ToolCall) -> ToolResult:
    """The result of a call that never began."""
    return _missing(call, NOT_RUN)


# --- telling the model --------------------------------------------------------------------------------------


def for_model(messages: Sequence[Message], *, marker: str = MARKER) -> tuple[Message, ...]:
    """The conversation as any provider accepts it, with each stop told to the model; deterministic and idempotent."""
    return tuple(_repaired(list(_marked(messages, marker))))


def _marked(messages: Sequence[Message], marker: str) -> Iterator[Message]:
    """What the user says after an answer that was cut off begins with the marker."""
    told = Text(f"{marker}\n\n")
    was_cut = False
    for message in messages:
        was_cut = was_cut or message.interrupted
        if was_cut and message.role == "user":
            was_cut = False
            if message.parts[:1] != (told,):
                message = msgspec.structs.replace(message, parts=(told, *message.parts))
        yield message


def _repaired(messages: Sequence[Message]) -> Iterator[Message]:
    """With a result for each call."""
    pairs = iter(paired(messages))
    for message, answered in pairs:
        yield message
        if message.role != "assistant" or not (answered or message.tool_calls):
            continue
        given = next(pairs).message.parts if answered else ()
        left = Counter(part.call_id for part in given if isinstance(part, ToolResult))
        missing: list[ToolResult] = []
        for call in message.tool_calls:
            left[call.id] -= 1
            if left[call.id] < 0:  # ids may be equal: each call has a result of its own
                missing.append(not_run(call))
        if given or missing:
            yield Message("tool", (*given, *missing))
