"""Which model answers: the one that is named, else that of the first provider whose key is set."""

from __future__ import annotations

import os
from typing import Any

from halter.core.ports import Model
from halter.errors import ConfigurationError
from halter.models.names import resolve
from halter.terminal.config import Config

# A provider's key → the model that is used if no other is named.
BY_KEY: tuple[tuple[str, str], ...] = (
    ("ANTHROPIC_API_KEY", "anthropic:claude-sonnet-5-5"),
    ("OPENAI_API_KEY", "openai:gpt-5.2"),
    ("GEMINI_API_KEY", "gemini:gemini-3.8-flash"),
    ("GOOGLE_API_KEY", "gemini:gemini-3.8-flash"),
    ("MISTRAL_API_KEY", "mistral:mistral-large-latest"),
    ("GROQ_API_KEY", "groq:openai/gpt-oss-120b"),
)

NO_MODEL = """\
no model is set up yet. Three ways to begin:

  1. Set a provider's key, for example:
       export ANTHROPIC_API_KEY=...      (or OPENAI_API_KEY, GEMINI_API_KEY, MISTRAL_API_KEY, GROQ_API_KEY)
  2. Use a model on this machine, without a key:
       halter chat --model ollama:llama3
  3. Look around without any model:
       halter chat --model "scripted:Hello, I am a script."

`halter doctor` says which keys and servers it finds."""


def name_of_model(config: Config) -> str:
    """The model's name. Raises `ConfigurationError`, in a friendly tone, if there is none."""
    if config.model:
        return config.model
    found = next((name for key, name in BY_KEY if os.environ.get(key, "").strip()), None)
    if found is None:
        raise ConfigurationError(NO_MODEL)
    return found


def model_for(config: Config, name: str = "") -> Model:
    """The model object. `name`: another than the settings say. Raises `ConfigurationError`."""
    name = name or name_of_model(config)
    is_elsewhere = bool(config.base_url) and name.partition(":")[0] in ("openai", name)
    return _at(config.base_url, name) if is_elsewhere else resolve(name)


def _at(base_url: str, name: str) -> Any:
    from halter.models.openai import OpenAIChat  # only where a server of one's own is named

    return OpenAIChat(name.removeprefix("openai:"), base_url=base_url)
