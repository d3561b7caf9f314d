"""Counts of tokens as providers send them: some say -1 for what they do not know, and some what cannot be."""

from __future__ import annotations

from typing import Final

_MOST: Final = 10**12  # tokens: no answer has more, and whatever is reckoned with them stays a number


def tokens(count: float | None) -> int:
    """The count; 0, as for none, for what is no count. Tokens that nobody has counted are estimated."""
    return int(count) if count is not None and 0 <= count <= _MOST else 0
