"""`Anthropic`: Claude, and every server that speaks Anthropic's messages."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from halter.core.context import RunContext
from halter.errors import IncompleteStream
from halter.features import NO_DOCUMENTS, WEB_IMAGES, Features
from halter.messages import PAUSED, Message, Opaque
from halter.models.anthropic.request import anthropic_body, max_tokens
from halter.models.anthropic.thinking import FAMILY, check_choice, check_settings, thinks_by_budget
from halter.models.anthropic.turns import THOUGHTS
from halter.models.anthropic.wire import AnthropicWire
from halter.models.conversation import is_theirs
from halter.models.endpoint import Server
from halter.models.http_model import HttpModel
from halter.request import ModelRequest, Settings, ToolChoice

# The version after it, 2026-10-21, only takes away: `temperature`, `top_p` and `top_k`, and mistakes that are not made
# here. See https://platform.claude.com/docs/en/api/versioning; `headers` may ask for another one.
API_VERSION = "2023-06-01"
MOST_CONTINUATIONS = 10
ANTHROPIC_FEATURES = Features(
    settings=frozenset(
        (
            "max_output_tokens",
            "temperature",
            "top_p",
            "top_k",
            "stop",
            "reasoning_effort",
            "reasoning_tokens",
            "parallel_tool_calls",
            "cache_prompt",
        )
    ),
    images=True,
    files=True,
    image_types=WEB_IMAGES,
    refused_files=NO_DOCUMENTS,
    tools=True,
    tool_choice=True,
    output=True,
)


class Anthropic(HttpModel):
    """Anthropic's messages, or with `base_url` any server of that format. Arguments: see `HttpModel`.

    The address comes from `ANTHROPIC_BASE_URL`, with or without `/v1` at its end; the key from `ANTHROPIC_API_KEY`,
    else a token from `ANTHROPIC_AUTH_TOKEN`, which is sent as a bearer's. `tools` in `extra_body`, which the provider
    runs itself, stand beside the agent's own.

    Without `max_output_tokens` an answer has 32,000 at most, or as many as an older model can write. A model that knows
    no `reasoning_effort` thinks by a budget instead. An answer that the provider pauses (`pause_turn`) is gone on with,
    up to ten times: each piece is a message.
    """

    server = Server(
        prefix="anthropic",
        base_url="https://api.anthropic.com",
        base_url_variable="ANTHROPIC_BASE_URL",
        key_variables=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    )
    features = ANTHROPIC_FEATURES
    family = FAMILY
    schema_path = ("output_config", "format")

    async def respond(self, request: ModelRequest, ctx: RunContext) -> Message:
        """Streams one answer and returns it whole, also one that was paused. Else as `HttpModel`.

        Raises `IncompleteStream` for an answer that is paused again and again.
        """
        pieces = [await super().respond(request, ctx)]
        while pieces[-1].finish_reason == PAUSED:
            if len(pieces) > MOST_CONTINUATIONS:
                raise IncompleteStream(f"{self.name} paused its answer more than {MOST_CONTINUATIONS} times")
            piece = msgspec.structs.replace(request, messages=(*request.messages, *pieces))
            pieces.append(await super().respond(piece, ctx))
        parts = tuple(part for piece in pieces for part in piece.parts)
        return msgspec.structs.replace(pieces[-1], parts=parts)

    def _authorization(self, key: str) -> dict[str, str]:
        version = {"anthropic-version": API_VERSION}
        if not key:
            return version
        return version | ({"Authorization": f"Bearer {key}"} if _is_token(key) else {"x-api-key": key})

    def _route(self) -> str:
        return "/messages" if self._base.path.endswith("/v1") else "/v1/messages"

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        return anthropic_body(request, model=self._model, provider=self._wire.provider, stream=self._stream)

    def _check_settings(self, settings: Settings) -> None:
        check_settings(settings, self._model)

    def _check_choice(self, settings: Settings, choice: ToolChoice | None) -> None:
        check_choice(settings, self._model, choice)

    def _can_force_tools(self, settings: Settings) -> bool:
        return super()._can_force_tools(settings) and not thinks_by_budget(settings, self._limits)

    def _is_bound(self, part: Opaque) -> bool:
        return is_theirs(part, self._wire.provider) and _kind_of(part.data) in THOUGHTS

    def _usual_output(self, settings: Settings) -> int:
        return max_tokens(settings, self._model, stream=self._stream)

    def _make_wire(self, key: str) -> AnthropicWire:
        return AnthropicWire(self._name, provider=f"anthropic:{self._base.hostname}", key=key)


def _kind_of(data: Any) -> str:
    match data:
        case {"type": str(kind)}:
            return kind
        case _:
            return ""


def _is_token(key: str) -> bool:
    return key == os.environ.get("ANTHROPIC_AUTH_TOKEN", "").strip() != os.environ.get("ANTHROPIC_API_KEY", "").strip()
