"""What all fronts use: rules by which events become frames, and messages for runs that take them or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias, get_args

from halter import events
from halter.agent import Agent
from halter.core.runnable import Runnable
from halter.events import Event
from halter.messages import Message
from halter.server.frames import merged
from halter.server.names import Names
from halter.server.problems import Problem
from halter.snapshot import Snapshot

EVENT_TYPES: tuple[type[Event], ...] = get_args(events.AnyEvent)


class Dropped(NamedTuple):
    """An event that a format does not show, and the reason."""

    reason: str


Shown: TypeAlias = Callable[[Any, Any], bytes]
Rules: TypeAlias = Mapping[type[Event], Shown | Dropped]


class RuledFormat:
    """A `StreamFormat` that shows each type of event by one rule.

    A subclass has `rules`: for every type of event the method that makes its frames, or `Dropped` with the reason. A
    type that is in no rule is a mistake, and the class cannot be made, unless it is `abstract`: for others to build on.

    Args:
        names: of the tenant who reads.
    """

    media_type = "text/event-stream"
    headers: ClassVar[Mapping[str, str]] = {}
    has_cursors: ClassVar[bool] = True
    is_paused = False
    rules: ClassVar[Rules] = {}
    _shown: ClassVar[dict[type[Event], Shown]] = {}

    def __init_subclass__(cls, *, abstract: bool = False) -> None:
        if abstract:
            return
        if missing := [kind.__name__ for kind in EVENT_TYPES if kind not in cls.rules]:
            raise TypeError(f"{cls.__name__}.rules says nothing of {', '.join(missing)}")
        cls._shown = {kind: rule for kind, rule in cls.rules.items() if not isinstance(rule, Dropped)}

    def __init__(self, names: Names) -> None:
        self._names = names

    def snapshot(self, snapshot: Snapshot, *, gap: tuple[int, int | None] | None) -> bytes:
        """See `StreamFormat.snapshot`."""
        return b""

    def batch(self, found: Sequence[Event]) -> bytes:
        """See `StreamFormat.batch`."""
        frames = bytearray()
        for event in merged(found):
            show = self._shown.get(type(event))
            if show is not None:
                frames += show(self, self._names.in_event(event))
        return bytes(frames)

    def end(self) -> bytes:
        """See `StreamFormat.end`."""
        return b""


def asked_of(
    runnable: Runnable[Any], messages: Sequence[Message]
) -> tuple[tuple[Message, ...], tuple[Message, ...] | str]:
    """A conversation that a client sends whole, as history and input of one run.

    The input is what was said since the model's last answer: messages for an agent, the user's text for anything else.
    Raises `Problem` 400 if nothing was said to it.
    """
    last = max((place for place, each in enumerate(messages) if each.role == "assistant"), default=-1)
    history, said = tuple(messages[: last + 1]), tuple(messages[last + 1 :])
    if not said:
        raise Problem(400, "the conversation has no message to answer: end it with the user's", code="invalid")
    if isinstance(runnable, Agent):
        return history, said
    text = "\n\n".join(each.text for each in said if each.role == "user")
    if not text:
        raise Problem(400, f"{runnable.name!r} takes text: end with a message of the user", code="invalid")
    return history, text
