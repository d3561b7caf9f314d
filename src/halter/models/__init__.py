"""Models: providers' streaming endpoints behind one method. Loaded when they are named."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from halter.models.http import Timeouts as Timeouts
    from halter.models.openai import OpenAIChat as OpenAIChat
    from halter.models.scripted import Scripted as Scripted
    from halter.models.sockets import SocketSource as SocketSource

_WHERE = {
    "OpenAIChat": "halter.models.openai",
    "Scripted": "halter.models.scripted",
    "SocketSource": "halter.models.sockets",
    "Timeouts": "halter.models.http",
}
__all__ = list(_WHERE)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'halter.models' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
