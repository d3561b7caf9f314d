"""The model adapters under test. A new one is one more line in `ADAPTERS`, and every scenario here runs for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from halter import Agent
from halter.core.ports import Model
from halter.models import Anthropic, AzureOpenAI, AzureOpenAIResponses, Gemini, OpenAIChat, OpenAIResponses

KEY = "sk-very-secret-0123456789"


@dataclass(frozen=True)
class Adapter:
    """`model(base_url, **options)` makes one; `options` are those that every adapter takes.

    (`api_key`, `stream`, `max_retries`, `timeouts`, `connections`, `source`.)
    """

    name: str
    model: Callable[..., Model]

    def agent(self, base_url: str, *, name: str = "agent", max_turns: int = 100, **options: Any) -> Agent:
        return Agent(self.model(base_url, **options), name=name, max_turns=max_turns)


def _openai_chat(base_url: str, **options: Any) -> Model:
    return OpenAIChat("test-model", base_url=base_url, **{"api_key": KEY, **options})


def _azure(base_url: str, **options: Any) -> Model:
    endpoint = base_url.removesuffix("/v1")  # its routes bring their own /openai/v1
    return AzureOpenAI("test-model", base_url=endpoint, **{"api_key": KEY, **options})


def _azure_responses(base_url: str, **options: Any) -> Model:
    endpoint = base_url.removesuffix("/v1")
    return AzureOpenAIResponses("test-model", base_url=endpoint, **{"api_key": KEY, **options})


def _gemini(base_url: str, **options: Any) -> Model:
    return Gemini("test-model", base_url=base_url, **{"api_key": KEY, **options})


def _anthropic(base_url: str, **options: Any) -> Model:
    return Anthropic("test-model", base_url=base_url, **{"api_key": KEY, **options})


def _openai_responses(base_url: str, **options: Any) -> Model:
    return OpenAIResponses("test-model", base_url=base_url, **{"api_key": KEY, **options})


ADAPTERS = [
    Adapter("openai-chat", _openai_chat),
    Adapter("openai-responses", _openai_responses),
    Adapter("azure", _azure),
    Adapter("azure-responses", _azure_responses),
    Adapter("gemini", _gemini),
    Adapter("anthropic", _anthropic),
]
