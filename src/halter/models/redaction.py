"""What no error may show: keys in headers and query strings, which providers, proxies and libraries repeat.

Messages come here whole and are shortened here, behind that: of a secret that is cut nothing would be found.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator
from urllib.parse import quote, unquote_plus, urlsplit

from halter.core import scrubbing
from halter.core.ports import HttpRequest
from halter.errors import ConfigurationError, ProviderError
from halter.net.proxies import proxy_for

LONGEST_MESSAGE = 1000

_TELLING = re.compile(r"auth|key|token|secret|password|cookie|signature|^sig$|^code$", re.IGNORECASE)
# Headers that say nothing about who asks. The value of any other may let somebody in: gateways give them any name.
_HARMLESS = frozenset((
    *("accept", "accept-encoding", "accept-language", "content-type", "connection", "host", "user-agent"),
    *("referer", "http-referer", "origin", "x-title", "idempotency-key", "anthropic-version", "anthropic-beta"),
    *("openai-beta", "openai-organization", "openai-project", "x-goog-user-project", "x-amz-date"),
))  # fmt: skip
MOST_REMEMBERED = 1000
_remembered: set[tuple[str, ...]] = set()  # the headers of requests that were looked at
_SHORTEST = 4  # characters; what is shorter is no secret, and would make holes in every message


def remember(request: HttpRequest) -> None:
    """Has what lets this request in kept out of the texts of exceptions that a model is told."""
    values = tuple(request.headers.values())
    if values not in _remembered:
        if len(_remembered) >= MOST_REMEMBERED:
            _remembered.clear()
        _remembered.add(values)
        scrubbing.remember((*_in_headers(request), *_in_query(request.url)))


def redact(error: ProviderError, request: HttpRequest) -> None:
    """Takes the request's secrets out of an error, shortens it, and lets go of causes that show one."""
    secrets = secrets_of(request)
    error.args = (shortened(redacted(str(error), secrets)), *error.args[1:])
    error.code = error.code and shortened(redacted(error.code, secrets))
    error.request_id = error.request_id and shortened(redacted(error.request_id, secrets))
    _let_go(error, secrets)


def redacted(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "[key]")
    return text


def shortened(text: str) -> str:
    text = text.strip()
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}…"


def secrets_of(request: HttpRequest) -> list[str]:
    """The longest first: one may be part of another."""
    plain = (*_in_headers(request), *_in_query(request.url), *_of_the_proxy(request.url))
    found = {form for secret in plain for form in _forms(secret) if len(secret) >= _SHORTEST}
    return sorted(found, key=len, reverse=True)


def _let_go(error: BaseException, secrets: list[str]) -> None:
    """Of what an exception says came before it; libraries put the whole request into theirs."""
    todo, seen = [error], {id(error)}
    while todo:
        shown = todo.pop()
        for name in ("__cause__", "__context__"):
            before = getattr(shown, name)
            if before is None or id(before) in seen:
                continue
            if any(secret in f"{before} {before!r}" for secret in secrets):
                setattr(shown, name, None)
            else:
                seen.add(id(before))
                todo.append(before)


def _in_headers(request: HttpRequest) -> Iterator[str]:
    for name, value in request.headers.items():
        if _TELLING.search(name):
            scheme, _, rest = value.strip().partition(" ")
            yield rest.strip() or scheme  # `Bearer …`, or the key alone
        elif name.lower() not in _HARMLESS and value.lower() not in ("true", "false"):
            yield value.strip()


def _in_query(url: str) -> Iterator[str]:
    for field in urlsplit(url).query.split("&"):
        name, _, value = field.partition("=")
        if _TELLING.search(name):
            yield value
            yield unquote_plus(value)


def _of_the_proxy(url: str) -> Iterator[str]:
    try:
        proxy = proxy_for(url)
    except ConfigurationError:
        return  # none that anything was sent to
    if proxy is not None and proxy.authorization is not None:
        encoded = proxy.authorization.removeprefix("Basic ")
        _, _, password = b64decode(encoded).decode().partition(":")
        yield from (encoded, password, quote(password, safe=""))


def _forms(secret: str) -> tuple[str, ...]:
    """As it is, and as JSON writes it where nobody has parsed that."""
    in_json = json.dumps(secret)[1:-1]
    return secret, in_json, in_json.replace("/", "\\/")
