"""`OpenAIChat`: OpenAI's chat completions, and every server that speaks that format."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

import msgspec

from halter.core.context import RunContext
from halter.core.ports import ByteSource, HttpRequest
from halter.errors import ConfigurationError
from halter.messages import Message, ModelRequest
from halter.models.chat_request import encode_request
from halter.models.chat_wire import ChatWire
from halter.models.http import Http, Timeouts

DEFAULT_BASE_URL = "https://api.openai.com/v1"
_OPENAI_HOST = "api.openai.com"
# Environment variable → header, as in the official SDK.
_ACCOUNT = {"OPENAI_ORG_ID": "OpenAI-Organization", "OPENAI_PROJECT_ID": "OpenAI-Project"}


class Headers(dict[str, str]):
    """Headers whose `repr` shows names only: a value may be a key."""

    def __repr__(self) -> str:
        return f"<Headers {', '.join(self)}>"


class OpenAIChat:
    """A model behind a chat completions endpoint; immutable, serves any number of runs at once.

    `model`: its name at the provider. `base_url`: up to and without `/chat/completions`; else `OPENAI_BASE_URL`, else
    OpenAI's own. `api_key`: else `OPENAI_API_KEY`, which, as with the official SDK, is sent to whatever server
    `base_url` names; `""` sends none. Only OpenAI's own server cannot do without. `stream`: `False` asks for the
    answer in one piece. `max_retries`: how often a request is repeated while nothing was shown. `connections`: at
    once to one host, 0 for no limit. `headers`: more headers, or other values for ours. `extra_body`: more fields for
    each request, or other values for ours; a field given as `None` is left out. `source`: another way to the bytes.

    Organisation and project come from `OPENAI_ORG_ID` and `OPENAI_PROJECT_ID`. Raises `ConfigurationError` for a
    missing key and for arguments that cannot work; no error and no `repr` shows the key.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        stream: bool = True,
        max_retries: int = 2,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - frozen
        connections: int = 0,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        source: ByteSource | None = None,
    ) -> None:
        if not isinstance(model, str) or not model.strip():
            raise ConfigurationError(f"the model must be a name such as 'gpt-5.2', not {model!r}")
        base = _base_url(base_url)
        key = _key(api_key, base)
        self._model = model
        self._stream = stream
        self._url = urlunsplit(base._replace(path=f"{base.path.rstrip('/')}/chat/completions", fragment=""))
        self._headers = _headers(key, headers, stream=stream)
        self._extra_body = _encodable(dict(extra_body or {}))
        self._wire = ChatWire(f"openai:{model}", provider=f"chat:{base.hostname}", key=key)
        self._http = Http(timeouts=timeouts, max_retries=max_retries, connections=connections, source=source)

    @property
    def name(self) -> str:
        return self._wire.name

    async def respond(self, request: ModelRequest, ctx: RunContext) -> Message:
        """Streams one answer and returns it whole. Raises `ProviderError`. Cancelled, it leaves no connection."""
        return await self._http.ask(self._request(request), ctx, self._wire)

    def _request(self, request: ModelRequest) -> HttpRequest:
        body = encode_request(
            request,
            model=self._model,
            provider=self._wire.provider,
            stream=self._stream,
            extra=self._extra_body,
        )
        return HttpRequest(url=self._url, headers=self._headers, body=body)

    def __repr__(self) -> str:
        place = self._url.split("?")[0].removesuffix("/chat/completions")
        shown = "" if place == DEFAULT_BASE_URL else f", base_url={place!r}"
        return f"OpenAIChat({self._model!r}{shown})"


def _base_url(given: str | None) -> SplitResult:
    where = "base_url" if given is not None else "OPENAI_BASE_URL"
    text = (given if given is not None else os.environ.get("OPENAI_BASE_URL", "")).strip()
    if not text and given is None:
        text = DEFAULT_BASE_URL
    try:
        base = urlsplit(text)
        is_usable = base.scheme in ("http", "https") and bool(base.hostname) and (base.port or 1) > 0
    except ValueError:
        is_usable = False
        base = SplitResult("", "", "", "", "")
    if "@" in base.netloc:
        raise ConfigurationError(f"{where} holds a user or a password; give an Authorization header by `headers`")
    if not is_usable:
        raise ConfigurationError(f"{where} must be a URL such as {DEFAULT_BASE_URL!r}, not {text!r}")
    return base


def _key(given: str | None, base: SplitResult) -> str:
    """The key, or `""` where none is needed. A line end behind it, as from a file, is not part of it."""
    where = "api_key" if given is not None else "OPENAI_API_KEY"
    key = (given if given is not None else os.environ.get("OPENAI_API_KEY", "")).strip()
    if not key and base.hostname == _OPENAI_HOST:
        raise ConfigurationError(f"no API key for {_OPENAI_HOST}: set OPENAI_API_KEY, or give api_key=…")
    if not _is_header_value(key) or " " in key:
        raise ConfigurationError(f"{where} holds a character that no key has: a space, a line end, or the like")
    return key


def _headers(key: str, given: Mapping[str, str] | None, *, stream: bool) -> Headers:
    """Ours, and over them the given ones, whatever their case."""
    ours = {
        "Content-Type": "application/json",
        "Accept": "text/event-stream" if stream else "application/json",
        "User-Agent": "halter",
    }
    if key:
        ours["Authorization"] = f"Bearer {key}"
    for variable, name in _ACCOUNT.items():
        if value := os.environ.get(variable, "").strip():
            ours[name] = value
    theirs = dict(given or {})
    replaced = {name.lower() for name in theirs}
    headers = {name: value for name, value in ours.items() if name.lower() not in replaced} | theirs
    for name, value in headers.items():
        if not isinstance(value, str) or not _is_header_value(value):
            raise ConfigurationError(f"the header {name!r} must be one line of ASCII text")
    return Headers(headers)


def _is_header_value(value: str) -> bool:
    return value.isascii() and (value.isprintable() or not value)


def _encodable(extra: dict[str, Any]) -> dict[str, Any]:
    try:
        msgspec.json.encode(extra)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"extra_body must be JSON: {error}") from error
    return extra
