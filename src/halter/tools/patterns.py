"""Names of files as patterns: `*` and `?` within a name, `**` for any directories, `[a-z]`, and `{this,that}`.

Matching takes time in proportion to pattern times path, whatever a model writes.
"""

from __future__ import annotations

import fnmatch
import re
from functools import lru_cache

from halter.errors import ToolError

MOST_CHOICES = 64  # patterns that `{…}` may stand for
LONGEST = 1000  # characters
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_MAGIC = re.compile(r"[*?\[{]")


class Pattern:
    """A pattern for paths. Raises `ToolError` for one that is too long, or stands for too many."""

    __slots__ = ("_choices", "text")

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise ToolError(f"the pattern is longer than {LONGEST} characters")
        self.text = text
        self._choices = [_segments(choice) for choice in _expanded(text)]

    @property
    def depth(self) -> int | None:
        """How many components a path that matches has at most; `None` for any number."""
        if any("**" in choice for choice in self._choices):
            return None
        return max(len(choice) for choice in self._choices)

    def matches(self, path: str) -> bool:
        names = path.split("/")
        return any(_matches(choice, names) for choice in self._choices)

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"


def split(parts: list[str]) -> tuple[str, str]:
    """The directory that a pattern begins with, taken literally, and the rest: what has to be looked for in it."""
    literal = 0
    while literal < len(parts) - 1 and not _MAGIC.search(parts[literal]):
        literal += 1
    return "/".join(parts[:literal]) or ".", "/".join(parts[literal:])


def _segments(pattern: str) -> list[str]:
    """Several `**` one after the other mean one."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    return [part for index, part in enumerate(parts) if part != "**" or index == 0 or parts[index - 1] != "**"]


def _expanded(text: str) -> list[str]:
    found: list[str] = [text]
    while (braces := next((match for one in found if (match := _BRACES.search(one))), None)) is not None:
        one = braces.string
        found.remove(one)
        found += [one[: braces.start()] + choice + one[braces.end() :] for choice in braces[1].split(",")]
        if len(found) > MOST_CHOICES:
            raise ToolError(f"the pattern {text!r} stands for more than {MOST_CHOICES}: use a simpler one")
    return found


def _matches(pattern: list[str], names: list[str]) -> bool:
    """Which beginnings of the pattern match the names so far, name by name."""
    reached = _past_stars(pattern, {0})
    for name in names:
        after = {
            at if pattern[at] == "**" else at + 1 for at in reached if at < len(pattern) and _is(pattern[at], name)
        }
        reached = _past_stars(pattern, after)
        if not reached:
            return False
    return len(pattern) in reached


def _past_stars(pattern: list[str], reached: set[int]) -> set[int]:
    """`**` may stand for no directory at all."""
    return reached | {at + 1 for at in reached if at < len(pattern) and pattern[at] == "**"}


def _is(segment: str, name: str) -> bool:
    return segment == "**" or _compiled(segment).match(name) is not None


@lru_cache(maxsize=1024)
def _compiled(segment: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(segment))
