"""`web_search` over real sockets: engines that answer as they were recorded, and a stop that reaches the socket."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from halter import Agent
from halter.errors import ConfigurationError
from halter.messages import ToolResult
from halter.models.scripted import Scripted, calls
from halter.net import proxies
from halter.outcome import Ended
from halter.tools import Brave, SearchResult, SearXNG, Tavily, ToolContext, ToolError, web_search

from ..bounds import T, assert_within
from .web_server import Client, serving

pytestmark = pytest.mark.real_loop

KEY = "key-of-the-engine-0123456789"
RIVERS = [("Elbe - Wikipedia", "https://en.wikipedia.org/wiki/Elbe"), ("Rhine", "https://example.org/rhine?a=1&b=2")]
# As the engines answer, with the fields that nobody reads left out in part.
SEARXNG = {
    "query": "rivers",
    "number_of_results": 0,
    "results": [
        {"url": url, "title": title, "content": f"About {title}.", "engine": "brave", "publishedDate": None, "score": 1}
        for title, url in RIVERS
    ],
    "answers": [],
    "unresponsive_engines": [["google", "CAPTCHA"]],
}
BRAVE = {
    "type": "search",
    "query": {"original": "rivers", "more_results_available": True},
    "web": {
        "type": "search",
        "results": [
            {
                "title": title,
                "url": url,
                "description": f"About <strong>{title}</strong> &amp; more.",
                "age": "May 4, 2026",
            }
            for title, url in RIVERS
        ],
    },
}
TAVILY = {
    "query": "rivers",
    "answer": None,
    "results": [
        {"url": url, "title": title, "content": f"About {title}.", "score": 0.9, "raw_content": None}
        for title, url in RIVERS
    ],
    "response_time": 1.2,
}


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    proxies.forget()
    yield
    proxies.forget()


async def searched(engine: Any, query: str = "rivers", **options: Any) -> ToolResult:
    """What the model is told."""
    agent = Agent(Scripted(calls("web_search", query=query), "done"), tools=[web_search(engine, **options)])
    result = await agent.run("Go on")
    [one] = [part for message in result.messages for part in message.parts if isinstance(part, ToolResult)]
    return one


def said(client: Client) -> dict[str, list[str]]:
    return parse_qs(urlsplit(client.path).query)


@pytest.mark.loops
async def test_searxng_is_asked_by_its_json_api() -> None:
    async with serving() as server:
        server.otherwise = json_of(SEARXNG)
        engine = SearXNG(server.url("/"), language="de", categories=("general", "news"))
        result = await searched(engine, "größte Flüsse & Seen", limit=1)
        [client] = server.clients
    assert (result.content, result.is_error) == (
        "1. Elbe - Wikipedia\n   https://en.wikipedia.org/wiki/Elbe\n   About Elbe - Wikipedia.",
        False,
    )
    assert client.path.startswith("/search?")
    assert said(client) == {
        "q": ["größte Flüsse & Seen"],
        "format": ["json"],
        "language": ["de"],
        "categories": ["general,news"],
    }


async def test_brave_is_asked_with_its_key_in_a_header() -> None:
    async with serving() as server:
        server.otherwise = json_of(BRAVE)
        result = await searched(Brave(api_key=KEY, country="DE", url=server.url("/res/v1")), limit=50)
        [client] = server.clients
    assert result.content.startswith("1. Elbe - Wikipedia\n   https://en.wikipedia.org/wiki/Elbe\n   About Elbe")
    assert "   About Rhine & more.\n   (May 4, 2026)" in result.content
    assert client.path.startswith("/res/v1/web/search?")
    assert client.headers["x-subscription-token"] == KEY
    assert said(client) == {"q": ["rivers"], "count": ["20"], "text_decorations": ["false"], "country": ["DE"]}


async def test_tavily_is_asked_by_post_with_its_key_as_a_bearer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAVILY_API_KEY", KEY)
    bodies: list[Any] = []

    async def search(client: Client) -> None:
        bodies.append(json.loads(await client.reader.readexactly(int(client.headers["content-length"]))))
        await json_of(TAVILY)(client)

    async with serving(search=search) as server:
        result = await searched(Tavily(url=server.url("")), limit=3)
        [client] = server.clients
    assert result.content.count("https://") == 2
    assert client.headers["authorization"] == f"bearer {KEY}"  # the server lowers all of a line
    assert bodies == [{"query": "rivers", "max_results": 3}]


def json_of(answer: object, status: str = "200 OK") -> Any:
    async def say(client: Client) -> None:
        await client.answer(json.dumps(answer).encode(), "application/json", status)

    return say


@pytest.mark.parametrize(
    ("status", "body", "shown"),
    [
        ("403 Forbidden", b"Forbidden", "SearXNG answered 403 (its settings.yml must have json among search.formats)"),
        ("429 Too Many Requests", b"slowly", "SearXNG answered 429: slowly"),
        ("302 Found", b"", "SearXNG answered 302"),
        ("200 OK", b"<html>", "SearXNG gave no JSON"),
        ("200 OK", b"[1]", "SearXNG gave no JSON object"),
        ("200 OK", b'{"results": 5}', "Nothing was found for 'rivers'."),
        ("200 OK", b'{"results": [{"url": 5}, {"url": "javascript:x"}, 7, null]}', "Nothing was found for 'rivers'."),
    ],
)
async def test_an_engine_that_answers_something_else_is_told(status: str, body: bytes, shown: str) -> None:
    async def say(client: Client) -> None:
        await client.answer(body, "application/json", status, location="http://127.0.0.1:1/")

    async with serving() as server:
        server.otherwise = say
        result = await searched(SearXNG(server.url("")))
    assert result.content.startswith(shown)
    assert len(server.asked) == 1


async def test_a_key_that_an_engine_repeats_is_not_told() -> None:
    async with serving() as server:
        server.otherwise = json_of({"detail": {"error": f"the key {KEY} is not valid"}}, "401 Unauthorized")
        for engine in (Brave(api_key=KEY, url=server.url("")), Tavily(api_key=KEY, url=server.url(""))):
            result = await searched(engine)
            assert "is not valid" in result.content
            assert KEY not in result.content + repr(engine)


async def test_long_results_are_bounded() -> None:
    page = {"url": "https://example.org/" + "u" * 9000, "title": "t" * 9000, "content": "<b>" + "c" * 90_000}
    async with serving() as server:
        server.otherwise = json_of({"results": [page] * 5})
        result = await searched(SearXNG(server.url("")), limit=3)
    assert result.content.count("https://example.org/") == 3
    assert len(result.content) < 11_000


async def test_a_query_that_is_empty_or_too_long_is_not_asked() -> None:
    async with serving() as server:
        for query in ("  ", "x" * 1001):
            assert (await searched(SearXNG(server.url("")), query)).is_error
    assert server.asked == []


async def test_any_object_that_searches_is_an_engine() -> None:
    class Library:
        async def search(self, query: str, limit: int, ctx: ToolContext) -> Sequence[SearchResult]:
            if query == "nothing":
                raise ToolError("the library is closed")
            return [SearchResult(title=query, url=f"https://library.example/{number}") for number in range(99)]

    assert (await searched(Library(), limit=2)).content == (
        "1. rivers\n   https://library.example/0\n\n2. rivers\n   https://library.example/1"
    )
    assert (await searched(Library(), "nothing")).content == "the library is closed"


@pytest.mark.scenario(3, 27)
@pytest.mark.loops
async def test_a_stop_closes_the_engines_socket(no_leaks: None) -> None:
    async def stall(client: Client) -> None:
        await client.say(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{")
        await client.wait_until_gone()

    async with serving() as server:
        server.otherwise = stall
        tool = web_search(SearXNG(server.url("")))
        run = Agent(Scripted(calls("web_search", query="rivers"), "done"), tools=[tool]).run("Go on").start()
        await server.awaited(lambda: bool(server.clients) and bool(server.clients[0].sent))
        since = time.monotonic()
        run.cancel()
        result = await run.finished()
        took = time.monotonic() - since
        await server.awaited(lambda: server.clients[0].gone_at is not None)
        closed = (server.clients[0].gone_at or 0) - since
    assert_within(T, took, "the stop")
    assert_within(T, closed, "the close that the server saw")
    assert result.receipt is not None
    assert result.receipt.confirmed
    [line] = [line for line in result.receipt.resources if line.kind == "socket"]
    assert line.label == f"GET 127.0.0.1:{server.port}/search"
    assert line.ended is Ended.CLOSED


def test_wrong_options_are_refused_when_they_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BRAVE_API_KEY", raising=False)
    for wrong in (
        lambda: SearXNG("search.example.org"),
        lambda: SearXNG("https://me:word@search.example.org"),
        Brave,
        lambda: Tavily(api_key="a\nb"),
        lambda: web_search("https://search.example.org"),  # pyright: ignore
        lambda: web_search(SearXNG("https://search.example.org"), limit=0),
    ):
        with pytest.raises(ConfigurationError):
            wrong()
