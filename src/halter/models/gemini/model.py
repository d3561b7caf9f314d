"""`Gemini`: Google's Gemini API, `generateContent` and its stream."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, urlunsplit

from halter.features import Features
from halter.messages import Opaque
from halter.models.conversation import is_theirs
from halter.models.endpoint import Server
from halter.models.gemini.parts import PROVIDER, fields_of
from halter.models.gemini.request import SETTINGS, check_settings, gemini_body
from halter.models.gemini.wire import GeminiWire
from halter.models.http_model import HttpModel
from halter.request import ModelRequest, Settings

_VERSION = re.compile(r"/v\d+(alpha|beta)?\d*(/|$)")


class Gemini(HttpModel):
    """Google's Gemini API. Arguments: see `HttpModel`.

    The address comes from `GOOGLE_GEMINI_BASE_URL`, the key from `GOOGLE_API_KEY` or else `GEMINI_API_KEY`, as with
    the official SDK. An address without a version (`/v1`, `/v1beta`) gets `/v1beta`. Google's own tools are given as
    `extra_body={"tools": [{"googleSearch": {}}]}`, and join those of an agent; fields of `generationConfig` and
    `toolConfig` join ours likewise.
    """

    server = Server(
        prefix="gemini",
        base_url="https://generativelanguage.googleapis.com/v1beta",
        base_url_variable="GOOGLE_GEMINI_BASE_URL",
        key_variables=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    )
    family = "gemini"
    features = Features(settings=SETTINGS, images=True, files=True, tools=True, tool_choice=True, output=True)
    schema_path = ("generationConfig", "responseJsonSchema")

    def _authorization(self, key: str) -> dict[str, str]:
        return {"x-goog-api-key": key} if key else {}

    def _route(self) -> str:
        name = self._model if self._model.startswith(("models/", "tunedModels/")) else f"models/{self._model}"
        method = "streamGenerateContent" if self._stream else "generateContent"
        return f"{self._version()}/{quote(name)}:{method}"

    def _query(self) -> str:
        return "alt=sse" if self._stream else ""

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        address = urlunsplit(self._base._replace(path=f"{self._base.path}{self._version()}", query=""))
        return gemini_body(request, model=self._model, address=address)

    def _check_settings(self, settings: Settings) -> None:
        check_settings(settings, self._model)

    def _has_own_tools(self) -> bool:
        return bool(self._extra_body.get("tools"))

    def _is_bound(self, part: Opaque) -> bool:
        """Thought signatures; the model's own words stay."""
        return is_theirs(part, PROVIDER) and "added" in fields_of(part)

    def _make_wire(self, key: str) -> GeminiWire:
        return GeminiWire(self._name, provider=PROVIDER, key=key)

    def _version(self) -> str:
        """What the base URL lacks of one."""
        return "" if _VERSION.search(self._base.path) else "/v1beta"
