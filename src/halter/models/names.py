"""The table behind `"openai:gpt-5.2"`: which prefix is which model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module

from halter.core.ports import Model
from halter.errors import ConfigurationError

# prefix → (module, class or function); a module is imported when its prefix is first used.
PREFIXES: dict[str, tuple[str, str]] = {
    "openai": ("halter.models.routes", "openai_model"),
    "openai-chat": ("halter.models.routes", "openai_chat"),
    "openai-responses": ("halter.models.responses.model", "OpenAIResponses"),
    "azure": ("halter.models.routes", "azure_model"),
    "azure-chat": ("halter.models.routes", "azure_chat"),
    "azure-responses": ("halter.models.azure_responses", "AzureOpenAIResponses"),
    "anthropic": ("halter.models.anthropic.model", "Anthropic"),
    "gemini": ("halter.models.gemini.model", "Gemini"),
    "scripted": ("halter.models.scripted", "Scripted"),
}
# Those of the table in `compatible.py`, which says the rest.
COMPATIBLE_PREFIXES = (
    "groq",
    "ollama",
    "openrouter",
    "deepseek",
    "mistral",
    "together",
    "fireworks",
    "xai",
    "huggingface",
    "vllm",
    "lmstudio",
)


def resolve(name: str) -> Model:
    """The model behind `"prefix:name"`. Raises `ConfigurationError` that lists the prefixes."""
    prefix, colon, rest = name.partition(":")
    is_known = prefix in PREFIXES or prefix in COMPATIBLE_PREFIXES
    if colon and is_known and not rest:
        raise ConfigurationError(f'{name!r} lacks the model\'s name, as in "{prefix}:name"')
    if not colon or not is_known:
        known = ", ".join(f'"{prefix}:…"' for prefix in (*PREFIXES, *COMPATIBLE_PREFIXES))
        raise ConfigurationError(f"unknown model {name!r}: use one of {known}, or a model object")
    return _maker(prefix)(rest)


def as_model(given: str | Model, what: str = "model") -> Model:
    """A model object, or the one behind a name. Raises `ConfigurationError`. `what`: how errors call it."""
    model = resolve(given) if isinstance(given, str) else given
    if not callable(getattr(model, "respond", None)):
        raise ConfigurationError(f"{what} must be a name or a model object, not {model!r}")
    if not isinstance(getattr(model, "name", None), str):
        raise ConfigurationError(f"a model object has a name, a text by which events and errors call it: {model!r}")
    return model


def _maker(prefix: str) -> Callable[[str], Model]:
    if prefix in COMPATIBLE_PREFIXES:
        return partial(import_module("halter.models.compatible").compatible, prefix)
    module, class_name = PREFIXES[prefix]
    return getattr(import_module(module), class_name)
