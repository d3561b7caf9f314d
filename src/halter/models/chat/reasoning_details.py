"""OpenRouter's `reasoning_details` (https://openrouter.ai/docs/use-cases/reasoning-tokens), while they are streamed.

A block of readable reasoning comes in fragments, its signature last; the provider wants whole blocks back, unchanged.
"""

from __future__ import annotations

from typing import Any, cast

_WORDS = {"reasoning.text": "text", "reasoning.summary": "summary"}


class ReasoningDetails:
    """Feed it fragments; `whole()` gives the blocks if the provider needs them back. Linear in the text."""

    __slots__ = ("_blocks", "_pieces", "_words")

    def __init__(self) -> None:
        self._blocks: list[dict[str, Any]] = []
        self._words: str | None = None  # the field of the last block that is still growing
        self._pieces: list[str] = []

    def add(self, fragments: list[Any]) -> str:
        """Keeps the fragments; returns what of them can be read."""
        known = (cast("dict[str, Any]", each) for each in fragments if isinstance(each, dict))
        return "".join([self._add(fragment) for fragment in known])

    def whole(self) -> list[dict[str, Any]] | None:
        """All blocks, or `None` if none is signed or encrypted."""
        self._settle()
        is_needed = any(block.get("signature") or block.get("data") for block in self._blocks)
        return self._blocks if is_needed else None

    def _add(self, fragment: dict[str, Any]) -> str:
        kind = fragment.get("type")
        words = _WORDS.get(kind) if isinstance(kind, str) else None
        if words is None or not self._continues(fragment):
            self._settle()
            self._blocks.append(dict(fragment))
            self._words, self._pieces = words, []
        else:
            told = {name: value for name, value in fragment.items() if value not in (None, "")}
            self._blocks[-1].update(told)
        text = fragment.get(words) if words else None
        if not isinstance(text, str):
            return ""
        self._pieces.append(text)
        return text

    def _continues(self, fragment: dict[str, Any]) -> bool:
        if self._words is None:
            return False
        last = self._blocks[-1]
        return all(last.get(name) == fragment.get(name) for name in ("type", "index"))

    def _settle(self) -> None:
        if self._words is not None and self._pieces:
            self._blocks[-1][self._words] = "".join(self._pieces)
