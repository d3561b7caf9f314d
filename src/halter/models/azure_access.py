"""How one gets to a deployment in Azure, and is let in (https://learn.microsoft.com/azure/ai-foundry/openai/).

Two routes: `/openai/v1`, and with an `api_version` `/openai/deployments/…`. Two ways in: a key, or tokens of Microsoft
Entra ID.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from inspect import isawaitable, iscoroutinefunction
from typing import Any, TypeAlias, cast
from urllib.parse import quote

from halter.core.ports import HttpRequest
from halter.core.threads import call_in_thread
from halter.errors import AuthenticationFailed, ConfigurationError, HalterError, StreamTimeout
from halter.models.endpoint import Headers, Server, is_header_value
from halter.models.format import Format
from halter.models.http_model import HttpModel
from halter.models.lenient_json import read_json

TokenProvider: TypeAlias = Callable[[], "str | Awaitable[str]"]
AZURE = Server(
    prefix="azure",
    base_url=None,
    base_url_variable="AZURE_OPENAI_ENDPOINT",
    key_variables=("AZURE_OPENAI_API_KEY",),
)


class AzureAccess(HttpModel):
    """What deployments have in common, whichever API they are asked by. Arguments: see `AzureOpenAI`."""

    server = AZURE

    def __init__(
        self,
        model: str,
        *,
        api_version: str | None = None,
        api_key: str | None = None,
        ad_token: str | None = None,
        token_provider: TokenProvider | None = None,
        **options: Any,
    ) -> None:
        self._api_version = checked_version(api_version)
        self._token_provider = token_provider
        self._token = _token(api_key, ad_token, token_provider)
        if self._token or token_provider is not None:
            api_key = ""
        super().__init__(model, api_key=api_key, **options)
        self._base = self._base._replace(path=_without_route(self._base.path))
        self._own_headers = {name.lower() for name in options.get("headers") or ()}
        if api_key is None and not {name.lower() for name in self._headers} & {"api-key", "authorization"}:
            raise ConfigurationError(f"{self._name} has no key: set AZURE_OPENAI_API_KEY, or give {_WAYS_IN}")

    @property
    def _is_dated(self) -> bool:
        return is_dated(self._api_version)

    def _authorization(self, key: str) -> dict[str, str]:
        if self._token:
            return {"Authorization": f"Bearer {self._token}"}
        return {"api-key": key} if key else {}

    def _query(self) -> str:
        return f"api-version={quote(self._api_version, safe='')}" if self._api_version else ""

    async def _request_headers(self) -> Mapping[str, str]:
        if self._token_provider is None or "authorization" in self._own_headers:
            return self._headers
        token = await self._in_time(_asked(self._token_provider, self._name))
        return Headers(self._headers | {"Authorization": f"Bearer {token}"})

    async def _in_time(self, asked: Coroutine[Any, Any, str]) -> str:
        limits = self._timeouts
        limit = min((each for each in (limits.first_token, limits.total) if each is not None), default=None)
        scope = asyncio.timeout(limit)
        try:
            async with scope:
                return await asked
        except TimeoutError as error:
            if not scope.expired():
                raise
            message = f"{self._name}: the token provider gave no token for {limit:.1f} s (token time-out)"
            raise StreamTimeout(message, phase="token") from error

    def _wire_of(self, asked: HttpRequest) -> Format:
        """A wire that keeps this request's own token out of every error."""
        if self._token_provider is None:
            return super()._wire_of(asked)
        return self._make_wire(asked.headers.get("Authorization", "").removeprefix("Bearer "))


_WAYS_IN = "api_key=…, ad_token=… or token_provider=…"


def checked_version(given: str | None) -> str:
    version = os.environ.get("OPENAI_API_VERSION", "") if given is None else given
    version = version.strip()
    if version == "v1":  # the name of the route itself
        return ""
    if not (version.isascii() and version.replace("-", "").isalnum()) and version:
        raise ConfigurationError(f"api_version must be one such as '2024-10-21' or 'preview', not {version!r}")
    return version


def is_dated(api_version: str) -> bool:
    """Whether it takes the deployments route: a date does, `preview` or none does not."""
    return api_version[:1].isdigit()


def _token(api_key: str | None, ad_token: str | None, token_provider: TokenProvider | None) -> str:
    """The fixed token, given or from the environment, or `""`. Raises `ConfigurationError` for two ways in at once."""
    given = [way for way in (api_key, ad_token, token_provider) if way is not None]
    if len(given) > 1:
        raise ConfigurationError(f"give only one of {_WAYS_IN}")
    if token_provider is not None and not callable(token_provider):
        raise ConfigurationError("token_provider must be a function without arguments that returns a token")
    token = ad_token if given else os.environ.get("AZURE_OPENAI_AD_TOKEN", "")
    token = (token or "").strip()
    if not is_header_value(token) or " " in token:
        raise ConfigurationError("ad_token holds a character that no token has: a space, a line end, or the like")
    return token


def _without_route(path: str) -> str:
    """The resource's own path: an endpoint is often copied with `/openai` or `/openai/v1` behind it."""
    if "/openai/deployments/" in f"{path}/":
        raise ConfigurationError("base_url holds a deployment: give the resource's endpoint, and the name as model")
    return path.removesuffix("/v1").removesuffix("/openai") if path.endswith(("/openai", "/openai/v1")) else path


async def _asked(provider: TokenProvider, name: str) -> str:
    try:
        token = await _called(provider)
        if asyncio.isfuture(token):
            token = await asyncio.shield(token)
        elif isawaitable(token):
            token = await token
    except HalterError:
        raise
    except asyncio.CancelledError as error:
        if _is_stopped():
            raise
        raise AuthenticationFailed(f"{name}: the token provider was cancelled, and not by us") from error
    except Exception as error:
        raise AuthenticationFailed(f"{name}: the token provider failed: {type(error).__name__}: {error}") from error
    if not isinstance(token, str) or not token or not is_header_value(token):
        raise AuthenticationFailed(f"{name}: the token provider must return a token as text of one line")
    return token


async def _called(provider: TokenProvider) -> Any:
    """What it returns; a plain function runs in a thread, because it may wait for the network."""
    is_async = iscoroutinefunction(provider) or iscoroutinefunction(getattr(provider, "__call__", None))  # noqa: B004
    return provider() if is_async else await call_in_thread(provider)


def _is_stopped() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def described(body: bytes, message: str, code: str | None) -> tuple[str, str | None]:
    """An error's message and code, with the content filters that refused, where there were any."""
    inner = _inner_error(body)
    filters = _filters(inner)
    if filters:
        message = f"{message} (filtered: {', '.join(filters)})"
    is_told = code is not None and not code.isdigit()  # a bare status tells less than the inner code
    return message, code if is_told else inner.get("code", code)


def _inner_error(body: bytes) -> dict[str, Any]:
    """Azure's `innererror`, where there is one: `{"code": "ResponsibleAIPolicyViolation", "content_filter_result"}`."""
    try:
        value = read_json(body)
    except ValueError:
        return {}
    match value:
        case {"error": {"innererror": {"code": str()} as inner}}:
            return cast("dict[str, Any]", inner)
        case _:
            return {}


def _filters(inner: dict[str, Any]) -> list[str]:
    """The filters that refused, as in `violence`."""
    found = inner.get("content_filter_result")
    results = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    return [name for name, result in results.items() if _has_filtered(result)]


def _has_filtered(result: Any) -> bool:
    match result:
        case {"filtered": True}:
            return True
        case _:
            return False
