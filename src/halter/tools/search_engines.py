"""Engines for `web_search`: SearXNG, which needs no key, Brave and Tavily. All answer in JSON.

A stop closes their socket, and the receipt names it. Redirects are not followed: a key is meant for one host only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, cast
from urllib.parse import urlencode, urlsplit

import msgspec

from halter.core import scrubbing
from halter.core.ports import ByteSource, HttpRequest
from halter.core.tool_context import ToolContext
from halter.errors import ConfigurationError, ProviderError, ToolError
from halter.net.addresses import is_host
from halter.net.sockets import SocketSource
from halter.tools.search import SearchResult
from halter.tools.web import Unwatched, read_body

LARGEST_ANSWER = 4_000_000  # bytes
LONGEST_REFUSAL = 500  # characters


class _JsonEngine:
    """An engine over HTTP whose answers are JSON objects."""

    name: ClassVar[str]

    def __init__(self, source: ByteSource | None) -> None:
        self._source = source or SocketSource()

    async def _ask(self, request: HttpRequest, ctx: ToolContext) -> Mapping[str, Any]:
        """The object that the engine answers with. Raises `ToolError`."""
        try:
            async with self._source.open(request, ctx, Unwatched()) as stream:
                status = stream.status
                body, is_cut = await read_body(stream, LARGEST_ANSWER)
        except ProviderError as error:
            ctx.token.raise_if_cancelled()
            raise ToolError(f"{self.name} cannot be searched: {error}") from error
        if status != 200:
            said = body[:LONGEST_REFUSAL].decode("utf-8", "replace").strip()
            raise ToolError(f"{self.name} answered {status}{self._hint(status)}" + (f": {said}" if said else ""))
        try:
            answer: Any = msgspec.json.decode(body)
        except ValueError as error:
            raise ToolError(f"{self.name} gave no JSON{' in its first 4 MB' if is_cut else ''}: {error}") from error
        if not isinstance(answer, dict):
            raise ToolError(f"{self.name} gave no JSON object")
        return cast("dict[str, Any]", answer)

    def _hint(self, status: int) -> str:
        return ""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"  # without its key


class SearXNG(_JsonEngine):
    """An instance of SearXNG, which asks other engines and needs no key.

    `url`: of the instance, whose `settings.yml` must have `json` among `search.formats`; most public instances do not,
    and run by their own rules: use yours. `language`: a code as `en` or `de-CH`; `None`: the instance's default.
    `categories`: as `("general", "news")`. Raises `ConfigurationError`.

    Source: https://docs.searxng.org/dev/search_api.html
    """

    name = "SearXNG"

    def __init__(
        self,
        url: str,
        *,
        language: str | None = None,
        categories: Sequence[str] = (),
        source: ByteSource | None = None,
    ) -> None:
        super().__init__(source)
        self._url = _base(url)
        options = {"language": language, "categories": ",".join(categories)}
        self._options = {name: value for name, value in options.items() if value}

    async def search(self, query: str, limit: int, ctx: ToolContext) -> Sequence[SearchResult]:
        """As `SearchEngine` says; one page of the instance's, of some 20 results."""
        asked = urlencode({"q": query, "format": "json", **self._options})
        request = HttpRequest(url=f"{self._url}/search?{asked}", headers=_HEADERS, body=b"", method="GET")
        answer = await self._ask(request, ctx)
        return _results(answer.get("results"), limit, "content", "publishedDate")

    def _hint(self, status: int) -> str:
        return " (its settings.yml must have json among search.formats)" if status == 403 else ""


class Brave(_JsonEngine):
    """Brave's search API. `api_key`: else `BRAVE_API_KEY`. `country`: two letters. Raises `ConfigurationError`.

    Source: https://api-dashboard.search.brave.com/documentation
    """

    name = "Brave Search"

    def __init__(
        self,
        *,
        api_key: str | None = None,
        country: str | None = None,
        url: str = "https://api.search.brave.com/res/v1",
        source: ByteSource | None = None,
    ) -> None:
        super().__init__(source)
        self._url = _base(url)
        self._options = {"country": country} if country else {}
        self._headers = _HEADERS | {"x-subscription-token": _key(api_key, "BRAVE_API_KEY")}

    async def search(self, query: str, limit: int, ctx: ToolContext) -> Sequence[SearchResult]:
        """As `SearchEngine` says; at most 20."""
        given = {"q": query[:400], "count": min(limit, 20), "text_decorations": "false", **self._options}
        url = f"{self._url}/web/search?{urlencode(given)}"
        answer = await self._ask(HttpRequest(url=url, headers=self._headers, body=b"", method="GET"), ctx)
        web: Any = answer.get("web")
        found = cast("dict[str, Any]", web).get("results") if isinstance(web, dict) else None
        return _results(found, limit, "description", "age")


class Tavily(_JsonEngine):
    """Tavily's search API. `api_key`: else `TAVILY_API_KEY`. Raises `ConfigurationError`.

    Source: https://docs.tavily.com/documentation/api-reference/endpoint/search
    """

    name = "Tavily"

    def __init__(
        self,
        *,
        api_key: str | None = None,
        url: str = "https://api.tavily.com",
        source: ByteSource | None = None,
    ) -> None:
        super().__init__(source)
        self._url = _base(url)
        key = _key(api_key, "TAVILY_API_KEY")
        self._headers = _HEADERS | {"authorization": f"Bearer {key}", "content-type": "application/json"}

    async def search(self, query: str, limit: int, ctx: ToolContext) -> Sequence[SearchResult]:
        """As `SearchEngine` says; at most 20."""
        body = msgspec.json.encode({"query": query, "max_results": min(limit, 20)})
        answer = await self._ask(HttpRequest(url=f"{self._url}/search", headers=self._headers, body=body), ctx)
        return _results(answer.get("results"), limit, "content", "published_date")


_HEADERS = {"accept": "application/json", "user-agent": "halter"}


def _results(found: Any, limit: int, snippet: str, date: str) -> list[SearchResult]:
    """The results that have a URL; fields that are missing or no text are empty."""
    each = cast("list[Any]", found) if isinstance(found, list) else []
    results = (_result(cast("dict[str, Any]", one).get, snippet, date) for one in each if isinstance(one, dict))
    return [result for result in results if result.url][:limit]


def _result(get: Callable[[str], Any], snippet: str, date: str) -> SearchResult:
    def text(name: str) -> str:
        value = get(name)
        return value if isinstance(value, str) else ""

    return SearchResult(title=text("title"), url=text("url"), snippet=text(snippet), date=text(date) or None)


def _base(url: str) -> str:
    place = urlsplit(url) if isinstance(cast("object", url), str) else None
    if (
        place is None
        or place.scheme not in ("http", "https")
        or not is_host(place.hostname or "")
        or "@" in place.netloc
    ):
        raise ConfigurationError("url must be that of a search engine, as 'https://search.example.org', without a user")
    return url.rstrip("/").removesuffix("/search")


def _key(given: str | None, variable: str) -> str:
    key = (os.environ.get(variable, "") if given is None else given).strip()
    if not key or not key.isascii() or not key.isprintable():
        raise ConfigurationError(f"no API key: set {variable}, or give api_key=…")
    scrubbing.remember([key])
    return key
