"""What of a conversation is trimmed, and where it is cut: decided before anything is done. Pure.

1. An answer and the results of its calls are never parted. 2. What is kept is kept as it is, signatures and all; only
results of tools are trimmed. 3. Instructions in the conversation stay. 4. The gentlest measure that is enough: trimming
before a summary, turns that are long past before steps of the newest one. 5. A cut inside a turn keeps what the user
said in it, and one inside this run all that was said to it. 6. What was decided once is not decided again: a plan for
what a plan has left does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

import msgspec

from halter.compaction.shape import BEGINNING, INSTRUCTIONS, Shape, is_said, is_summary
from halter.core.history import MARKER
from halter.messages import Message, ToolResult
from halter.tools.bounds import head_and_tail

HEADING: Final = f"{BEGINNING}]"
HEADING_WITHIN: Final = f"{BEGINNING} It includes what has been done so far about the request behind it.]"
SUMMARY: Final = 1_500  # tokens: about as long will a summary be, for deciding; or a quarter of what it is of
FRAME: Final = 50  # tokens of what stands around it
WORTHWHILE: Final = 0.9  # of the size at most afterwards: less is not worth losing the provider's prompt cache
SPARING: Final = 1.5  # of the goal at most: then trimming is enough where the newest turns are what is large
_LINE: Final = 60  # characters: more than the line that says how much of a result was left out


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """For the first `upto` messages: `before`, then a summary of `summarised` (if that is anything), then `after`.

    `replaced`: tokens for which the summary stands. `heading`: what stands before it. `was_stopped`: whether what it
    stands for ends with an answer that was stopped. `trimmed`: how many results are cut short in `after`. `tokens`:
    about as large is the request then.
    """

    upto: int
    before: tuple[Message, ...] = ()
    summarised: tuple[Message, ...] = ()
    replaced: int = 0
    after: tuple[Message, ...] = ()
    heading: str = HEADING
    was_stopped: bool = False
    trimmed: int = 0
    tokens: int

    def summary(self, text: str, *, marker: str = MARKER) -> Message:
        """The summary as a message. `marker`: how the model is told of a stop."""
        closing = f"\n\n{marker}" if self.was_stopped else ""
        return Message.user(f"{self.heading}\n\n{text.strip()}{closing}")

    def messages(self, summary: Message | None = None) -> tuple[Message, ...]:
        """What stands for the first `upto` messages."""
        return (*self.before, *(() if summary is None else (summary,)), *self.after)


def plan_for(
    messages: Sequence[Message],
    *,
    size_of: Callable[[Message], int],
    overhead: int,
    goal: int,
    most: int,
    keep_turns: int,
    max_tool_result: int,
    begun: int | None = None,
) -> Plan | None:
    """The gentlest plan that brings the request down to `goal` tokens, or else the one that saves the most.

    `messages`: as the model is told them by now. `overhead`: tokens of the request beside them. `most`: tokens with
    which it is content before it touches the newest `keep_turns` turns, and with trimming there. `begun`: where what
    this run was given begins, if that is known. `None`: nothing to do, or nothing worth doing.
    """
    sizes = [size_of(message) for message in messages]
    size = overhead + sum(sizes)
    worthwhile = int(size * WORTHWHILE)
    if size <= goal:
        return None
    shape = Shape(messages, keep_turns, begun)
    best: tuple[_Option, _Options] | None = None
    content = min(most, worthwhile)
    for upto in (shape.protected, shape.newest_step):
        options = _Options(shape, sizes, size_of, overhead, max_tool_result, upto)
        found = list(options)
        enough = next((option for option in found if option.tokens <= min(goal, worthwhile)), None)
        if upto == shape.protected:
            if enough is None and found and found[-1].tokens <= content:
                enough = found[-1]
        elif found and not found[0].at and found[0].tokens <= min(content, SPARING * goal):
            enough = found[0]  # in a loop of tools with large results there would be a summary at each step
        if enough is not None:
            return options.plan(enough)
        for option in found:
            if option.tokens <= worthwhile and (best is None or option.tokens < best[0].tokens):
                best = option, options
    return None if best is None else best[1].plan(best[0])


def trimmed(message: Message, longest: int) -> tuple[Message, int]:
    """The message with its results cut to `longest` characters, and how many were cut."""
    cut = sum(isinstance(part, ToolResult) and len(part.content) > longest for part in message.parts)
    if not cut:
        return message, 0
    parts = tuple(_cut(part, longest) if isinstance(part, ToolResult) else part for part in message.parts)
    return msgspec.structs.replace(message, parts=parts), cut


def _cut(result: ToolResult, longest: int) -> ToolResult:
    if len(result.content) <= longest:
        return result
    return msgspec.structs.replace(result, content=head_and_tail(result.content, longest - _LINE))


class _Option(NamedTuple):
    """To cut there; 0: to trim alone."""

    at: int
    tokens: int


class _Options:
    """What can be done without touching what stands at `upto` and behind it, the gentlest first."""

    def __init__(
        self,
        shape: Shape,
        sizes: Sequence[int],
        size_of: Callable[[Message], int],
        overhead: int,
        longest: int,
        upto: int,
    ) -> None:
        self._shape = shape
        self._overhead = overhead
        self._upto = upto
        messages = self._messages = shape.messages
        pairs = [*(trimmed(message, longest) for message in messages[:upto]), *((each, 0) for each in messages[upto:])]
        self._trimmed = [message for message, _ in pairs]
        self._cuts = [cut for _, cut in pairs]
        short = [size_of(message) if cut else size for (message, cut), size in zip(pairs, sizes, strict=True)]
        instructed = [message.role in INSTRUCTIONS for message in messages]
        said = [is_said(message) for message in messages]
        # Of what stands before each place: tokens in all, as trimmed, of instructions, of what users said.
        self._full = _sums(sizes)
        self._short = _sums(short)
        self._instructed = _sums(size * is_it for size, is_it in zip(sizes, instructed, strict=True))
        self._said = _sums(size * is_it for size, is_it in zip(sizes, said, strict=True))
        self._fresh = _sums(
            not (is_summary(message) or is_it) for message, is_it in zip(messages, instructed, strict=True)
        )

    def __iter__(self) -> Iterator[_Option]:
        if any(self._cuts):
            yield _Option(0, self._overhead + self._short[-1])
        for at in self._shape.cuts(self._upto):
            if self._fresh[at]:
                yield _Option(at, self._overhead + self._kept(at) + _expected(self._replaced(at)))

    def _kept(self, at: int) -> int:
        return self._instructed[at] + self._said_within(at) + self._short[-1] - self._short[at]

    def _replaced(self, at: int) -> int:
        return self._full[at] - self._instructed[at] - self._said_within(at)

    def _said_within(self, at: int) -> int:
        return self._said[at] - self._said[self._shape.kept_from(at)]

    def plan(self, option: _Option) -> Plan:
        at = option.at
        upto = max(at, 1 + max((place for place, cut in enumerate(self._cuts) if cut), default=-1))
        kept, count = tuple(self._trimmed[at:upto]), sum(self._cuts[at:])
        if not at:
            return Plan(upto=upto, after=kept, trimmed=count, tokens=option.tokens)
        begin, gone = self._shape.kept_from(at), self._messages[:at]
        said = tuple(message for message in self._messages[begin:at] if is_said(message))
        return Plan(
            upto=upto,
            before=tuple(message for message in gone if message.role in INSTRUCTIONS),
            summarised=tuple(message for message in self._trimmed[:at] if message.role not in INSTRUCTIONS),
            replaced=self._replaced(at),
            after=(*said, *kept),
            heading=HEADING_WITHIN if said else HEADING,
            was_stopped=_was_cut(self._messages[:begin]),
            trimmed=count,
            tokens=option.tokens,
        )


def _expected(replaced: int) -> int:
    return FRAME + min(SUMMARY, replaced // 4)


def _sums(values: Iterator[int] | Sequence[int]) -> list[int]:
    """Of the values before each place; the last is that of all."""
    return [*accumulate(values, initial=0)]


def _was_cut(messages: Sequence[Message]) -> bool:
    """Whether an answer was stopped since a user has last said something: what comes next is to tell of it."""
    for message in reversed(messages):
        if message.interrupted:
            return True
        if message.role == "user":
            return False
    return False
