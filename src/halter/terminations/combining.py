"""When a team has said enough: values that combine with `&` and `|`.

1. A termination is immutable, and serves any number of runs at once: what a run has to remember is in the look that it
takes of its own (`Termination.begin`). 2. What has once been true stays true: `a & b` ends the team when both have
happened, in whatever order. 3. Those that can be seen to be true in the middle of a turn end the turn there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from halter.core.cancellation import CancellationToken
from halter.errors import ConfigurationError
from halter.messages import Message, Usage


class View(Protocol):
    """What there is to look at: the team's work on its present input, of whatever run that was."""

    @property
    def messages(self) -> Sequence[Message]:
        """What the members have said in turns that are over, oldest first; `name` is the member's."""
        ...

    @property
    def saying(self) -> Mapping[str, str]:
        """What the members whose turn it is have said so far, by name."""
        ...

    @property
    def turns(self) -> Sequence[str]:
        """Whose turns have ended, in order."""
        ...

    @property
    def handoffs(self) -> Sequence[str]:
        """To whom the conversation was handed over, in order."""
        ...

    @property
    def usage(self) -> Usage:
        """Of all runs under the team; in the middle of a turn its output is estimated."""
        ...

    @property
    def elapsed(self) -> float:
        """Seconds since the run began, on its loop's clock."""
        ...


Look: TypeAlias = Callable[[View], str | None]
"""Asked again and again in one run: why the team ends, or `None`."""


class Termination:
    """A reason for a team to complete. For one of your own, `Function` is the short way."""

    reads = False
    """It looks at what is being said: it is asked at each piece of it."""

    blocks = False
    """It may block: where a turn has ended, it is asked in a thread."""

    @property
    def times(self) -> tuple[float, ...]:
        """Seconds after the run's begin at which it is asked, whatever happens."""
        return ()

    @property
    def tokens(self) -> tuple[CancellationToken, ...]:
        """Tokens at whose cancel it is asked, whatever happens."""
        return ()

    @property
    def waits_for(self) -> tuple[str, ...]:
        """Members of whom it must hear something: a team that lacks one would go on for ever."""
        return ()

    def begin(self) -> Look:
        """A look for one run, which may remember what it has seen."""
        raise NotImplementedError(f"{type(self).__name__} must look at something")

    def __and__(self, other: Termination) -> Termination:
        return _Both((self, other), "&", all)

    def __or__(self, other: Termination) -> Termination:
        return _Both((self, other), "|", any)


class _Both(Termination):
    """`a & b`, `a | b`."""

    def __init__(self, parts: tuple[Termination, ...], sign: str, decide: Callable[[Sequence[object]], bool]) -> None:
        self.parts = tuple(checked_termination(part) for part in parts)
        self._sign = sign
        self._decide = decide
        self.reads = any(part.reads for part in parts)
        self.blocks = any(part.blocks for part in parts)

    @property
    def times(self) -> tuple[float, ...]:
        return tuple(time for part in self.parts for time in part.times)

    @property
    def tokens(self) -> tuple[CancellationToken, ...]:
        return tuple(token for part in self.parts for token in part.tokens)

    @property
    def waits_for(self) -> tuple[str, ...]:
        return tuple(name for part in self.parts for name in part.waits_for)

    def begin(self) -> Look:
        looks = [_Lasting(part.begin()) for part in self.parts]

        def look(view: View) -> str | None:
            said = [each(view) for each in looks]
            return " and ".join(filter(None, said)) if self._decide(said) else None

        return look

    def __repr__(self) -> str:
        return f"({f' {self._sign} '.join(map(repr, self.parts))})"


class _Lasting:
    """A look that stays true once it was."""

    __slots__ = ("_look", "_said")

    def __init__(self, look: Look) -> None:
        self._look = look
        self._said: str | None = None

    def __call__(self, view: View) -> str | None:
        self._said = self._said or self._look(view)
        return self._said


def checked_termination(given: object) -> Termination:
    """The termination, if it is one. Raises `ConfigurationError`."""
    if not isinstance(given, Termination):
        raise ConfigurationError(f"a team runs until a termination, such as MaxMessages(10), not until {given!r}")
    return given
