"""Which calls somebody must say yes to before they run."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias, cast

import msgspec

from halter.errors import ConfigurationError, UsageError
from halter.tools.bounds import head_and_tail

Approval: TypeAlias = Literal["never", "always"] | Sequence[str] | Callable[..., bool | Awaitable[bool]]
Prompt: TypeAlias = Callable[..., str | Awaitable[str]]
LONGEST_PROMPT = 4_000  # characters
# What would move a terminal's cursor, or turn the direction of the text, and so hide what is approved.
_HIDING = (*range(9), *range(11, 32), *range(127, 160), 0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F))
_VISIBLE = {code: f"\\u{code:04x}" for code in (*_HIDING, *range(0x2066, 0x206A))}


class Rule:
    """`given`: `"never"`, `"always"`, a predicate that is true where somebody must be asked, or patterns.

    Calls that fit one of the patterns (`"git status*"`) run unasked, **all others ask**. What is compared is `subject`
    of the arguments: for most tools the first, if it is text. Raises `ConfigurationError`.
    """

    def __init__(self, given: Approval, subject: Callable[[Mapping[str, Any]], str | None]) -> None:
        if isinstance(given, str) and given not in ("never", "always"):
            raise ConfigurationError(f"approval must be 'never', 'always', a predicate or patterns, not {given!r}")
        self._predicate = given if callable(given) else None
        self._patterns = () if isinstance(given, str) or callable(given) else _patterns(given)
        self._never = given == "never"
        self._subject = subject

    async def asks(self, arguments: Mapping[str, Any]) -> bool:
        """True if somebody must be asked before a call with these arguments."""
        if self._predicate is not None:
            answer = self._predicate(**arguments)
            return bool(await answer) if inspect.isawaitable(answer) else bool(answer)
        if self._never:
            return False
        subject = self._subject(arguments)
        return subject is None or not any(fnmatchcase(subject, pattern) for pattern in self._patterns)


def _patterns(given: Any) -> tuple[str, ...]:
    patterns = tuple(cast("Sequence[Any]", given)) if isinstance(given, list | tuple) else (given,)
    if not patterns or not all(isinstance(pattern, str) for pattern in patterns):
        raise ConfigurationError(f"approval patterns are one or more texts, as ('git status*',), not {given!r}")
    return cast("tuple[str, ...]", patterns)


def first_text(arguments: Mapping[str, Any]) -> str | None:
    """The first argument, if it is text: what patterns are compared with."""
    first = next(iter(arguments.values()), None)
    return first if isinstance(first, str) else None


def visible(text: str) -> str:
    """A text that a model has had its hands in, so that a terminal shows all of it: control characters are written out.

    Tabs and line feeds stay.
    """
    return text.translate(_VISIBLE)


async def question(name: str, arguments: Mapping[str, Any], prompt: Prompt | None) -> str:
    """What somebody is asked. Raises `UsageError` if the tool's own prompt is no text."""
    if prompt is None:
        shown = msgspec.json.encode(dict(arguments), enc_hook=repr).decode()
        return visible(head_and_tail(f"May {name} be called with {shown}?", LONGEST_PROMPT))
    asked = prompt(**arguments)
    said: Any = await asked if inspect.isawaitable(asked) else asked
    if not isinstance(said, str):
        raise UsageError(f"the approval_prompt of {name} must give text, not {type(said).__name__}")
    return visible(said)
