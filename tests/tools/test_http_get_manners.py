"""`http_get` as a guest of sites: pages are kept as servers allow, robots.txt is respected, articles are found."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from halter import Agent
from halter.errors import ConfigurationError
from halter.messages import ToolResult
from halter.models.scripted import Scripted, calls
from halter.net import proxies
from halter.tools import robots
from halter.tools.fetching import http_get
from halter.tools.robots import Robots
from halter.tools.web_cache import PageCache, freshness

from ..bounds import T, assert_within
from . import isolated_functions
from .web_server import Client, Server, serving

pytestmark = pytest.mark.real_loop


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    proxies.forget()
    yield
    proxies.forget()


async def fetched(tool: Any, *urls: str) -> list[str]:
    """What the model is told of each, one after the other."""
    script = [calls("http_get", url=url) for url in urls]
    result = await Agent(Scripted(*script, "done"), tools=[tool]).run("Go on")
    return [part.content for message in result.messages for part in message.parts if isinstance(part, ToolResult)]


# -- the cache


class Page:
    """A page that counts how often it is asked for, and how."""

    def __init__(self, **headers: str) -> None:
        self.headers = headers
        self.asked: list[dict[str, str]] = []

    async def __call__(self, client: Client) -> None:
        self.asked.append(client.headers)
        if client.headers.get("if-none-match") == '"one"':
            await client.answer(b"", "", "304 Not Modified", **self.headers)
        else:
            await client.answer(b"answer %d" % len(self.asked), **self.headers)


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        ({"cache_control": "public, max-age=60"}, ["answer 1", "answer 1"]),
        ({"cache_control": "max-age=60, no-store"}, ["answer 1", "answer 2"]),
        ({"cache_control": "max-age=60", "age": "90"}, ["answer 1", "answer 2"]),
        ({"cache_control": "s-maxage=60"}, ["answer 1", "answer 2"]),
        ({"cache_control": "max-age=60", "vary": "*"}, ["answer 1", "answer 2"]),
        ({"cache_control": "max-age=60", "vary": "accept"}, ["answer 1", "answer 1"]),
        ({"etag": '"one"', "cache_control": "no-cache"}, ["answer 1", "answer 1"]),
        ({"date": "Sun, 22 Nov 2026 12:00:00 GMT", "expires": "Sun, 22 Nov 2026 12:01:00 GMT"}, ["answer 1"] * 2),
        ({"date": "Sun, 22 Nov 2026 12:00:00 GMT", "expires": "0"}, ["answer 1", "answer 2"]),
        ({}, ["answer 1", "answer 2"]),
    ],
    ids=["fresh", "no-store", "old", "shared", "vary-all", "vary", "validated", "expires", "expired", "silent"],
)
async def test_a_page_is_kept_as_its_server_says(headers: dict[str, str], shown: list[str]) -> None:
    page = Page(**headers)
    tool = http_get(private=True, robots=False)
    async with serving(page=page) as server:
        assert await fetched(tool, server.url("/page"), server.url("/page")) == shown


async def test_a_page_that_has_not_changed_is_asked_for_by_its_tag_and_not_sent_again() -> None:
    page = Page(etag='"one"', last_modified="Sun, 22 Nov 2026 12:00:00 GMT")
    tool = http_get(private=True, robots=False)
    async with serving(page=page) as server:
        assert await fetched(tool, server.url("/page"), server.url("/page")) == ["answer 1"] * 2
    assert "if-none-match" not in page.asked[0]
    assert page.asked[1]["if-none-match"] == '"one"'
    assert page.asked[1]["if-modified-since"] == "sun, 22 nov 2026 12:00:00 gmt"  # the server lowers all of a line


async def test_each_tool_has_a_cache_of_its_own_and_may_have_none() -> None:
    page = Page(cache_control="max-age=60")
    async with serving(page=page) as server:
        for cache_bytes in (16_000, 0, 1000):  # an empty page takes memory, too
            tool = http_get(private=True, robots=False, cache_bytes=cache_bytes)
            await fetched(tool, server.url("/page"), server.url("/page"))
    assert len(page.asked) == 1 + 2 + 2


def test_the_cache_is_bounded_and_lets_go_of_what_was_used_least() -> None:
    cache = PageCache[str](100)
    for name in ("a", "b", "c"):
        cache.store(name, name, 40, {"cache-control": "max-age=9"})
        cache.get("a")
    cache.store("large", "large", 101, {"cache-control": "max-age=9"})
    assert [name for name in ("a", "b", "c", "large") if cache.get(name)] == ["a", "c"]
    cache.store("c", "c", 10, {"cache-control": "no-store"})
    assert cache.get("c") is None


def test_what_is_kept_gets_old() -> None:
    now = 0.0
    cache = PageCache[str](100, clock=lambda: now)
    cache.store("a", "a", 1, {"cache-control": "max-age=60"})
    kept = cache.get("a")
    assert kept is not None
    assert cache.is_fresh(kept)
    now = 61.0
    assert not cache.is_fresh(kept)
    cache.confirm(kept, {"cache-control": "max-age=10"})
    assert cache.is_fresh(kept)


@pytest.mark.parametrize(
    "given", ["max-age", "max-age=-1", "max-age=x", "max-age=1e9", ",,=,", "=" * 9000, "a=" * 9000]
)
def test_headers_that_mean_nothing_keep_nothing(given: str) -> None:
    assert not freshness({"cache-control": given})


def test_nothing_is_fresh_for_longer_than_a_week() -> None:
    assert freshness({"cache-control": "max-age=" + "9" * 500}) == 7 * 24 * 3600


# -- robots.txt

RULES = b"""
User-agent: other
Disallow: /

User-agent: Halter
Disallow: /private
Disallow: /b
"""


def site(rules: bytes, status: str = "200 OK") -> dict[str, Any]:
    async def robots_txt(client: Client) -> None:
        await client.answer(rules, status=status)

    async def page(client: Client) -> None:
        await client.answer(b"page")

    return {"robots.txt": robots_txt, "page": page, "private/page": page}


async def test_what_robots_txt_forbids_is_not_fetched_and_the_rules_are_asked_for_once() -> None:
    async with serving(**site(RULES)) as server:
        urls = [server.url(path) for path in ("/private/page", "/page", "/private/page?a")]
        no, yes, again = await fetched(http_get(private=True), *urls)
    assert no == f"127.0.0.1 does not allow programs to fetch {urls[0]}, by its robots.txt"
    assert yes == "page"
    assert "does not allow" in again
    assert server.asked == ["/robots.txt", "/page"]


async def test_rules_for_others_are_not_ours_and_nobody_has_to_ask() -> None:
    async with serving(**site(RULES)) as server:
        private = server.url("/private/page")
        [allowed] = await fetched(http_get(private=True, user_agent="shop/2 (+https://shop.example)"), private)
        [forbidden] = await fetched(http_get(private=True, user_agent="other/2"), server.url("/page"))
        assert (allowed, "does not allow" in forbidden) == ("page", True)
        server.asked.clear()
        assert await fetched(http_get(private=True, robots=False), private) == ["page"]
        assert server.asked == ["/private/page"]
        assert server.clients[-1].headers["user-agent"] == "halter"


@pytest.mark.parametrize(
    ("status", "shown"),
    [("404 Not Found", "page"), ("401 Unauthorized", "page"), ("503 Service Unavailable", "does not allow")],
)
async def test_without_rules_all_is_allowed_and_nothing_where_the_server_fails(status: str, shown: str) -> None:
    async with serving(**site(RULES, status)) as server:
        [told] = await fetched(http_get(private=True), server.url("/private/page"))
    assert shown in told


async def test_the_rules_may_be_elsewhere_but_not_where_nobody_may_look() -> None:
    routes = site(b"")

    async def away(client: Client) -> None:
        await client.answer(b"", status="302 Found", location=places.pop(0))

    async def rules(client: Client) -> None:
        await client.answer(RULES, "application/octet-stream")

    async with serving(**{**routes, "robots.txt": away, "rules": rules}) as server:
        places = ["/rules", server.url("/rules", "localhost")]
        private = server.url("/private/page")
        [followed] = await fetched(http_get(private=True), private)
        [refused] = await fetched(http_get(private=True, allow=["127.0.0.1"]), private)
    assert "does not allow" in followed
    assert refused == "page"
    assert server.asked == ["/robots.txt", "/rules", "/robots.txt", "/private/page"]


@pytest.mark.parametrize("installed", [True, False])
async def test_rules_are_read_with_and_without_the_extra(installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if installed:
        pytest.importorskip("protego")
    else:
        monkeypatch.setattr(robots, "_with_protego", lambda *_: None)
    asked: list[str] = []
    now = 0.0

    async def get(url: str) -> tuple[int, str]:
        asked.append(url)
        return 200, "User-agent: *\nDisallow: /a\n\nUser-agent: halter\nDisallow: /b\n"

    rules = Robots("halter", clock=lambda: now)
    assert [await rules.allows(f"https://h{path}", get, asyncio.to_thread) for path in ("/a", "/b", "/b/c")] == [
        True,
        False,
        False,
    ]
    assert asked == ["https://h/robots.txt"]
    now = robots.KEPT_FOR + 1
    await rules.allows("https://h/a", get, asyncio.to_thread)
    assert len(asked) == 2


async def test_a_stop_while_the_rules_are_awaited_closes_the_socket() -> None:
    async def stall(client: Client) -> None:
        await client.wait_until_gone()

    async with serving(**{"robots.txt": stall}) as server:
        run = _run(http_get(private=True), server)
        await server.awaited(lambda: bool(server.clients) and bool(server.clients[0].path))
        since = time.monotonic()
        run.cancel()
        result = await run.finished()
        await server.awaited(lambda: server.clients[0].gone_at is not None)
    assert_within(T, (server.clients[0].gone_at or 0) - since, "the close that the server saw")
    assert result.receipt.confirmed


def _run(tool: Any, server: Server) -> Any:
    return Agent(Scripted(calls("http_get", url=server.url("/page")), "done"), tools=[tool]).run("Go on").start()


# -- articles

ARTICLE = (
    "<html><head><title>Rivers</title></head><body><nav><a href=/>Home</a><a href=/shop>Buy our maps now</a></nav>"
    "<article><h1>Rivers</h1>"
    + "<p>The Elbe is a river of some length, which rises in the mountains and <a href='/sea'>ends in the sea</a>.</p>"
    * 8
    + "</article><footer>Cookies are used on this site.</footer></body></html>"
).encode()


async def test_a_reader_gets_the_article_alone() -> None:
    pytest.importorskip("trafilatura")

    async def page(client: Client) -> None:
        await client.answer(ARTICLE, "text/html")

    async def empty(client: Client) -> None:
        await client.answer(b"<html><body><p>Hello</body></html>", "text/html")

    async def plain(client: Client) -> None:
        await client.answer(b"plain")

    async with serving(page=page, empty=empty, plain=plain) as server:
        tool = http_get(private=True, robots=False, reader=True)
        article, short, text = await fetched(tool, *(server.url(path) for path in ("/page", "/empty", "/plain")))
    assert "The Elbe is a river" in article
    assert "/sea)" in article
    assert "Buy our maps" not in article
    assert "Cookies" not in article
    assert short.strip() == "Hello"
    assert text == "plain"


async def test_a_stop_kills_a_reader_at_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its parser cannot be interrupted: its process is."""

    async def page(client: Client) -> None:
        await client.answer(ARTICLE, "text/html")

    pytest.importorskip("trafilatura")
    mark = tmp_path / "at-work"
    monkeypatch.setenv("HALTER_TEST_MARK", str(mark))
    monkeypatch.setattr("halter.tools.web.article_of", isolated_functions.endless_page)
    async with serving(page=page) as server:
        run = _run(http_get(private=True, robots=False, reader=True), server)
        await server.awaited(mark.exists, 30.0)
        since = time.monotonic()
        run.cancel()
        result = await run.finished()
    assert_within(2.0, time.monotonic() - since, "the stop")
    assert any(line.kind == "process" for line in result.receipt.resources)
    assert result.receipt.confirmed


def test_a_reader_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halter.tools.reader.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"halter\[web\]"):
        http_get(reader=True)


def test_an_agent_without_a_name_is_refused() -> None:
    for wrong in ("", "a b", "1/2", "a\r\nx: y", "a/1\n"):
        with pytest.raises(ConfigurationError):
            http_get(user_agent=wrong)
