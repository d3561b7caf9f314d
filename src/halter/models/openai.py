"""`OpenAIChat`: OpenAI's chat completions, and every server that speaks that format as OpenAI does."""

from __future__ import annotations

import os
from urllib.parse import SplitResult

from halter.errors import ConfigurationError
from halter.models.chat.model import ChatModel
from halter.models.endpoint import Server
from halter.models.limits import Limits, limits_of
from halter.request import Settings

FAMILY = "openai"
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


def check_reasoning(settings: Settings, name: str, limits: Limits) -> None:
    """Raises `ConfigurationError` for settings that OpenAI refuses while a model reasons.

    https://platform.openai.com/docs/guides/reasoning
    """
    effort = settings.reasoning_effort
    if effort == "none" and limits.reasons and not limits.can_stop_reasoning:
        raise ConfigurationError(f"{name} always reasons: leave reasoning_effort out, or set it to 'low'")
    if effort == "none" or not (effort is not None or limits.reasons_unasked):
        return
    for setting in ("temperature", "top_p"):
        if getattr(settings, setting) not in (None, 1):
            way_out = " set reasoning_effort='none' or" if limits.can_stop_reasoning else ""
            raise ConfigurationError(f"{name} takes no {setting} while it reasons:{way_out} leave {setting} out")


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

    def _check_settings(self, settings: Settings) -> None:
        if is_openai(self._base):
            check_reasoning(settings, self._name, limits_of(FAMILY, self._model))
