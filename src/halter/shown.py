"""Any value as text, for logs, errors and events: a `__str__` or `__repr__` that raises must not raise here."""

from __future__ import annotations

from typing import Any


def shown(value: Any) -> str:
    """Returns `repr(value)`; the name of its type where that raises or gives no text."""
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__}>"


def message_of(error: BaseException | None) -> str:
    """Returns `str(error)`; the name of its type where that raises or is empty."""
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__
