"""Text of models, tools and servers, made harmless for a terminal.

Nothing that comes from them is written to a terminal but through `safe`: an escape sequence could set its title, fill
its clipboard, move its cursor or send keys.
"""

from __future__ import annotations

import json

from halter.visible import visible

# They join or vary the emoji before them. Terminals disagree on how wide the result is, and lines drift.
_DROPPED: dict[int, str | None] = dict.fromkeys((0x0D, 0x200C, 0x200D, 0xFE0E, 0xFE0F))


def safe(text: str) -> str:
    """The text with every control and invisible character written out (`\\u001b`); tabs and line feeds stay.

    Carriage returns, joiners and variants of emoji are left out.
    """
    return visible(text if text.isascii() and "\r" not in text else text.translate(_DROPPED))


def safe_line(text: str, longest: int = 0) -> str:
    """The text as one line, at most `longest` characters of it if that is not 0."""
    line = " ".join(safe(text).split())
    return line if not longest or len(line) <= longest else line[: longest - 1] + "…"


def safe_json(text: str) -> str:
    """JSON text with the same value, whose invisible characters are JSON's escapes."""
    return text if text.isascii() else "".join(c if visible(c) == c else json.dumps(c)[1:-1] for c in text)
