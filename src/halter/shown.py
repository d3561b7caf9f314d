"""Any value as text, for logs, errors and events: a `__str__` or `__repr__` that raises must not raise here."""

from __future__ import annotations

from typing import Any


def well_formed(text: str) -> str:
    """Returns the text with U+FFFD for each half of a surrogate pair, which names of files may hold: nothing encodes
    those."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def shown(value: Any) -> str:
    """Returns `repr(value)`; the name of its type where that raises or gives no text."""
    try:
        return well_formed(repr(value))
    except Exception:
        return f"<{type(value).__name__}>"


def message_of(error: BaseException | None) -> str:
    """Returns `str(error)`; the name of its type where that raises or is empty."""
    try:
        return well_formed(str(error)) or type(error).__name__
    except Exception:
        return type(error).__name__
