"""Which calls somebody must say yes to before they run."""

from __future__ import annotations

import difflib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import msgspec

from halter.core.approvals import Asking
from halter.core.calling import call_function
from halter.core.context import RunContext
from halter.core.ports import Question
from halter.core.tool_context import ToolContext
from halter.errors import ConfigurationError, UsageError
from halter.risk import Risk
from halter.visible import visible

Patterns: TypeAlias = Sequence[str] | Mapping[str, str | Sequence[str]]
Approval: TypeAlias = Literal["never", "always"] | Patterns | Callable[..., bool | Awaitable[bool]]
Prompt: TypeAlias = Callable[..., str | Awaitable[str]]
Subject: TypeAlias = Callable[[Mapping[str, Any]], str | None]
Does: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
LONGEST_PATTERN = 10_000  # characters of JSON; what is longer is not remembered
_PARENT = re.compile(r"(^|[/\\])\.\.([/\\]|$)")


class Need(NamedTuple):
    """Somebody must be asked. `pattern`: what a remembered yes would hold for; `None`: a yes counts once."""

    pattern: Mapping[str, Any] | None

    def question(self, prompt: str) -> Question:
        return Question(prompt=prompt, pattern=self.pattern)


class Rule:
    """Decides which calls of one tool ask.

    `given`: `"never"`, `"always"`, a predicate that is true where somebody must be asked, or patterns. Patterns name
    the argument that they are compared with: `{"command": ("git status*", "ls")}`. Where they do not, they are about
    the tool's first argument. A call **runs unasked only if each named argument fits one of its patterns**, and every
    key of the call is an argument that the tool's schema names.

    `None`: the policy of the agent that runs decides, by the tool's `risks`.

    `names`: the tool's arguments, in the order of its schema. `subject`: the text that stands for the first argument
    when patterns are compared; without it, an argument that is no text fits nothing. `fits(text, pattern)`: the
    comparison. `does(arguments)`: what a remembered yes holds for, by name; `None`: nothing of it can be remembered.
    Without it, that is all arguments. Raises `ConfigurationError`.
    """

    def __init__(
        self,
        given: Approval | None,
        names: Sequence[str],
        subject: Subject | None = None,
        fits: Callable[[str, str], bool] | None = None,
        *,
        risks: frozenset[Risk] = frozenset(),
        does: Does | None = None,
    ) -> None:
        if isinstance(given, str) and given not in ("never", "always"):
            raise ConfigurationError(f"approval must be 'never', 'always', a predicate or patterns, not {given!r}")
        self.never = given == "never"
        self._risks = None if given is not None else risks
        self._predicate = given if callable(given) else None
        self._first = names[0] if names else None
        self._names = frozenset(names)
        is_word = given is None or isinstance(given, str) or callable(given)
        self.patterns: Mapping[str | None, tuple[str, ...]] = {} if is_word else _patterns(given, self._first)
        self._subject = subject
        self._fits = fits or _fits
        self._does = does

    @property
    def has_predicate(self) -> bool:
        """True if a function of all arguments decides."""
        return self._predicate is not None

    def check_names(self, tool: str) -> None:
        """Raises `ConfigurationError` if patterns name an argument that the tool does not have."""
        for name in self.patterns:
            if name is not None and name not in self._names:
                near = difflib.get_close_matches(name, self._names, 1)
                hint = (
                    f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(self._names)) or 'none'}"
                )
                raise ConfigurationError(f"approval names the argument {name!r}, which {tool} does not have: {hint}")

    async def question(
        self, tool: str, arguments: Mapping[str, Any], prompt: Prompt | None, ctx: ToolContext
    ) -> Question | None:
        """What somebody is asked before the call `ctx` of `tool`; `None`: nothing. As `need` and `asked`."""
        need = await self.need(tool, arguments, ctx)
        return None if need is None else need.question(await asked(tool, arguments, prompt, ctx))

    async def need(self, tool: str, arguments: Mapping[str, Any], ctx: ToolContext) -> Need | None:
        """For what somebody must be asked before a call with these arguments, which are complete; `None`: for nothing.

        Nothing is asked where a yes is remembered. Raises what a predicate raises.
        """
        asking = await self._asking(arguments, ctx)
        if asking == "never":
            return None
        does = self._remembered(arguments) if asking == "ask" else None
        if does is None:
            return Need(None)
        if await ctx.is_allowed(tool, lambda pattern: self._fits_all(does, pattern)):
            return None
        return Need({name: exactly(value) if isinstance(value, str) else value for name, value in does.items()})

    async def asks(self, arguments: Mapping[str, Any], ctx: RunContext) -> bool:
        """True if somebody must be asked before the call `ctx`, whatever is remembered."""
        return await self._asking(arguments, ctx) != "never"

    async def _asking(self, arguments: Mapping[str, Any], ctx: RunContext) -> Asking:
        if self._predicate is not None:
            return "ask" if await call_function(ctx, self._predicate, **arguments) else "never"
        if self._risks is not None:
            return ctx.policy.asking(self._risks)
        if not self.patterns:
            return "never" if self.never else "always"
        if not arguments.keys() <= self._names:
            return "ask"  # a key that the schema does not name may mean anything to who runs the call
        does_fit = all(self._allows(name, patterns, arguments) for name, patterns in self.patterns.items())
        return "never" if does_fit else "ask"

    def _remembered(self, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What a remembered yes would hold for; `None` for what cannot be compared, or not be shown."""
        if self._does is not None:
            does = self._does(arguments)
        elif arguments.keys() <= self._names:
            does = dict(arguments)
            if self._subject is not None and self._first is not None:
                does[self._first] = self._subject(arguments)
                if does[self._first] is None:
                    return None
        else:
            return None
        try:
            text = _written(does)
            values = msgspec.json.decode(text)
        except (TypeError, ValueError, RecursionError):
            return None  # it has no form in JSON
        is_shown = len(text) <= LONGEST_PATTERN and visible(text.decode()) == text.decode()
        return values if is_shown and values else None

    def _fits_all(self, does: Mapping[str, Any], pattern: Mapping[str, Any]) -> bool:
        """True if each value fits, and no name is in one alone. What is no text fits itself, and nothing else."""
        return does.keys() == pattern.keys() and all(
            self._fits(value, pattern[name])
            if isinstance(value, str) and isinstance(pattern[name], str)
            else _written(value) == _written(pattern[name])
            for name, value in does.items()
        )

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


async def asked(name: str, arguments: Mapping[str, Any], prompt: Prompt | None, ctx: RunContext) -> str:
    """The text of a question. Raises `UsageError` if the tool's own prompt is no text."""
    if prompt is None:
        return f"May {name} be called with {msgspec.json.encode(dict(arguments), enc_hook=repr).decode()}?"
    said = await call_function(ctx, prompt, **arguments)
    if not isinstance(said, str):
        raise UsageError(f"the approval_prompt of {name} must give text, not {type(said).__name__}")
    return said


def exactly(text: str) -> str:
    """The pattern that this text fits alone."""
    return re.sub(r"([*?[])", r"[\1]", text)


def _written(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")
