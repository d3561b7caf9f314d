"""`AzureOpenAIResponses`: OpenAI's Responses of a deployment in Azure, at its v1 route."""

from __future__ import annotations

from typing import Any

import msgspec

from halter.errors import ConfigurationError
from halter.models.azure_access import AZURE, AzureAccess, checked_version, described, is_dated
from halter.models.responses.model import OpenAIResponses
from halter.models.responses.wire import ResponsesWire


class AzureOpenAIResponses(AzureAccess, OpenAIResponses):
    """A deployment of Azure OpenAI, by Responses. `model`: the deployment's name.

    Endpoint, key and tokens: as for `AzureOpenAI`. Reasoning summaries, built-in tools and `background`: as for
    `OpenAIResponses`. `api_version`: `preview`, or none; only the v1 route has Responses.

    Raises `ConfigurationError` for a date as `api_version`, and for what `AzureOpenAI` and `OpenAIResponses` refuse.
    """

    server = msgspec.structs.replace(AZURE, prefix="azure-responses")

    def __init__(self, model: str, **options: Any) -> None:
        if is_dated(version := checked_version(options.get("api_version"))):
            raise ConfigurationError(
                f"api_version {version!r} takes the deployments route, which has no Responses: give api_version='', or "
                "use AzureOpenAI"
            )
        super().__init__(model, **options)

    def _route(self) -> str:
        return "/openai/v1/responses"

    def _make_wire(self, key: str) -> ResponsesWire:
        provider = f"responses:{self._base.hostname}"
        return AzureResponsesWire(self._name, provider=provider, key=key or self._token, secrets=self._secrets)


class AzureResponsesWire(ResponsesWire):
    """Responses whose refusals say which content filter did it."""

    __slots__ = ()

    def describe_error(self, body: bytes) -> tuple[str, str | None]:
        return described(body, *super().describe_error(body))
