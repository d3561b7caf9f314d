"""One conversation, as each member of a team hears it. Pure.

1. A member's own words are the assistant's, with its calls and their results; the others' are the user's, with their
names. So the roles are valid for every provider. 2. Others' calls and results are not heard. 3. The same conversation
is always heard in the same words: a provider's prompt cache stays valid.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from halter.messages import PAUSED, Message, Text, ToolCall

YOUR_TURN = "[It is your turn again.]"
CUT_OFF = "[This message was stopped before it was complete.]"

Aside: TypeAlias = Callable[[ToolCall], str]
"""What the others hear of a call; for most, nothing."""


def silent(call: ToolCall) -> str:
    return ""


def signed(messages: Sequence[Message], name: str) -> tuple[Message, ...]:
    """What a member's run has added to the conversation, as its own."""
    return tuple(replace(message, name=name) for message in messages)


def spoken(messages: Sequence[Message]) -> list[Message]:
    """What was said aloud: without results, without what a member was told alone, without what says nothing."""
    return [message for message in messages if message.role == "assistant" and message.text.strip()]


def heard_by(
    member: str, messages: Sequence[Message], members: Collection[str], aside: Aside = silent
) -> list[Message]:
    """The conversation as `member` hears it. `members`: all names whose messages are members'."""
    heard: list[Message] = []
    for message in messages:
        for each in _heard(member, message, members, aside):
            if heard and each.role == "assistant" and _was_over(heard[-1]):
                heard.append(Message.user(YOUR_TURN))  # as it was told then
            heard.append(each)
    return heard


def _was_over(message: Message) -> bool:
    """True for what ends a turn, if words of the same member follow it."""
    return message.finish_reason != PAUSED and (message.role == "assistant" or message.interrupted)


def _heard(member: str, message: Message, members: Collection[str], aside: Aside) -> Iterator[Message]:
    if message.name == member:
        yield replace(message, name=None)  # as in the run in which it was said
    elif message.role == "assistant":
        words = _words(message, aside)
        if words:
            yield Message.user(f"{message.name or 'assistant'}: {words}", name=message.name)
    elif message.name not in members and message.role != "tool":
        yield message


def _words(message: Message, aside: Aside) -> str:
    text = message.text or message.refusal
    said = [text.strip(), *(aside(call) for call in message.tool_calls), CUT_OFF if message.interrupted else ""]
    return "\n".join(filter(None, said)) if any(said[:-1]) else ""


def split(heard: Sequence[Message]) -> tuple[Sequence[Message], Sequence[Message]]:
    """What a member knows already, up to its own last words, and what is new for it."""
    own = [at for at, message in enumerate(heard) if message.role in ("assistant", "tool")]
    at = own[-1] + 1 if own else 0
    return heard[:at], heard[at:]


def as_text(messages: Sequence[Message]) -> str:
    """What was said, as one text."""
    return "\n\n".join(message.text for message in messages if message.text)


def said_by(name: str, text: str, *, interrupted: bool) -> tuple[Message, ...]:
    """What a member has said of which only the text is known."""
    return (Message("assistant", (Text(text),), name=name, interrupted=interrupted),) if text else ()
