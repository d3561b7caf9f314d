"""Names of a server's tools: which are taken, and how they are called here.

A server may name its tools as it likes; providers take letters, digits, `_` and `-`, 64 at most.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any, cast

from halter import checked
from halter.errors import ConfigurationError

LONGEST_NAME = 64
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_BEGINS_BADLY = re.compile(r"^[^a-zA-Z_]")


def named(originals: Sequence[str], prefix: str = "") -> Mapping[str, str]:
    """The valid name of each tool, by the name that its server gave it.

    A name that had to be changed, and is that of another tool then, gets an ending made of the original.
    Raises `ConfigurationError` if the server has two tools of one name.
    """
    if twice := next((name for name, times in Counter(originals).items() if times > 1), None):
        raise ConfigurationError(f"the MCP server lists two tools of the name {twice!r}")
    plain = {each: valid_name(prefix + each) for each in originals}
    times = Counter(plain.values())
    return {each: name if times[name] == 1 else _told_apart(prefix + each) for each, name in plain.items()}


def valid_name(given: str) -> str:
    """The name in the characters and the length that all providers take."""
    name = _BEGINS_BADLY.sub(lambda first: f"_{first[0]}", _NOT_IN_A_NAME.sub("_", given))
    return name if 0 < len(name) <= LONGEST_NAME else _told_apart(given)


def _told_apart(given: str) -> str:
    name = _BEGINS_BADLY.sub(lambda first: f"_{first[0]}", _NOT_IN_A_NAME.sub("_", given))
    if name == given and len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 9]}_{sha256(given.encode('utf-8', 'replace')).hexdigest()[:8]}"


class Filter:
    """Chooses tools by patterns of names, as a shell compares them.

    `only`: the tools that are taken, `None` for all; `without`: those that are not, even so. `scope`: stands before
    each name when it is compared. Raises `ConfigurationError` for patterns that are no texts.
    """

    def __init__(self, only: Sequence[str] | None, without: Sequence[str], scope: str = "") -> None:
        self._scope = scope
        self._only = None if only is None else _patterns("only", only)
        self._without = _patterns("without", without)

    def chosen(self, names: Sequence[str], where: str) -> list[str]:
        """The names that are taken. `where`: has the tools. Raises `ConfigurationError` if a pattern fits none."""
        for option, patterns in (("only", self._only or ()), ("without", self._without)):
            for pattern in patterns:
                if not any(fnmatchcase(name, pattern) for name in names):
                    near = difflib.get_close_matches(pattern, names, 1)
                    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names) or 'none'}"
                    raise ConfigurationError(f"{option} names {pattern!r}, and {where} has no such tool: {hint}")
        return [name for name in names if self.takes(name)]

    def takes(self, name: str) -> bool:
        """Whether a tool of this name is taken."""
        name = self._scope + name
        is_wanted = self._only is None or any(fnmatchcase(name, pattern) for pattern in self._only)
        return is_wanted and not any(fnmatchcase(name, pattern) for pattern in self._without)


def _patterns(option: str, given: Any) -> tuple[str, ...]:
    listed: Any = (given,) if isinstance(given, str) else given
    if not isinstance(listed, Sequence) or not all(isinstance(each, str) for each in cast("Sequence[Any]", listed)):
        raise ConfigurationError(f"{option} takes patterns of names such as ('read_*',), not {given!r}")
    return tuple(cast("Sequence[str]", listed))


def checked_prefix(given: Any) -> str:
    """The prefix, if it has the characters of a name. Raises `ConfigurationError`."""
    prefix = checked.text("prefix", given)
    if _NOT_IN_A_NAME.search(prefix) or _BEGINS_BADLY.search(prefix) or len(prefix) > LONGEST_NAME // 2:
        raise ConfigurationError(
            f"prefix has letters, digits, _ and -, 32 at most, and begins with a letter: not {given!r}"
        )
    return prefix
