"""`OpenAIChat`: OpenAI's chat completions, and every server that speaks that format as OpenAI does."""

from __future__ import annotations

import os
from urllib.parse import SplitResult

from halter.models.chat.model import ChatModel
from halter.models.endpoint import Server

_HOST = "api.openai.com"
# Environment variable → header, as in the official SDK.
_ACCOUNT = {"OPENAI_ORG_ID": "OpenAI-Organization", "OPENAI_PROJECT_ID": "OpenAI-Project"}


def account_headers() -> dict[str, str]:
    """Organisation and project, as far as the environment names them."""
    account = {header: os.environ.get(name, "").strip() for name, header in _ACCOUNT.items()}
    return {header: value for header, value in account.items() if value}


def is_openai(place: SplitResult) -> bool:
    """Whether this address is OpenAI's own, in any of its regions (`eu.api.openai.com`)."""
    host = place.hostname or ""
    return host == _HOST or host.endswith(f".{_HOST}")


class OpenAIChat(ChatModel):
    """OpenAI's chat completions, or with `base_url` any server of that format. Arguments: see `HttpModel`.

    The address comes from `OPENAI_BASE_URL`, the key from `OPENAI_API_KEY`, which, as with the official SDK, is sent
    to whatever server `base_url` names; only OpenAI's own cannot do without. Organisation and project come from
    `OPENAI_ORG_ID` and `OPENAI_PROJECT_ID`. For servers with ways of their own, `compatible.py` has a table.
    """

    server = Server(
        prefix="openai",
        base_url="https://api.openai.com/v1",
        base_url_variable="OPENAI_BASE_URL",
        key_variables=("OPENAI_API_KEY",),
    )

    def _authorization(self, key: str) -> dict[str, str]:
        return super()._authorization(key) | account_headers()
