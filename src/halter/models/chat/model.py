"""What all models of the chat completions format have in common: the route, the body, the wire."""

from __future__ import annotations

from typing import Any

from halter.features import NO_DOCUMENTS, WEB_IMAGES, Features
from halter.messages import Opaque
from halter.models.chat.dialect import OPENAI, Dialect
from halter.models.chat.request import chat_body
from halter.models.chat.wire import ChatWire
from halter.models.conversation import is_theirs
from halter.models.http_model import HttpModel
from halter.request import ModelRequest

CHAT_FEATURES = Features(
    settings=frozenset(
        (
            "max_output_tokens",
            "temperature",
            "top_p",
            "stop",
            "seed",
            "presence_penalty",
            "frequency_penalty",
            "reasoning_effort",
            "parallel_tool_calls",
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


class ChatModel(HttpModel):
    """A model of this format; `dialect`: its server's own words."""

    features = CHAT_FEATURES
    schema_path = ("response_format",)
    dialect: Dialect = OPENAI

    def _route(self) -> str:
        return "/chat/completions"

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        return chat_body(
            request, model=self._model, provider=self._wire.provider, stream=self._stream, dialect=self.dialect
        )

    def _is_bound(self, part: Opaque) -> bool:
        """Signed reasoning (`reasoning_details`), and Google's signatures (`extra_content`)."""
        return is_theirs(part, self._wire.provider)

    def _make_wire(self, key: str) -> ChatWire:
        return ChatWire(self._name, provider=f"chat:{self._base.hostname}", key=key)
