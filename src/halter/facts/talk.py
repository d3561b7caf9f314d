"""What was said in a conversation, as far as something can be learned from it. Pure.

Only what the user and the agent have said counts: what a tool has returned was written by anybody. An answer that was
cut off is no statement, and is passed over.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from halter.messages import Message
from halter.tools.bounds import head_and_tail

LONGEST_MESSAGE = 8_000  # characters
LONGEST_STRETCH = 24_000  # characters: some 6,000 tokens


class Said(msgspec.Struct, frozen=True):
    """One message. `by`: `user`, `assistant`, or the speaker's name."""

    by: str
    text: str


class Stretch(msgspec.Struct, frozen=True):
    """What can be looked at in one request. `upto`: messages of the conversation that are behind then."""

    said: tuple[Said, ...]
    upto: int

    @property
    def text(self) -> str:
        return "\n".join(each.text for each in self.said)


def next_stretch(messages: Sequence[Message], at: int) -> Stretch:
    """As much as fits of `messages`, the first of which stands at the position `at`; one of them in any case."""
    said: list[Said] = []
    size = 0
    for message in messages:
        text = _words_of(message)
        if size and size + len(text) > LONGEST_STRETCH:
            break
        at += 1
        size += len(text)
        if text:
            said.append(Said(message.name or message.role, text))
    return Stretch(tuple(said), at)


def _words_of(message: Message) -> str:
    if message.role not in ("user", "assistant") or message.interrupted:
        return ""
    return head_and_tail(message.text.strip(), LONGEST_MESSAGE)
