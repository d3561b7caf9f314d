"""A title for a conversation that was given none: how it begins. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from halter.messages import Message

LONGEST = 60  # characters


def first_words(messages: Iterable[Message]) -> str:
    """The first words of what the user has said first, on one line; empty if nothing was said."""
    said = (" ".join(message.text.split()) for message in messages if message.role == "user")
    text = next(filter(None, said), "")
    if len(text) <= LONGEST:
        return text
    whole, _, _ = text[:LONGEST].rpartition(" ")
    return f"{whole or text[: LONGEST - 1]}…"
