"""Which calls somebody must say yes to before they run."""

from __future__ import annotations

import difflib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias, cast

import msgspec

from halter.core.calling import call_function
from halter.core.context import RunContext
from halter.errors import ConfigurationError, UsageError

Patterns: TypeAlias = Sequence[str] | Mapping[str, str | Sequence[str]]
Approval: TypeAlias = Literal["never", "always"] | Patterns | Callable[..., bool | Awaitable[bool]]
Prompt: TypeAlias = Callable[..., str | Awaitable[str]]
Subject: TypeAlias = Callable[[Mapping[str, Any]], str | None]
_PARENT = re.compile(r"(^|[/\\])\.\.([/\\]|$)")


class Rule:
    """Decides which calls of one tool ask.

    `given`: `"never"`, `"always"`, a predicate that is true where somebody must be asked, or patterns. Patterns name
    the argument that they are compared with: `{"command": ("git status*", "ls")}`. Where they do not, they are about
    the tool's first argument. A call **runs unasked only if each named argument fits one of its patterns**, and every
    key of the call is an argument that the tool's schema names.

    `names`: the tool's arguments, in the order of its schema. `subject`: the text that stands for the first argument
    when patterns are compared; without it, an argument that is no text fits nothing. `fits(text, pattern)`: the
    comparison. Raises `ConfigurationError`.
    """

    def __init__(
        self,
        given: Approval,
        names: Sequence[str],
        subject: Subject | None = None,
        fits: Callable[[str, str], bool] | None = None,
    ) -> None:
        if isinstance(given, str) and given not in ("never", "always"):
            raise ConfigurationError(f"approval must be 'never', 'always', a predicate or patterns, not {given!r}")
        self.never = given == "never"
        self._predicate = given if callable(given) else None
        self._first = names[0] if names else None
        self._names = frozenset(names)
        is_word = isinstance(given, str) or callable(given)
        self.patterns: Mapping[str | None, tuple[str, ...]] = {} if is_word else _patterns(given, self._first)
        self._subject = subject
        self._fits = fits or _fits

    def check_names(self, tool: str) -> None:
        """Raises `ConfigurationError` if patterns name an argument that the tool does not have."""
        for name in self.patterns:
            if name is not None and name not in self._names:
                near = difflib.get_close_matches(name, self._names, 1)
                hint = (
                    f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(self._names)) or 'none'}"
                )
                raise ConfigurationError(f"approval names the argument {name!r}, which {tool} does not have: {hint}")

    async def asks(self, arguments: Mapping[str, Any], ctx: RunContext) -> bool:
        """True if somebody must be asked before the call `ctx` with these arguments, which are complete."""
        if self._predicate is not None:
            return bool(await call_function(ctx, self._predicate, **arguments))
        if self.never:
            return False
        if not self.patterns or not arguments.keys() <= self._names:
            return True  # a key that the schema does not name may mean anything to who runs the call
        return not all(self._allows(name, patterns, arguments) for name, patterns in self.patterns.items())

    def _allows(self, name: str | None, patterns: tuple[str, ...], arguments: Mapping[str, Any]) -> bool:
        subject = self._subject if name == self._first else None
        text: Any = arguments.get(name or "") if subject is None else subject(arguments)
        return isinstance(text, str) and any(self._fits(text, pattern) for pattern in patterns)


def _fits(text: str, pattern: str) -> bool:
    """As a shell compares names. `..` in a path leads out of what a pattern seems to name: the pattern must have it."""
    return fnmatchcase(text, pattern) and (".." in pattern or _PARENT.search(text) is None)


def _patterns(given: Any, first: str | None) -> Mapping[str | None, tuple[str, ...]]:
    if not isinstance(given, Mapping):
        return {first: _texts(given, given)}
    named = cast("Mapping[Any, Any]", given)
    if not named or not all(isinstance(name, str) for name in named):
        raise ConfigurationError(f"approval patterns are given by argument, as {{'path': ('src/*',)}}, not {given!r}")
    return {name: _texts((texts,) if isinstance(texts, str) else texts, given) for name, texts in named.items()}


def _texts(patterns: Any, given: Any) -> tuple[str, ...]:
    texts = tuple(cast("Sequence[Any]", patterns)) if isinstance(patterns, list | tuple) else (patterns,)
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ConfigurationError(f"approval patterns are one or more texts, as ('git status*',), not {given!r}")
    return cast("tuple[str, ...]", texts)


async def question(name: str, arguments: Mapping[str, Any], prompt: Prompt | None, ctx: RunContext) -> str:
    """What somebody is asked. Raises `UsageError` if the tool's own prompt is no text."""
    if prompt is None:
        return f"May {name} be called with {msgspec.json.encode(dict(arguments), enc_hook=repr).decode()}?"
    said = await call_function(ctx, prompt, **arguments)
    if not isinstance(said, str):
        raise UsageError(f"the approval_prompt of {name} must give text, not {type(said).__name__}")
    return said
