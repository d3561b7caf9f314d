"""The words of a text, as every place where sessions are kept looks for them: the same in memory and in SQL. Pure."""

from __future__ import annotations

import re
import unicodedata

from halter.messages import Message, ToolResult

LONGEST_SHOWN = 10_000  # characters of a tool's result
LONGEST_WORD = 100  # characters, by which it is known; PostgreSQL takes 2,046 bytes

# Scripts that set no spaces between words: each character counts as one. Kana, and the ideographs.
_ALONE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
_WORD = re.compile(f"[{_ALONE}]|[^\\W_{_ALONE}]+")


def words(text: str) -> list[str]:
    """Its letters and digits, in order: without case, accents and signs; `Straße` is `strasse`."""
    return [word[:LONGEST_WORD] for word in _WORD.findall(_plain(text))]


def _plain(text: str) -> str:
    if text.isascii():
        return text.lower()
    parts = unicodedata.normalize("NFKD", text.casefold())
    return "".join(sign for sign in parts if not unicodedata.combining(sign)).casefold()


def shown_text(message: Message) -> str:
    """What a reader sees of a message: what was said by a user or an assistant, and what tools have returned."""
    if message.role == "tool":
        results = (part.content[:LONGEST_SHOWN] for part in message.parts if isinstance(part, ToolResult))
        return "\n".join(results)
    return message.text if message.role in ("user", "assistant") else ""
