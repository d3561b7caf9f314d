"""Models: providers' streaming endpoints behind one method. Loaded when they are named."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from halter.models.anthropic.model import Anthropic as Anthropic
    from halter.models.azure import AzureOpenAI as AzureOpenAI
    from halter.models.azure_responses import AzureOpenAIResponses as AzureOpenAIResponses
    from halter.models.gemini.model import Gemini as Gemini
    from halter.models.http import Timeouts as Timeouts
    from halter.models.openai import OpenAIChat as OpenAIChat
    from halter.models.responses.model import OpenAIResponses as OpenAIResponses
    from halter.models.route import Fallback as Fallback
    from halter.models.scripted import Scripted as Scripted
    from halter.net.sockets import SocketSource as SocketSource
    from halter.request import Settings as Settings

_WHERE = {
    "Anthropic": "halter.models.anthropic.model",
    "AzureOpenAI": "halter.models.azure",
    "AzureOpenAIResponses": "halter.models.azure_responses",
    "Fallback": "halter.models.route",
    "Gemini": "halter.models.gemini.model",
    "OpenAIChat": "halter.models.openai",
    "OpenAIResponses": "halter.models.responses.model",
    "Scripted": "halter.models.scripted",
    "Settings": "halter.request",
    "SocketSource": "halter.net.sockets",
    "Timeouts": "halter.models.http",
}
__all__ = list(_WHERE)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'halter.models' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
