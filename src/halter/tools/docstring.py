"""What a function's docstring tells a model: the text, and a line for each argument, in Google's or Sphinx's form."""

from __future__ import annotations

import re
from inspect import cleandoc
from typing import NamedTuple

_SECTION = re.compile(r"(Args|Arguments|Parameters|Params|Returns?|Raises|Yields|Examples?|Notes?):\s*")
_ITEM = re.compile(r"(\s+)\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)")
_FIELD = re.compile(r":(?:param|parameter|arg)\s+(?:[^:]*\s)?(\w+):\s*(.*)")
_ARGUMENTS = frozenset(("Args", "Arguments", "Parameters", "Params"))


class Described(NamedTuple):
    """`text`: what comes before the sections. `arguments`: by name."""

    text: str
    arguments: dict[str, str]


def described(docstring: str | None) -> Described:
    """The docstring, taken apart."""
    text: list[str] = []
    arguments: dict[str, list[str]] = {}
    section, current, indent = "", None, 0
    for line in cleandoc(docstring or "").splitlines():
        if found := _SECTION.fullmatch(line):
            section, current = found[1], None
        elif found := _FIELD.match(line):
            section, current = ":", arguments.setdefault(found[1], [found[2]])
        elif (
            section in _ARGUMENTS and (found := _ITEM.fullmatch(line)) and (current is None or len(found[1]) <= indent)
        ):
            indent, current = len(found[1]), arguments.setdefault(found[2], [found[3]])
        elif section and line.startswith(":"):  # another of Sphinx's fields
            current = None
        elif current is not None and line.strip():
            current.append(line.strip())
        elif not section:
            text.append(line)
    return Described("\n".join(text).strip(), {name: " ".join(lines).strip() for name, lines in arguments.items()})
