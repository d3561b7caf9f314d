"""Secrets taken out of texts that a model is told: an exception may repeat a key, a URL with a password or a header.

The secrets that this process knows: those given to `remember`, and environment variables by their names. Credentials of
others are known by their place: in a URL, behind `Authorization:`, in a query string.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, unquote

REPLACEMENT = "[secret]"
SHORTEST = 8  # characters; a shorter value may be any word, and would make holes in every text
MOST_REMEMBERED = 1000  # the newest: tokens that are renewed each hour must not fill the memory

_remembered: dict[str, None] = {}  # by insertion, the oldest first

_TELLING_PARTS = frozenset(("KEY", "KEYS", "PASS", "PWD", "AUTHORIZATION"))
_TELLING_ENDS = (
    *("TOKEN", "TOKENS", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "APIKEY"),
    *("CREDENTIAL", "CREDENTIALS"),
)
_NOT_SECRET = frozenset(("PWD", "OLDPWD"))  # directories
_USERINFO = re.compile(r"(?<=://)[^\s/?#@'\"<>]{1,500}(?=@)")
_HEADER = re.compile(
    r"(?P<name>\b(?:proxy-)?authorization\b|\b(?:x-)?api-key\b|\bx-[\w-]{0,40}(?:token|key|secret)\b|\b(?:set-)?cookie\b)"
    r"(?P<between>['\"]?\s{0,5}[:=,]\s{0,5}(?:b(?=['\"]))?['\"]?)(?:(?:basic|bearer|digest|token|negotiate)\s{1,5})?"
    r"[^\s'\",;)}\]]+",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"\b(?P<scheme>bearer|basic)\s{1,5}[\w.~+/=-]{16,}", re.IGNORECASE)
_QUERY = re.compile(
    r"(?P<name>[?&][\w.-]{0,40}(?:key|token|secret|passwd|password|signature|sig|credential)[\w-]{0,20}=)[^&\s#'\"<>)]+",
    re.IGNORECASE,
)


def remember(secrets: Iterable[str]) -> None:
    """Takes note of secrets, as the key of a provider; shorter ones than `SHORTEST` characters are passed over."""
    for secret in secrets:
        if len(secret) >= SHORTEST:
            _remembered.pop(secret, None)
            _remembered[secret] = None
            if len(_remembered) > MOST_REMEMBERED:
                _remembered.pop(next(iter(_remembered)), None)  # another thread may do the same


def scrubbed(text: str) -> str:
    """Returns the text with `[secret]` in place of each secret. The work grows with the length of the text alone."""
    for secret in _known():
        if secret in text:
            text = text.replace(secret, REPLACEMENT)
    text = _USERINFO.sub(REPLACEMENT, text)
    text = _HEADER.sub(rf"\g<name>\g<between>{REPLACEMENT}", text)
    text = _SCHEME.sub(rf"\g<scheme> {REPLACEMENT}", text)
    return _QUERY.sub(rf"\g<name>{REPLACEMENT}", text)


def _known() -> list[str]:
    """All forms of all secrets, the longest first: one may be part of another."""
    plain = {*_remembered, *_in_environment()}
    return sorted({form for secret in plain for form in _forms(secret)}, key=len, reverse=True)


def _in_environment() -> Iterator[str]:
    for name in list(os.environ):
        value = os.environ.get(name, "")
        if "://" in value:
            for userinfo in _USERINFO.findall(value):
                password = userinfo.partition(":")[2]
                yield from (one for one in (password, unquote(password)) if len(one) >= SHORTEST)
        elif len(value) >= SHORTEST and is_telling(name) and not _is_path(value):
            yield value


def is_telling(name: str) -> bool:
    """Checks whether the name of an environment variable says that its value is a secret."""
    parts = re.split(r"[^A-Z0-9]+", name.upper())
    return name.upper() not in _NOT_SECRET and any(
        part in _TELLING_PARTS or part.endswith(_TELLING_ENDS) for part in parts
    )


def _is_path(value: str) -> bool:
    """A file that holds the secret: its name is none, and errors are about it."""
    return value.startswith(("/", "~", ".")) and os.path.exists(os.path.expanduser(value))


def _forms(secret: str) -> tuple[str, ...]:
    """The secret itself, and as JSON, `repr` and URLs write it."""
    return secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], quote(secret, safe="")
