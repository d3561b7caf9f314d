"""What a provider says when it fails, in any shape, as a message, a code, and one of our errors.

Shapes seen: `{"error": {"message", "type", "code"}}`, `{"error": "text"}`, `{"message"}`, `{"detail"}` as text or as a
list of complaints, a list around any of these, a page of HTML, nothing. All of it is taken whole: what is cut before
the secrets are taken out (`redaction.py`) may end in half a key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any, cast

import msgspec

from halter.errors import (
    AuthenticationFailed,
    ContextTooLong,
    ModelNotFound,
    ProviderError,
    RateLimited,
    RequestRejected,
    ServerFailed,
)
from halter.models.http import error_of
from halter.models.lenient_json import read_json
from halter.models.too_long import excess

# Words in a code or a type, letters only, in the order in which they are looked for.
_BY_WORD: tuple[tuple[str, type[ProviderError]], ...] = (
    ("ratelimit", RateLimited),
    ("toomanyrequests", RateLimited),
    ("quota", RateLimited),
    ("throttl", RateLimited),
    ("resourceexhausted", RateLimited),
    ("authentication", AuthenticationFailed),
    ("unauthorized", AuthenticationFailed),
    ("unauthenticated", AuthenticationFailed),
    ("permission", AuthenticationFailed),
    ("forbidden", AuthenticationFailed),
    ("apikey", AuthenticationFailed),
    ("notfound", ModelNotFound),
    ("overloaded", ServerFailed),
    ("servererror", ServerFailed),
    ("internal", ServerFailed),
    ("unavailable", ServerFailed),
    ("timeout", ServerFailed),
    ("invalid", RequestRejected),
    ("badrequest", RequestRejected),
    ("unprocessable", RequestRejected),
    ("unsupported", RequestRejected),
    ("contextlength", RequestRejected),
    ("contentfilter", RequestRejected),
    ("contentpolicy", RequestRejected),
    ("tooluse", RequestRejected),
)
# Where there is neither a status nor a telling code: what the words of the message leave no doubt about.
_TELLING = (*_BY_WORD[:3], ("overloaded", ServerFailed))
_UNMISTAKABLE = (RateLimited, AuthenticationFailed)  # whatever else the message says
_MESSAGE_FIELDS = ("message", "detail", "error_description", "error_msg", "msg", "title", "errors")
_CODE_FIELDS = ("code", "type", "error_code", "status")
_STATUS_FIELDS = ("status_code", "http_status", "status", "code", "error_code")


_LOOKED_AT = 16 * 1024  # characters of a text that is searched for telling words
_TITLE = re.compile(r"<title[^<>]*>([^<]*)</title>", re.IGNORECASE)
_UNSEEN = re.compile(r"(script|style)\b", re.IGNORECASE)


class ErrorFacts(msgspec.Struct, frozen=True):
    """What could be read out of an error of any shape."""

    message: str
    code: str | None = None
    kind: str = ""
    status: int | None = None
    retry_after: float | None = None


def describe_body(body: bytes) -> tuple[str, str | None]:
    """The message and the code in an error body; the message is empty if there is none."""
    try:
        facts = _facts(read_json(body))
    except ValueError:
        return _plain(body.decode("utf-8", "replace")), None
    return facts.message, facts.code


def error_from(found: Any, source: str) -> ProviderError:
    """The error that a frame reports; `source` says whose. Without a telling word: `ServerFailed`.

    The request was accepted before the frame came, so what fails then is most likely the server.
    """
    facts = _facts(found)
    message = f"{source} failed while it answered: {facts.message or 'no reason given'}"
    if facts.status is not None:
        return error_of(facts.status, message, code=facts.code, retry_after=facts.retry_after)
    code = f"{facts.code or ''} {facts.kind}"
    kind = _kind_of(code, _BY_WORD)
    too_long = None if kind in _UNMISTAKABLE else excess(facts.message, code=code)
    if too_long is not None:
        return ContextTooLong(message, limit=too_long.limit, tokens=too_long.tokens, code=facts.code)
    kind = kind or _kind_of(facts.message, _TELLING) or ServerFailed
    return kind(message, code=facts.code, retry_after=facts.retry_after)


def is_error(frame: dict[str, Any]) -> bool:
    """Whether a frame without choices is an error that is not called `error`."""
    if "error" in (frame.get("object"), frame.get("type")) or frame.get("detail"):
        return True
    return bool(frame.get("message")) and any(frame.get(name) for name in _STATUS_FIELDS)


# --- reading ------------------------------------------------------------------------------------------------


def _facts(found: Any) -> ErrorFacts:
    try:
        return _read_facts(found)
    except RecursionError:
        return ErrorFacts("an error nested too deeply to be read")


def _read_facts(found: Any) -> ErrorFacts:
    if isinstance(found, list):
        found = next((item for item in cast("list[Any]", found) if item), "")
    if not isinstance(found, dict):
        return ErrorFacts(_text_of(found))
    fields = _innermost(cast("dict[str, Any]", found))
    code = next((code for name in _CODE_FIELDS if (code := _code(fields.get(name)))), None)
    return ErrorFacts(
        _message(fields),
        code,
        str(fields.get("type") or ""),
        next((status for name in _STATUS_FIELDS if (status := _status(fields.get(name)))), None),
        _seconds(fields.get("retry_after")),
    )


def _innermost(fields: dict[str, Any]) -> dict[str, Any]:
    """The object that says what happened; with text as `error`, that is the message, or the code of one."""
    inner = fields.get("error")
    if isinstance(inner, dict):
        return cast("dict[str, Any]", inner)
    if not isinstance(inner, str):
        return fields
    extra = {"code": inner} if fields.get("message") else {"message": inner}
    return extra | {name: value for name, value in fields.items() if name != "error"}


def _message(fields: dict[str, Any]) -> str:
    message = next((text for name in _MESSAGE_FIELDS if (text := _text_of(fields.get(name)))), "")
    metadata = fields.get("metadata")
    if isinstance(metadata, dict):  # OpenRouter: what the provider behind it said
        raw = _text_of(cast("dict[str, Any]", metadata).get("raw"))
        message = f"{message}: {raw}" if raw and raw not in message else message
    if isinstance(fields.get("n_ctx"), int):  # llama.cpp, in a version that does not say so in words
        message = f"{message} (n_prompt_tokens {fields.get('n_prompt_tokens')}, n_ctx {fields['n_ctx']})"
    return message or (_text_of(fields) if fields else "")


def _text_of(value: Any) -> str:
    """A message, whatever it is wrapped in; the JSON text where nothing in it looks like one."""
    if value is None or isinstance(value, str):
        return (value or "").strip()
    if isinstance(value, list):
        return "; ".join(filter(None, map(_text_of, cast("list[Any]", value)[:10])))
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        found = next((fields[name] for name in _MESSAGE_FIELDS if fields.get(name)), None)
        return _text_of(found) if found else msgspec.json.encode(fields).decode()
    return str(value)


def _code(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        return None
    return str(value).strip()


def _status(value: Any) -> int | None:
    text = str(value) if isinstance(value, str | int) else ""
    return int(text) if len(text) == 3 and text.isascii() and text.isdigit() and "400" <= text < "600" else None


def _seconds(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < float("inf") else None


def _kind_of(text: str, table: tuple[tuple[str, type[ProviderError]], ...]) -> type[ProviderError] | None:
    letters = "".join(_letters(text[:_LOOKED_AT]))
    return next((kind for word, kind in table if word in letters), None)


def _letters(text: str) -> Iterator[str]:
    return (letter for letter in text.lower() if letter.isalpha())


def _plain(text: str) -> str:
    """A page's title, or its words without the tags."""
    if "<" not in text[:100]:
        return text.strip()
    title = _TITLE.search(text)
    words = title[1] if title and title[1].strip() else " ".join(_words(text))
    return unescape(" ".join(words.split()))


def _words(page: str) -> Iterator[str]:
    """What stands between the tags, without scripts and styles; in time in proportion to the page."""
    first, *pieces = page.split("<")
    yield first
    unseen = ""
    for piece in pieces:
        tag, end, words = piece.partition(">")
        found = _UNSEEN.match(tag)
        if tag.lower().startswith(f"/{unseen}"):
            unseen = ""
        elif not unseen and found and end:
            unseen = found[1].lower()
        if not unseen:
            yield words if end else f"<{piece}"
