"""Which of OpenAI's APIs a name takes: Responses where the model needs it, chat completions everywhere else.

`limits.py` knows which models need Responses. A server that is not OpenAI's or Azure's may not have that API, so
another `base_url` always means chat completions.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

import msgspec

from halter.models.azure import AzureOpenAI
from halter.models.azure_access import checked_version, is_dated
from halter.models.azure_responses import AzureOpenAIResponses
from halter.models.http_model import HttpModel
from halter.models.limits import limits_of
from halter.models.openai import OpenAIChat, is_openai
from halter.models.responses.model import OpenAIResponses

M = TypeVar("M", bound=HttpModel)


def openai_model(model: str, **options: Any) -> OpenAIChat | OpenAIResponses:
    """The model behind `"openai:…"`.

    Args:
        model: Its name at OpenAI, such as `gpt-5.2`.
        options: As for `OpenAIChat`. `base_url`, or `OPENAI_BASE_URL`, decides the API together with the name.

    Raises:
        ConfigurationError: The key is missing, or an option cannot work.
    """
    if is_openai(OpenAIChat.server.place(options.get("base_url"))) and _needs_responses(model):
        return _named("openai", OpenAIResponses)(model, **options)
    return OpenAIChat(model, **options)


def openai_chat(model: str, **options: Any) -> OpenAIChat:
    """The model behind `"openai-chat:…"`: chat completions, whichever model it is. Raises `ConfigurationError`."""
    return _named("openai-chat", OpenAIChat)(model, **options)


def azure_model(model: str, **options: Any) -> AzureOpenAI | AzureOpenAIResponses:
    """The model behind `"azure:…"`.

    Args:
        model: The deployment's name. Responses is chosen only if it begins with the name of a model that needs it.
        options: As for `AzureOpenAI`. With a date as `api_version` the deployments route is taken, which has chat
            completions alone.

    Raises:
        ConfigurationError: The endpoint or the key is missing, or an option cannot work.
    """
    if _needs_responses(model) and not is_dated(checked_version(options.get("api_version"))):
        return _named("azure", AzureOpenAIResponses)(model, **options)
    return AzureOpenAI(model, **options)


def azure_chat(model: str, **options: Any) -> AzureOpenAI:
    """The model behind `"azure-chat:…"`: chat completions, whichever model it is. Raises `ConfigurationError`."""
    return _named("azure-chat", AzureOpenAI)(model, **options)


def _needs_responses(model: object) -> bool:
    return isinstance(model, str) and limits_of("openai", model).route == "responses"


@cache
def _named(prefix: str, kind: type[M]) -> type[M]:
    """The class under another prefix, so that a model has the name by which it was asked for."""
    fields: dict[str, Any] = {"server": msgspec.structs.replace(kind.server, prefix=prefix)}
    if issubclass(kind, OpenAIResponses):
        fields["features"] = msgspec.structs.replace(kind.features, other_name=f"{prefix}-chat")
    return type(kind.__name__, (kind,), fields | {"__module__": kind.__module__, "__doc__": kind.__doc__})
