"""Where a provider is and how one is let in: base URL, key, headers; read once, when the model is made.

No error and no `repr` shows a key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

import msgspec

from halter.errors import ConfigurationError
from halter.net.addresses import is_host

_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, 5.1


class Headers(dict[str, str]):
    """Headers whose `repr` shows names only: a value may be a key."""

    def __repr__(self) -> str:
        return f"<Headers {', '.join(self)}>"


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's place. `prefix`: in model names, as in `openai:gpt-5.2`.

    `base_url`: its own address, `None` if each user has one. `base_url_variable`, `key_variables`: of the
    environment, as its official SDK reads them; the first that is set counts. `needs_key`: its own address refuses
    whoever has none.
    """

    prefix: str
    base_url: str | None
    base_url_variable: str | None = None
    key_variables: tuple[str, ...] = ()
    needs_key: bool = True

    def place(self, given: str | None) -> SplitResult:
        """The base URL: given, else from the environment, else the provider's own. Raises `ConfigurationError`."""
        if given is not None and not isinstance(cast("object", given), str):
            raise ConfigurationError(f"base_url must be a text, not {type(given).__name__}")
        where, text = "base_url", given
        if text is None and self.base_url_variable:
            text = os.environ.get(self.base_url_variable, "").strip() or None
            where = self.base_url_variable if text else where
        text = self.base_url if text is None else text
        if text is None:
            named = f" or set {self.base_url_variable}" if self.base_url_variable else ""
            raise ConfigurationError(f"{self.prefix} needs an address: give base_url=…{named}")
        return _checked_url(where, text.strip(), self.base_url or "https://example.com/v1")

    def key(self, given: str | None, place: SplitResult) -> str:
        """The key, or `""` where none is needed. A line end behind it, as from a file, is not part of it."""
        if given is not None and not isinstance(cast("object", given), str):
            raise ConfigurationError(f"api_key must be a text, not {type(given).__name__}")
        where, key = "api_key", given
        if key is None:
            found = ((name, os.environ.get(name, "").strip()) for name in self.key_variables)
            where, key = next(((name, value) for name, value in found if value), (where, ""))
        key = key.strip()
        if not key and self.needs_key and self.base_url and place.hostname == urlsplit(self.base_url).hostname:
            named = " or ".join(self.key_variables)
            raise ConfigurationError(f"no API key for {place.hostname}: set {named}, or give api_key=…")
        if not is_header_value(key) or " " in key:
            raise ConfigurationError(f"{where} holds a character that no key has: a space, a line end, or the like")
        return key


def headers_over(ours: Mapping[str, str], given: Mapping[str, str] | None) -> Headers:
    """Ours, and over them the given ones, whatever their case. Raises `ConfigurationError`."""
    theirs = _mapping("headers", given)
    replaced = {name.lower() for name in theirs if isinstance(name, str)}
    headers = {name: value for name, value in ours.items() if name.lower() not in replaced} | theirs
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise ConfigurationError(f"headers holds {name!r}, which is no header's name: give one such as 'X-Team'")
        if not isinstance(value, str) or not is_header_value(value):
            raise ConfigurationError(f"the header {name!r} must be one line of ASCII text")
    return Headers(headers)


def is_header_value(value: str) -> bool:
    return value.isascii() and (value.isprintable() or not value)


def encodable(extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """More fields for each request. Raises `ConfigurationError` if they are no JSON."""
    fields = _mapping("extra_body", extra)
    try:
        msgspec.json.encode(fields)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"extra_body must be JSON: {error}") from error
    return fields


def _mapping(argument: str, given: object) -> dict[Any, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise ConfigurationError(f"{argument} must be a mapping of names to values, not {type(given).__name__}")
    return dict(cast("Mapping[Any, Any]", given or {}))


def _checked_url(where: str, text: str, example: str) -> SplitResult:
    try:
        place = urlsplit(text)
        is_usable = place.scheme in ("http", "https") and is_host(place.hostname or "") and (place.port or 1) > 0
    except ValueError:
        is_usable = False
        place = SplitResult("", "", "", "", "")
    if "@" in place.netloc:
        raise ConfigurationError(f"{where} holds a user or a password; give an Authorization header by `headers`")
    if not is_usable:
        raise ConfigurationError(f"{where} must be a URL such as {example!r}, not {text!r}")
    return place._replace(path=place.path.rstrip("/"), fragment="")
