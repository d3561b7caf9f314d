"""What all models behind HTTP have in common: where they are, who asks, and how a request becomes one answer.

An adapter says its server, its features, its route, its body and its wire; the rest is here, once.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import SplitResult, urlunsplit

import msgspec

from halter.core.context import RunContext
from halter.core.metering import Allowance
from halter.core.ports import ByteSource, HttpRequest, Price
from halter.errors import ConfigurationError
from halter.features import Features
from halter.messages import Message, Opaque
from halter.models.answer_mode import Shaped, shaped
from halter.models.answer_tool import AnswerToolFormat
from halter.models.conversation import with_own_reasoning
from halter.models.endpoint import Server, encodable, headers_over
from halter.models.extra import with_extra
from halter.models.format import Format
from halter.models.http import Http, Timeouts
from halter.models.lenient_json import without_lone_surrogates
from halter.models.limits import Limits, limits_of
from halter.models.prices import max_output, price_of
from halter.request import ModelRequest, Settings, ToolChoice, ToolSpec


class HttpModel:
    """A model behind an HTTP endpoint; immutable, serves any number of runs at once.

    `model`: its name at the provider. `base_url`, `api_key`: else from the environment, else the provider's own; `""`
    as key sends none. `settings`: for each request, unless an agent says otherwise. `stream`: `False` asks for the
    answer in one piece. `max_retries`: how often a request is repeated while nothing was shown. `timeouts`: seconds
    for each phase. `connections`: at once to one host, 0 for no limit. `ca_file`: a CA bundle to trust instead of
    the system's. `headers`: more headers, or other values for ours. `extra_body`: more fields for each request, or
    other values for ours: objects are merged field by field, `tools` added to ours, and a field given as `None` is left
    out; the schema of `output=` cannot be changed. `price`: what its tokens cost, for `result.cost` and for
    budgets in dollars. `source`: another way to the bytes.

    Raises `ConfigurationError` for a missing key, for what the provider cannot do, and for arguments that cannot
    work; no error and no `repr` shows the key.
    """

    server: Server
    features: Features
    family: str = ""  # whose rows of `limits.py` hold for its models
    schema_path: tuple[str, ...] = ()  # where the answer's schema stands in a body

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        settings: Settings = Settings(),  # noqa: B008 - frozen
        stream: bool = True,
        max_retries: int = 2,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - frozen
        connections: int = 0,
        ca_file: str | None = None,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        price: Price | None = None,
        source: ByteSource | None = None,
    ) -> None:
        if not isinstance(model, str) or not model.strip():
            raise ConfigurationError(f"the model must be a name such as 'gpt-5.2', not {model!r}")
        _check(
            settings=(settings, Settings, "a Settings"),
            stream=(stream, bool, "True or False"),
            timeouts=(timeouts, Timeouts, "a Timeouts"),
            ca_file=(ca_file, str | os.PathLike | None, "the path of a file"),
        )
        _whole_number("max_retries", max_retries)
        _whole_number("connections", connections)
        self._model = model
        self._stream = stream
        self._name = f"{self.server.prefix}:{model}"
        self._base = self.server.place(base_url)
        self.features.check(self._name, settings)
        self._check_settings(settings)
        self._settings = settings
        self._price = _checked_price(price)
        key = self.server.key(api_key, self._base)
        self._headers = headers_over(_common_headers(stream=stream) | self._authorization(key), headers)
        self._extra_body = encodable(extra_body)
        self._wire = self._make_wire(key)
        self._timeouts = timeouts
        self._http = Http(
            timeouts=timeouts, max_retries=max_retries, connections=connections, ca_file=ca_file, source=source
        )

    # --- what an adapter says -------------------------------------------------------------------------------

    def _authorization(self, key: str) -> dict[str, str]:
        """The headers by which it is let in, and others that each request has."""
        return {"Authorization": f"Bearer {key}"} if key else {}

    def _route(self) -> str:
        """The path behind the base URL."""
        raise NotImplementedError

    def _query(self) -> str:
        """What stands behind the `?`; kept in front of it is what the base URL had."""
        return ""

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        """The request in the provider's words; its settings are complete. Raises `ConfigurationError`."""
        raise NotImplementedError

    def _check_settings(self, settings: Settings) -> None:
        """What the provider takes of each setting, and which go together: its own, then those of each request.

        They are as they were given, before a budget lowers them. Raises `ConfigurationError`.
        """

    def _check_choice(self, settings: Settings, choice: ToolChoice | None) -> None:
        """Whether the model can be told to call a tool in this way. Raises `ConfigurationError`."""

    def _can_force_tools(self, settings: Settings) -> bool:
        """Whether it can be told to call some tool."""
        return self.features.tool_choice and self._limits.forced_tools

    def _is_bound(self, part: Opaque) -> bool:
        """Whether only the very model that made this takes it back: signed or encrypted reasoning."""
        return False

    def _usual_output(self, settings: Settings) -> int | None:
        """The most output that it asks for where the settings do not say; `None`: the provider decides."""
        return None

    def _has_own_tools(self) -> bool:
        """Whether tools that the provider runs itself are in each request."""
        return False

    def _make_wire(self, key: str) -> Format:
        raise NotImplementedError

    def _wire_of(self, asked: HttpRequest) -> Format:
        """The wire of one request, which may have a key of its own."""
        return self._wire

    def _wire_for(self, asked: HttpRequest, ctx: RunContext) -> Format:
        """The wire of one request, where it has to know more than its model's."""
        return self._wire_of(asked)

    async def _request_headers(self) -> Mapping[str, str]:
        """The headers of one request, for those who are let in by a token that expires. Raises `ProviderError`."""
        return self._headers

    @property
    def _limits(self) -> Limits:
        """What the model itself takes, whatever its provider has words for."""
        return limits_of(self.family, self._model)

    # --- for all --------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """As in `openai:gpt-5.2`."""
        return self._name

    @property
    def settings(self) -> Settings:
        return self._settings

    @property
    def price(self) -> Price | None:
        """What its tokens cost: as given, else as `prices.py` knows it; `None` if that is not known."""
        return self._price if self._price is not None else price_of(self._name)

    async def respond(self, request: ModelRequest, ctx: RunContext) -> Message:
        """Streams one answer and returns it whole. Raises `ProviderError`. Cancelled, it leaves no connection."""
        request = msgspec.structs.replace(request, settings=request.settings.over(self._settings))
        self._check_settings(request.settings)
        request, answer_tool = self._shaped(request)
        request, allowance = self._within_budget(request, ctx)
        asked = self._http_request(request)
        asked = msgspec.structs.replace(asked, headers=await self._request_headers())
        wire = self._wire_for(asked, ctx)
        wire = AnswerToolFormat(wire, answer_tool) if answer_tool else wire
        return await self._http.ask(asked, ctx, wire, allowance)

    def check_definition(
        self, settings: Settings, *, tools: Collection[ToolSpec] = (), tool_choice: ToolChoice | None = None
    ) -> None:
        """Checks what an agent wants of the model, before anything runs.

        Args:
            settings: The agent's; they go over the model's own.
            tools: What the model may call.
            tool_choice: As in a `ModelRequest`.

        Raises:
            ConfigurationError: The model refuses a setting, two of them together, or the choice.
        """
        settings = settings.over(self._settings)
        self._check_settings(settings)
        if tools:
            self._check_choice(settings, tool_choice)

    def _shaped(self, request: ModelRequest) -> Shaped:
        """The request as this model takes it: without other models' reasoning, its answer held as the model can."""
        request = with_own_reasoning(request, self._name, self._is_bound, reasons=self._limits.reasons)
        return shaped(
            request,
            self._limits,
            stream=self._stream,
            has_own_tools=self._has_own_tools(),
            can_force_tools=self._can_force_tools(request.settings),
        )

    def _within_budget(self, request: ModelRequest, ctx: RunContext) -> tuple[ModelRequest, Allowance]:
        """The request for no more output than the budgets over the run leave."""
        allowance = ctx.allowance(request, self.price)
        if allowance.ceiling is None or "max_output_tokens" not in self.features.settings:
            return request, allowance
        longest = self._usual_output(request.settings) or max_output(self._name)
        settings, allowance = allowance.lower(request.settings, longest)
        return msgspec.structs.replace(request, settings=settings), allowance

    def _http_request(self, request: ModelRequest) -> HttpRequest:
        self.features.check(
            self._name,
            request.settings,
            tools=request.tools,
            tool_choice=request.tool_choice,
            output=request.output,
            has_own_tools=self._has_own_tools(),
        )
        self.features.check_parts(self._name, request.messages)
        body = with_extra(self._body(request), self._extra_body, schema=self.schema_path)
        return HttpRequest(url=self._url(), headers=self._headers, body=encode_body(body), asked=request)

    def _url(self) -> str:
        query = "&".join(part for part in (self._base.query, self._query()) if part)
        return urlunsplit(self._base._replace(path=f"{self._base.path}{self._route()}", query=query))

    def __repr__(self) -> str:
        place = _without_query(self._base)
        shown = "" if place == self.server.base_url else f", base_url={place!r}"
        return f"{type(self).__name__}({self._model!r}{shown})"


def encode_body(body: Mapping[str, Any]) -> bytes:
    """The body as JSON; half a surrogate pair in somebody's text becomes a replacement character."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return msgspec.json.encode(without_lone_surrogates(msgspec.to_builtins(body)))


def _check(**given: tuple[object, Any, str]) -> None:
    """Each argument with its type, and what it should have been."""
    for name, (value, kind, wanted) in given.items():
        if not isinstance(value, kind):
            raise ConfigurationError(f"{name} must be {wanted}, not {type(value).__name__}")


def _whole_number(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigurationError(f"{name} must be a whole number, 0 or more, not {value!r}")


def _checked_price(price: Price | None) -> Price | None:
    if price is not None and not callable(getattr(price, "cost", None)):
        raise ConfigurationError(f"price must be a Price, not {type(price).__name__}")
    return price


def _common_headers(*, stream: bool) -> dict[str, str]:
    return {
        "Content-Type": "application/json",
        "Accept": "text/event-stream" if stream else "application/json",
        "User-Agent": "halter",
    }


def _without_query(base: SplitResult) -> str:
    return urlunsplit(base._replace(query=""))
