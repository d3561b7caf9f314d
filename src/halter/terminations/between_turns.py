"""Terminations that only whole turns can make true."""

from __future__ import annotations

from collections.abc import Sequence

from halter import checked
from halter.errors import ConfigurationError
from halter.messages import Message
from halter.terminations.combining import Look, Termination, View
from halter.terminations.given import checked_names, checked_words, counts


class MaxMessages(Termination):
    """After so many turns: each member's turn gives the team one message. Raises `ConfigurationError`."""

    def __init__(self, most: int) -> None:
        self.most = checked.whole("most", most, at_least=1)

    def begin(self) -> Look:
        return lambda view: f"{len(view.turns)} messages" if len(view.turns) >= self.most else None

    def __repr__(self) -> str:
        return f"MaxMessages({self.most})"


class StopMessage(Termination):
    """When a member's message ends with this word; unlike at a `TextMention`, the message becomes whole.

    White space and punctuation behind the word do not count. `by`: the names of those who may say it; all, if it is
    left out. Raises `ConfigurationError`.
    """

    def __init__(self, word: str = "TERMINATE", *, by: Sequence[str] = ()) -> None:
        self.word = checked_words("word", word)
        self.by = checked_names("by", by)

    @property
    def waits_for(self) -> tuple[str, ...]:
        return self.by

    def begin(self) -> Look:
        seen = 0

        def look(view: View) -> str | None:
            nonlocal seen
            new, seen = view.messages[seen:], len(view.messages)
            name = next((message.name for message in new if self._is_in(message)), None)
            return name and f"{name} has ended with {self.word!r}"

        return look

    def _is_in(self, message: Message) -> bool:
        end = message.text.rstrip().rstrip(".!*_`'\" ")
        is_end = message.text.rstrip().endswith(self.word) or end.endswith(self.word)
        return is_end and not message.interrupted and counts(message.name, self.by)

    def __repr__(self) -> str:
        return f"StopMessage({self.word!r})"


class HandoffTo(Termination):
    """When the conversation was handed over to this name, which may be nobody of the team: `"user"`."""

    def __init__(self, target: str) -> None:
        self.target = checked_words("target", target)

    def begin(self) -> Look:
        return lambda view: f"handed over to {self.target}" if self.target in view.handoffs else None

    def __repr__(self) -> str:
        return f"HandoffTo({self.target!r})"


class Source(Termination):
    """After a turn of one of these members. Raises `ConfigurationError`."""

    def __init__(self, *names: str) -> None:
        self.names = checked_names("names", names)
        if not names:
            raise ConfigurationError("a Source needs the name of a member")

    @property
    def waits_for(self) -> tuple[str, ...]:
        return self.names

    def begin(self) -> Look:
        def look(view: View) -> str | None:
            name = next((name for name in view.turns if name in self.names), None)
            return name and f"{name} has spoken"

        return look

    def __repr__(self) -> str:
        return f"Source({', '.join(map(repr, self.names))})"
