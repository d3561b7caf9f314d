"""The table behind `"openai:gpt-5.2"`: which prefix is which model class."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from halter.core.ports import Model
from halter.errors import ConfigurationError

# prefix → (module, class); a module is imported when its prefix is first used.
PREFIXES: dict[str, tuple[str, str]] = {
    "openai": ("halter.models.openai", "OpenAIChat"),
    "scripted": ("halter.models.scripted", "Scripted"),
}


def resolve(name: str) -> Model:
    """The model behind `"prefix:name"`. Raises `ConfigurationError` that lists the prefixes."""
    prefix, colon, rest = name.partition(":")
    if colon and prefix in PREFIXES and not rest:
        raise ConfigurationError(f'{name!r} lacks the model\'s name, as in "{prefix}:name"')
    if not colon or not rest or prefix not in PREFIXES:
        known = ", ".join(f'"{prefix}:…"' for prefix in PREFIXES)
        raise ConfigurationError(f"unknown model {name!r}: use one of {known}, or a model object")
    module, class_name = PREFIXES[prefix]
    make: Callable[[str], Model] = getattr(import_module(module), class_name)
    return make(rest)
