"""`AzureOpenAI`: chat completions of a deployment in Azure."""

from __future__ import annotations

from urllib.parse import quote

from halter.models.azure_access import AzureAccess, TokenProvider, described
from halter.models.chat.model import ChatModel
from halter.models.chat.wire import ChatWire

__all__ = ["AzureOpenAI", "AzureWire", "TokenProvider"]


class AzureOpenAI(AzureAccess, ChatModel):
    """A deployment of Azure OpenAI, by chat completions. `model`: its name. Other arguments: see `HttpModel`.

    `base_url`: the resource's endpoint, else `AZURE_OPENAI_ENDPOINT`. `api_version`: a date such as `2024-10-21` takes
    the deployments route; `preview`, or none, the v1 route; else `OPENAI_API_VERSION`, and `""` for none of both.

    One of `api_key`, `ad_token` and `token_provider`, else `AZURE_OPENAI_AD_TOKEN`, else `AZURE_OPENAI_API_KEY`, as
    the official SDK has it. `token_provider`: a function without arguments that returns a bearer token, or an
    awaitable of one; called for each answer. A plain function is called in a thread, so that it may wait; a stop leaves
    it. An `async` one, such as `azure.identity.aio.get_bearer_token_provider(…)`, is called on the event loop; a stop
    cancels it, but not a future that it has returned, which others may wait for too. What it raises is an
    `AuthenticationFailed`; if it takes longer than the time-out `first_token`, or `total`, a `StreamTimeout` with the
    phase `token`.
    """

    def _route(self) -> str:
        if self._is_dated:
            return f"/openai/deployments/{quote(self._model, safe='')}/chat/completions"
        return "/openai/v1/chat/completions"

    def _make_wire(self, key: str) -> ChatWire:
        return AzureWire(self._name, provider=f"chat:{self._base.hostname}", key=key or self._token)


class AzureWire(ChatWire):
    """Chat completions whose refusals say which content filter did it.

    What the filters found in an accepted prompt, and in the answer, stands in fields and frames that are skipped; an
    answer that they cut off has the finish reason `content_filter`.
    """

    __slots__ = ()

    def describe_error(self, body: bytes) -> tuple[str, str | None]:
        return described(body, *super().describe_error(body))
