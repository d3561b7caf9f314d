"""A page of the web, fetched for a model: bounded, without a way into the network that it runs in, and stopped as a
model's request is.

1. Each address is checked where it is connected to, after each redirect, so that no name can lead elsewhere. 2. The
sockets are those of `net/sockets.py`: a stop closes them, and they have their lines in the receipt. 3. What is beyond
the bound is never read. 4. Pages that a site forbids programs are not asked for, and those that its server lets us keep
are not asked for twice.
"""

from __future__ import annotations

import codecs
import http
import re
import socket
from collections.abc import Awaitable, Callable, Mapping
from email.message import Message
from fnmatch import fnmatchcase
from ipaddress import ip_address
from typing import TypeAlias
from urllib.parse import urljoin

import msgspec
from yarl import URL

from halter.core.context import RunContext
from halter.core.ports import ByteSource, ByteStream, HttpRequest
from halter.core.tool_context import ToolContext
from halter.errors import ProviderError, ToolError
from halter.net.addresses import is_host, is_public, is_public_name
from halter.net.proxies import proxy_for
from halter.tools.html_text import text_of
from halter.tools.isolated import call_in_process
from halter.tools.reader import article_of
from halter.tools.robots import LARGEST as LARGEST_ROBOTS
from halter.tools.robots import Robots
from halter.tools.web_cache import PageCache

REDIRECTS = (301, 302, 303, 307, 308)
LONGEST_REFUSAL = 2000  # characters of the body of an error
LONGEST_URL = 8000
NOT_MODIFIED = 304
OVERHEAD = 1000  # bytes of memory that a page takes beside its texts
ROBOTS_REDIRECTS = 5  # RFC 9309, 2.3.1.2
KEPT_HEADERS = ("cache-control", "expires", "date", "age", "vary", "etag", "last-modified")  # for the cache

OnRedirect: TypeAlias = Callable[[str, str], Awaitable[None]]
_HTML = ("text/html", "application/xhtml+xml")
_TEXTS = re.compile(r"text/.+|.+\+(json|xml|yaml)|application/(json|xml|yaml|x-yaml|toml|javascript|x-ndjson)")
_META = re.compile(rb"<meta[^>]{0,500}charset=[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


class Unwatched:
    """A `Progress` that nobody looks at: the call has one time-out, for all of its phases."""

    def connecting(self) -> None:
        """Nothing waits for it."""

    def sending(self) -> None:
        """Nothing waits for it."""


class Web:
    """What may be fetched, and how much of it. `allow`: hosts, as `example.com` or `*.example.org`.

    `public_only`: addresses of the public internet alone, which `source` has to hold. `agent`: the `User-Agent`.
    `robots`: whether sites say what may be fetched. `cache_bytes`: of pages that are kept; 0 for none. `reader`: only
    the article of a page.
    """

    def __init__(
        self,
        *,
        source: ByteSource,
        allow: tuple[str, ...] | None,
        public_only: bool,
        max_bytes: int,
        follow: int,
        agent: str,
        robots: bool,
        cache_bytes: int,
        reader: bool,
    ) -> None:
        self._source = source
        self._allow = None if allow is None else tuple(pattern.lower() for pattern in allow)
        self._public_only = public_only
        self._max_bytes = max_bytes
        self._follow = follow
        self._headers = {"accept": ACCEPT, "user-agent": agent}
        self._robots = Robots(agent.partition("/")[0]) if robots else None
        self._cache = PageCache[Answer](cache_bytes)
        self._reader = reader

    async def text(self, url: str, ctx: ToolContext, on_redirect: OnRedirect) -> str:
        """The page at `url` as text, redirects followed. Cancelled, it leaves no connection behind.

        `on_redirect(old, new)`: awaited before a redirect is followed; what it raises ends the fetch. Raises
        `ToolError` for what is not allowed, is no text, or cannot be had.
        """
        asked, url = url, self._checked(url)
        for hops in range(self._follow + 1):
            await self._check_behind_proxy(url, ctx)
            await self._check_robots(url, ctx)
            answer = await self._page(url, ctx)
            if answer.location is None:
                text = await self._text_of(answer, ctx)
                return text if hops == 0 else f"(from {url})\n\n{text}"
            url, before = self._checked(urljoin(url, answer.location)), url
            if hops < self._follow:
                await on_redirect(before, url)
        raise ToolError(f"{asked} redirects more than {self._follow} times; the last one is to {url}")

    def _checked(self, url: str) -> str:
        """The URL without its fragment, if it is one that may be fetched."""
        place = parsed(url)
        host = place.raw_host or ""
        if self._allow is not None and not any(fnmatchcase(host, pattern) for pattern in self._allow):
            raise ToolError(f"{host} is not allowed: only {', '.join(self._allow)}")
        if self._public_only and not _is_address(host) and not is_public_name(host):
            raise ToolError(f"{host} is no address of the public internet")
        return str(place.with_fragment(None))

    async def _check_behind_proxy(self, url: str, ctx: RunContext) -> None:
        """A proxy looks names up itself, where nobody can check what it finds: at least what we find is looked at."""
        if not self._public_only or proxy_for(url) is None:
            return
        host = URL(url).raw_host or ""
        try:
            given = await ctx.in_thread(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
            found = [str(address[0]) for *_, address in given]
        except OSError:
            found = []  # behind a proxy a machine need not know names
        for address in [host] if _is_address(host) else found:
            if not is_public(address):
                raise ToolError(f"{host} is at {address}, which is no address of the public internet")

    async def _check_robots(self, url: str, ctx: ToolContext) -> None:
        if self._robots is None:
            return
        if not await self._robots.allows(url, lambda place: self._robots_txt(place, ctx), ctx.in_thread):
            raise ToolError(f"{URL(url).host} does not allow programs to fetch {url}, by its robots.txt")

    async def _robots_txt(self, url: str, ctx: ToolContext) -> tuple[int, str]:
        """The status and the text of a robots.txt. Too many redirects, or one to where nobody may look: none."""
        for _ in range(ROBOTS_REDIRECTS + 1):
            await self._check_behind_proxy(url, ctx)
            answer = await self._get(url, ctx, {}, limit=LARGEST_ROBOTS, only_text=False)
            if answer.location is None:
                return answer.status, answer.body.decode("utf-8", "replace")
            try:
                url = self._checked(urljoin(url, answer.location))
            except ToolError:
                break
        return 404, ""

    async def _page(self, url: str, ctx: ToolContext) -> Answer:
        """What is kept of a page while it is fresh; else it is asked for, if need be whether it has changed."""
        kept = self._cache.get(url)
        if kept is not None and self._cache.is_fresh(kept):
            return kept.page
        answer = await self._get(url, ctx, {} if kept is None else kept.conditions)
        if kept is not None and answer.status == NOT_MODIFIED:
            self._cache.confirm(kept, answer.headers)
            return kept.page
        if answer.status == 200 and not answer.is_cut:
            size = len(answer.body) + len(url) + sum(map(len, answer.headers.values())) + OVERHEAD
            self._cache.store(url, answer, size, answer.headers)
        return answer

    async def _get(
        self,
        url: str,
        ctx: RunContext,
        conditions: Mapping[str, str],
        *,
        limit: int | None = None,
        only_text: bool = True,
    ) -> Answer:
        request = HttpRequest(url=url, headers={**self._headers, **conditions}, body=b"", method="GET")
        try:
            async with self._source.open(request, ctx, Unwatched()) as stream:
                location = stream.headers.get("location") if stream.status in REDIRECTS else None
                if location is not None:
                    return Answer(url=url, status=stream.status, location=location)
                kind, charset = content_type(stream.headers)
                if only_text and stream.status < 400 and not is_readable(kind):
                    raise ToolError(f"{url} is {kind}, which is no text: only pages, plain text and JSON can be read")
                body, is_cut = await read_body(stream, limit or self._max_bytes)
                return Answer(
                    url=url,
                    status=stream.status,
                    kind=kind,
                    charset=charset,
                    body=body,
                    is_cut=is_cut,
                    headers={name: stream.headers[name] for name in KEPT_HEADERS if name in stream.headers},
                )
        except ProviderError as error:
            ctx.token.raise_if_cancelled()
            raise ToolError(str(error)) from error

    async def _text_of(self, answer: Answer, ctx: ToolContext) -> str:
        """Its text; in reader mode its article, where one is found."""
        if self._reader and answer.status < 400:
            page = await ctx.in_thread(answer.html)
            article = page and await call_in_process(article_of, (page, answer.url), {}, ctx)
            if article:
                return answer.with_note(article)
        return await ctx.in_thread(answer.text, ctx)


async def read_body(stream: ByteStream, limit: int) -> tuple[bytes, bool]:
    """Returns the first `limit` bytes, and whether there are more, which are never read."""
    body = bytearray()
    async for piece in stream:
        body += piece
        if len(body) > limit:
            break  # leaving the stream early ends the connection
    return bytes(body[:limit]), len(body) > limit


ACCEPT = "text/html, text/plain, application/json;q=0.9, text/*;q=0.8, */*;q=0.1"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a server has said. `location`: where it says to look instead."""

    url: str
    status: int
    location: str | None = None
    kind: str = ""
    charset: str | None = None
    body: bytes = b""
    is_cut: bool = False
    headers: Mapping[str, str] = {}

    def text(self, ctx: RunContext) -> str:
        """The body as text; blocks. Raises `ToolError` for the body of an error, and `RunCancelled`."""
        page = self.html()
        text = self._decoded() if page is None else text_of(page, self.url, ctx.token.raise_if_cancelled)
        if self.status >= 400:
            said = f"{self.url} answered {self.status} {_phrase(self.status)}: {text[:LONGEST_REFUSAL]}"
            raise ToolError(said.strip())
        return self.with_note(text)

    def html(self) -> str | None:
        """The body where it is HTML, by its type or, if it has none, by its begin. Raises `ToolError`."""
        if self.kind and self.kind not in _HTML:
            return None
        text = self._decoded()
        is_html = self.kind or text.lstrip()[:15].lower().startswith(("<!doctype html", "<html"))
        return text if is_html else None

    def with_note(self, text: str) -> str:
        """A text of this page, and whether there is more of it."""
        return f"{text}\n\n(cut after {len(self.body):,} bytes)" if self.is_cut else text

    def _decoded(self) -> str:
        if not self.kind and b"\0" in self.body[:1024] and not self.body.startswith(tuple(mark for mark, _ in _MARKS)):
            raise ToolError(f"{self.url} is no text")
        marked = next((name for mark, name in _MARKS if self.body.startswith(mark)), None)
        named = _META.search(self.body[:4096]) if self.kind in _HTML else None
        for charset in (marked, self.charset, named[1].decode("ascii") if named else None):
            try:
                if charset is not None:
                    return self.body.decode(charset, "replace")
            except (LookupError, UnicodeError):
                pass  # a name that is none, or no name of a text's encoding
        return self.body.decode("utf-8", "replace")


def content_type(headers: Mapping[str, str]) -> tuple[str, str | None]:
    """The media type in lower case, empty if there is none, and the charset that it names."""
    given = headers.get("content-type")
    if not given:
        return "", None
    message = Message()
    message["content-type"] = given
    charset = message.get_param("charset")
    return message.get_content_type(), charset if isinstance(charset, str) else None


def is_readable(kind: str) -> bool:
    """Whether a media type is some text; an unnamed one is looked at when it is here."""
    return not kind or kind in _HTML or _TEXTS.fullmatch(kind) is not None


def _phrase(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return ""


def parsed(url: str) -> URL:
    """Reads a URL as the library does that connects, with its host in one form: two readings of it pass a check by.

    A dot at the end of the host is taken off. Raises `ToolError` for what is no URL of the web.
    """
    try:
        place = URL(url)
        host = place.raw_host or ""
        if host.endswith("."):
            host = host.rstrip(".")
            place = place.with_host(host)
        is_web = place.scheme in ("http", "https") and _is_web_host(host) and place.port is not None
    except ValueError as error:
        raise ToolError(f"{url[:200]!r} is no URL: {error}") from error
    if not is_web or len(url) > LONGEST_URL or any(ord(character) < 32 for character in url):
        raise ToolError(f"{url[:200]!r} cannot be fetched: use a whole URL that begins with http:// or https://")
    if place.user is not None or place.password is not None:
        raise ToolError("a URL with a user or a password in it is not fetched")
    return place


_NUMBER = re.compile(r"\d+|0x[\da-f]*")  # at the end of a host: https://url.spec.whatwg.org/#ends-in-a-number-checker


def _is_web_host(host: str) -> bool:
    """Checks a host. Raises `ValueError` for one that some programs read as an IPv4 address, and others do not."""
    if ":" not in host and _NUMBER.fullmatch(host.rpartition(".")[2]) and not _is_address(host):
        raise ValueError(f"{host} is not a canonical IPv4 address")
    return is_host(host) and ("%" not in host or ":" in host)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
