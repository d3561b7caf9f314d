"""Makes the tables in docs/models.md from the code: `make docs`. With `--check`: exit code 1 if they are stale."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import msgspec

from halter.features import Features
from halter.models.azure import AzureOpenAI
from halter.models.compatible import COMPATIBLE
from halter.models.endpoint import Server
from halter.models.names import COMPATIBLE_PREFIXES, PREFIXES
from halter.models.openai import OpenAIChat
from halter.request import Settings

PAGE = Path(__file__).with_name("models.md")
BEGIN, END = "<!-- begin: {} (made by docs/providers.py) -->", "<!-- end: {} -->"
FLAGS = {"images": "images", "files": "files", "tools": "tools", "tool_choice": "tool choice", "output": "`output=`"}
TITLES = {
    "openai": "OpenAI",
    "openai-chat": "OpenAI",
    "openai-responses": "OpenAI",
    "azure": "Azure OpenAI",
    "azure-chat": "Azure OpenAI",
    "azure-responses": "Azure OpenAI",
    "anthropic": "Anthropic",
    "gemini": "Google Gemini",
}
FORMATS = {
    "openai": "by the model",
    "openai-chat": "chat completions",
    "openai-responses": "Responses",
    "azure": "by the model",
    "azure-chat": "chat completions",
    "azure-responses": "Responses",
    "anthropic": "Messages",
    "gemini": "Gemini API",
}
# The class behind a prefix whose names choose one, where it is asked by chat completions.
CHAT = {"openai": OpenAIChat, "openai-chat": OpenAIChat, "azure": AzureOpenAI, "azure-chat": AzureOpenAI}
RESPONSES = {"openai": "OpenAIResponses", "azure": "AzureOpenAIResponses"}


@dataclass(frozen=True)
class Provider:
    """One row. `made_by`: what stands in code for its name."""

    title: str
    format: str
    made_by: str
    server: Server
    features: Features


def providers() -> Iterator[Provider]:
    """Those behind HTTP, in the order of the names."""
    for prefix, (module, name) in PREFIXES.items():
        model = CHAT.get(prefix) or getattr(import_module(module), name)
        if hasattr(model, "server"):
            server = msgspec.structs.replace(model.server, prefix=prefix)
            made_by = f"`{model.__name__}`" + (f" or `{RESPONSES[prefix]}`" if prefix in RESPONSES else "")
            yield Provider(TITLES[prefix], FORMATS[prefix], made_by, server, model.features)
    for prefix in COMPATIBLE_PREFIXES:
        kind = COMPATIBLE[prefix]
        made_by = f'`compatible("{prefix}", …)`'
        yield Provider(f"[{kind.title}]({kind.docs})", "chat completions", made_by, kind.server, kind.features)


# --- the tables ---------------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def places() -> str:
    """Who there is, where, and by which environment variables."""
    head = ("name", "provider", "format", "class", "key", "address")
    return table(head, [_place(provider) for provider in providers()])


def _place(provider: Provider) -> tuple[str, ...]:
    server = provider.server
    keys = " or ".join(f"`{name}`" for name in server.key_variables)
    key = keys if server.needs_key else f"{keys}, if it wants one"
    at = f"`{server.base_url}`" if server.base_url else "your own"
    variable = f", or `{server.base_url_variable}`" if server.base_url_variable else ""
    return (f'`"{server.prefix}:…"`', provider.title, provider.format, provider.made_by, key, at + variable)


def features() -> str:
    """What each has words for."""
    rows = [
        [f"`{each.server.prefix}`", *("yes" if getattr(each.features, flag) else "–" for flag in FLAGS)]
        for each in providers()
    ]
    return table(("", *FLAGS.values()), rows)


def settings() -> str:
    """Who has a word for each setting."""
    names = [field.name for field in msgspec.structs.fields(Settings)]
    return table(("setting", "has it"), [(f"`{name}`", _who_has(name)) for name in names])


def _who_has(name: str) -> str:
    """In the fewer words."""
    having = [f"`{each.server.prefix}`" for each in providers() if name in each.features.settings]
    others = [f"`{each.server.prefix}`" for each in providers() if name not in each.features.settings]
    if not others:
        return "all"
    return " ".join(having) if len(having) <= len(others) else f"all but {' '.join(others)}"


TABLES = {"places": places, "features": features, "settings": settings}


# --- the page -----------------------------------------------------------------------------------------------


def remade(page: str) -> str:
    """The page with its tables as the code has them now."""
    for name, make in TABLES.items():
        begin, end = BEGIN.format(name), END.format(name)
        before, _, rest = page.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise ValueError(f"docs/models.md lacks {begin} … {end}")
        page = f"{before}{begin}\n\n{make()}\n\n{end}{after}"
    return page


def main() -> int:
    page = PAGE.read_text(encoding="utf-8")
    new = remade(page)
    if "--check" in sys.argv:
        return int(new != page)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
