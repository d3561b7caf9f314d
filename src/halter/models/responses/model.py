"""`OpenAIResponses`: OpenAI's Responses, and every server that speaks that format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from halter.core.context import RunContext
from halter.core.ports import HttpRequest
from halter.errors import ConfigurationError
from halter.features import NO_DOCUMENTS, WEB_IMAGES, Features
from halter.messages import Opaque
from halter.models.conversation import is_theirs
from halter.models.format import Format
from halter.models.http_model import HttpModel
from halter.models.openai import FAMILY, OpenAIChat, account_headers, check_reasoning, is_openai
from halter.models.responses.background import Background
from halter.models.responses.frames import fields_of
from halter.models.responses.input import is_bound
from halter.models.responses.request import Ways, responses_body
from halter.models.responses.tools import checked_tools, secrets_in
from halter.models.responses.wire import ResponsesWire
from halter.request import ModelRequest, Settings

RESPONSES_FEATURES = Features(
    settings=frozenset(("max_output_tokens", "temperature", "top_p", "reasoning_effort", "parallel_tool_calls")),
    images=True,
    files=True,
    image_types=WEB_IMAGES,
    refused_files=NO_DOCUMENTS,
    tools=True,
    tool_choice=True,
    output=True,
)


class OpenAIResponses(HttpModel):
    """OpenAI's Responses, or with `base_url` any server of that format. Further arguments: see `HttpModel`.

    Address, key and account come from the same environment variables as for `OpenAIChat`. Nothing is stored at the
    server: the conversation is sent each time, with the model's encrypted reasoning.

    `reasoning_summary`: asks for a readable summary of the reasoning. `built_in_tools`: tools that the server runs
    itself, in its own words, as in `[{"type": "web_search"}]`. `background=True`: the server works, and stores the
    answer, whether or not the connection lives. A connection that breaks is made anew and goes on where it was; a stop
    cancels the work at the server too. Until the server has told the answer's id, in its first event, it cannot. It may
    be silent for as long as the server says that it is at work: set `Timeouts(total=)`, or the run's `timeout`.
    """

    server = msgspec.structs.replace(OpenAIChat.server, prefix="openai-responses")
    family = FAMILY
    features = RESPONSES_FEATURES
    schema_path = ("text", "format")

    def __init__(
        self,
        model: str,
        *,
        reasoning_summary: Literal["auto", "concise", "detailed"] | None = None,
        built_in_tools: Iterable[Mapping[str, Any]] = (),
        background: bool = False,
        **options: Any,
    ) -> None:
        if reasoning_summary not in (None, "auto", "concise", "detailed"):
            raise ConfigurationError("reasoning_summary must be 'auto', 'concise', 'detailed' or None")
        if background and not options.get("stream", True):
            raise ConfigurationError("background=True streams its answer: leave stream=False out")
        tools = checked_tools(built_in_tools)
        self._secrets = tuple(sorted(secrets_in(tools), key=len, reverse=True))
        super().__init__(model, **options)
        self._background = background
        self._ways = Ways(
            provider=self._wire.provider,
            stream=self._stream,
            background=background,
            summary=reasoning_summary,
            built_in_tools=tools,
            wants_reasoning=self._limits.reasons,
        )

    def _authorization(self, key: str) -> dict[str, str]:
        return super()._authorization(key) | account_headers()

    def _route(self) -> str:
        return "/responses"

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        return responses_body(request, model=self._model, ways=self._ways)

    def _check_settings(self, settings: Settings) -> None:
        if is_openai(self._base):
            check_reasoning(settings, self._name, self._limits)

    def _is_bound(self, part: Opaque) -> bool:
        return is_theirs(part, self._wire.provider) and is_bound(fields_of(part.data))

    def _has_own_tools(self) -> bool:
        return bool(self._ways.built_in_tools)

    def _make_wire(self, key: str) -> ResponsesWire:
        return ResponsesWire(self._name, provider=f"responses:{self._base.hostname}", key=key, secrets=self._secrets)

    def _wire_for(self, asked: HttpRequest, ctx: RunContext) -> Format:
        wire = self._wire_of(asked)
        if not self._background or not isinstance(wire, ResponsesWire):
            return wire
        return Background(wire, asked, ctx, self._http.source)
