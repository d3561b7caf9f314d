"""`http_get` over real sockets: what it makes of an answer, what it never asks, and that a stop reaches the socket."""

from __future__ import annotations

import asyncio
import gzip
import ipaddress
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from halter import Agent, events
from halter.errors import ConfigurationError
from halter.messages import ToolResult
from halter.models.scripted import Scripted, calls
from halter.net import proxies
from halter.net.addresses import is_public
from halter.outcome import Ended, RunResult
from halter.tools.fetching import http_get
from halter.tools.html_text import text_of

from ..bounds import T, assert_within
from .web_server import Client, serving

pytestmark = pytest.mark.real_loop
NO_RUN: Any = None  # patterns need none

PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever the machine's environment says."""
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    proxies.forget()
    yield
    proxies.forget()


async def fetched(url: str, **options: Any) -> ToolResult:
    """What the model is told."""
    options = {"private": True, "robots": False, **options}
    result = await Agent(Scripted(calls("http_get", url=url), "done"), tools=[http_get(**options)]).run("Go on")
    return told(result)


def told(result: RunResult[Any]) -> ToolResult:
    [one] = [part for message in result.messages for part in message.parts if isinstance(part, ToolResult)]
    return one


# -- what is made of an answer

PAGE = b"""<!doctype html><html><head><title>A  title</title><style>p {}</style></head><body>
<script>alert("<p>no</p>")</script><h1>Rivers</h1><p>The <b>Elbe</b> &amp; the
<a href="/rhine">Rhine</a>.</p><ul><li>one<li>two</ul></body></html>"""


@pytest.mark.loops
async def test_a_page_comes_as_its_text() -> None:
    async def page(client: Client) -> None:
        await client.answer(PAGE, "text/html; charset=utf-8")

    async with serving(page=page) as server:
        result = await fetched(server.url("/page"))
    assert not result.is_error
    assert result.content == (
        f"A title\n\n# Rivers\n\nThe Elbe & the Rhine (http://127.0.0.1:{server.port}/rhine).\n\n- one\n- two"
    )


@pytest.mark.parametrize(
    ("body", "kind", "shown"),
    [
        (b'{"a": [1, 2]}', "application/json", '{"a": [1, 2]}'),
        (b'{"a": 1}', "application/problem+json; charset=utf-8", '{"a": 1}'),
        ("größer".encode("latin-1"), "text/plain; charset=iso-8859-1", "größer"),
        ("größer".encode(), "text/plain; charset=no-such-thing", "größer"),
        ("größer".encode("utf-16"), "text/plain", "größer"),
        ("<meta charset='windows-1252'>größer".encode("cp1252"), "text/html", "größer"),
        (b"plain", "", "plain"),
        (b"<html><body><p>guessed</p></body></html>", "", "guessed"),
        (b"", "text/plain", ""),
    ],
    ids=[
        "json",
        "json-with-suffix",
        "charset",
        "unknown-charset",
        "utf-16",
        "meta",
        "no-type",
        "no-type-html",
        "empty",
    ],
)
async def test_text_is_decoded_as_it_says(body: bytes, kind: str, shown: str) -> None:
    async def text(client: Client) -> None:
        await client.answer(body, kind)

    async with serving(text=text) as server:
        result = await fetched(server.url("/text"))
    assert (result.is_error, result.content) == (False, shown)


async def test_what_is_no_text_is_refused_by_name() -> None:
    async def image(client: Client) -> None:
        await client.answer(b"\x89PNG\0", "image/png")

    async def unnamed(client: Client) -> None:
        await client.answer(b"\x7fELF\0\1", "")

    async with serving(image=image, unnamed=unnamed) as server:
        image_result, unnamed_result = await fetched(server.url("/image")), await fetched(server.url("/unnamed"))
    assert image_result.is_error
    assert "/image is image/png, which is no text" in image_result.content
    assert unnamed_result.is_error
    assert unnamed_result.content.endswith("/unnamed is no text")


async def test_an_error_is_told_with_what_the_server_says() -> None:
    async with serving() as server:
        result = await fetched(server.url("/nothing"))
    assert result.is_error
    assert result.content == f"http://127.0.0.1:{server.port}/nothing answered 404 Not Found: Nothing here"


async def test_a_compressed_answer_that_nobody_asked_for_is_read() -> None:
    async def packed(client: Client) -> None:
        assert client.headers["accept-encoding"] == "identity"
        await client.answer(gzip.compress(b"unpacked"), content_encoding="gzip")

    async with serving(packed=packed) as server:
        assert (await fetched(server.url("/packed"))).content == "unpacked"


async def test_nothing_answers_is_told() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        result = await fetched(f"http://127.0.0.1:{closed.getsockname()[1]}/")
    assert result.is_error
    assert "Cannot connect" in result.content


# -- redirects


async def test_redirects_are_followed_and_the_last_url_is_told() -> None:
    async def first(client: Client) -> None:
        await client.answer(b"", status="302 Found", location="/second?q=1#part")

    async def second(client: Client) -> None:
        await client.answer(b"here")

    async with serving(first=first, **{"second?q=1": second}) as server:
        result = await fetched(server.url("/first"))
        refused = await fetched(server.url("/first"), follow=0)
    assert result.content == f"(from http://127.0.0.1:{server.port}/second?q=1)\n\nhere"
    assert refused.is_error
    assert "redirects more than 0 times" in refused.content


async def test_a_circle_of_redirects_ends() -> None:
    async def circle(client: Client) -> None:
        await client.answer(b"", status="307 Temporary Redirect", location="/circle")

    async with serving(circle=circle) as server:
        result = await fetched(server.url("/circle"))
    assert "redirects more than 5 times" in result.content
    assert server.asked == ["/circle"] * 6


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("http://169.254.169.254/latest/meta-data/", "169.254.169.254 is no address of the public internet"),
        ("http://localhost:1/", "is no address of the public internet"),
        ("file:///etc/passwd", "cannot be fetched"),
        ("gopher://example.com/", "cannot be fetched"),
        ("http://user:word@example.com/", "a user or a password"),
    ],
    ids=["metadata", "localhost", "file", "gopher", "password"],
)
async def test_a_redirect_to_where_nobody_may_look_is_refused(
    location: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first address counts as public, as a server on the internet would; the second is what it is."""
    monkeypatch.setattr("halter.net.sockets.is_public", lambda address: address == "127.0.0.1" and not hops)
    hops: list[str] = []

    async def away(client: Client) -> None:
        hops.append(client.path)
        await client.answer(b"", status="302 Found", location=location)

    async with serving(away=away) as server:
        result = await fetched(server.url("/away"), private=False)
    assert hops == ["/away"]
    assert result.is_error
    assert why in result.content


# -- approvals


async def asked_on_the_way(url: str, answer: str = "yes", **options: Any) -> tuple[list[str], ToolResult]:
    """What somebody was asked; and what the model was told."""
    agent = Agent(Scripted(calls("http_get", url=url), "done"), tools=[http_get(private=True, robots=False, **options)])
    run = agent.run("Go on")
    asked: list[str] = []
    async for event in run:
        if isinstance(event, events.InputRequested):
            asked.append(event.prompt)
            run.answer(event.request_id, answer)
    return asked, told(await run)


def sending_on(to: Callable[[], str]) -> Callable[[Client], Awaitable[None]]:
    async def away(client: Client) -> None:
        await client.answer(b"", status="302 Found", location=to())

    return away


async def page(client: Client) -> None:
    await client.answer(b"page")


@pytest.mark.scenario("K103")
async def test_a_redirect_from_a_url_that_fits_a_pattern_to_one_that_does_not_asks() -> None:
    """A no is a denied call, and nobody is connected to; a yes holds for that host alone."""
    away = sending_on(lambda: server.url("/there", "localhost"))
    there = sending_on(lambda: server.url("/page", "localhost"))
    async with serving(away=away, there=there, page=page) as server:
        pattern = (f"http://127.0.0.1:{server.port}/*",)
        asked, refused = await asked_on_the_way(server.url("/away"), "no", approval=pattern)
        begin, end = server.url("/away"), server.url("/there", "localhost")
        assert asked == [f"http_get was sent on from {begin} to another address. May it fetch {end}?"]
        assert (refused.content, server.asked) == ("This call was not allowed.", ["/away"])
        asked, allowed = await asked_on_the_way(server.url("/away"), approval=pattern)
        assert len(asked) == 1
        assert allowed.content.endswith("page")
        both = (*pattern, f"http://localhost:{server.port}/*")
        assert (await asked_on_the_way(server.url("/away"), approval=both))[0] == []


@pytest.mark.scenario("K103")
async def test_a_yes_to_one_url_is_none_to_another_host() -> None:
    away = sending_on(lambda: server.url("/near"))
    near = sending_on(lambda: server.url("/page", "localhost"))
    async with serving(away=away, near=near, page=page) as server:
        asked, _ = await asked_on_the_way(server.url("/away"), approval="always")
    assert len(asked) == 2, "the first URL, and the other host; not the second URL of the first host"
    assert "localhost" in asked[1]


@pytest.mark.scenario("K103")
async def test_a_pattern_of_a_path_asks_where_a_redirect_leaves_it() -> None:
    away = sending_on(lambda: "/page")
    async with serving(page=page, **{"docs/a": away}) as server:
        asked, _ = await asked_on_the_way(server.url("/docs/a"), "no", approval=(server.url("/docs/*"),))
    assert len(asked) == 1
    assert server.asked == ["/docs/a"]


async def test_the_time_that_somebody_takes_to_answer_is_not_the_calls() -> None:
    away = sending_on(lambda: server.url("/page", "localhost"))
    async with serving(away=away, page=page) as server:
        tool = http_get(private=True, robots=False, timeout=0.5, approval=(server.url("/*"),))
        run = Agent(Scripted(calls("http_get", url=server.url("/away")), "done"), tools=[tool]).run("Go on")
        async for event in run:
            if isinstance(event, events.InputRequested):
                asyncio.get_running_loop().call_later(0.7, run.answer, event.request_id, "yes")
        assert told(await run).content.endswith("page")


@pytest.mark.scenario("K103")
@pytest.mark.parametrize(
    ("url", "pattern", "fits"),
    [
        ("https://example.com/docs/a?b=c", "https://example.com/*", True),
        ("https://EXAMPLE.com:443/a", "https://Example.com/*", True),
        ("https://example.com", "https://example.com/", True),
        ("https://example.com", "https://example.com", True),
        ("https://example.com/a", "https://example.com", False),
        ("https://www.example.org/a", "https://*.example.org/*", True),
        ("https://evil.net/?.example.org/a", "https://*.example.org/*", False),
        ("https://evil.net/a.example.org/a", "https://*.example.org/*", False),
        ("https://example.com.evil.net/", "https://example.com/*", False),
        ("https://example.com/docs/../admin", "https://example.com/docs/*", False),
        ("https://example.com/docs/%2e%2e/admin", "https://example.com/docs/*", False),
        ("https://example.com/docs/..%2fadmin", "https://example.com/docs/*", False),
        ("https://example.com/docs/%252e%252e%252fadmin", "https://example.com/docs/*", False),
        ("https://example.com/docs/..\\admin", "https://example.com/docs/*", False),
        ("https://example.com/docs/..;/admin", "https://example.com/docs/*", False),
        ("https://example.com/docs/..%2fadmin", "https://example.com/docs/..%2F*", True),
        ("https://example.com/docs/a..b?up=../x", "https://example.com/docs/*", True),
        ("http://example.com/", "https://*", False),
        ("https://anything/at/all", "https://*", True),
        ("https://anything/at/all", "*", True),
        ("file:///etc/passwd", "*", False),
        ("https://example.com@evil.net/", "https://example.com*", False),
    ],
)
async def test_a_pattern_is_compared_with_a_url_part_by_part(url: str, pattern: str, fits: bool) -> None:
    """As it is fetched; what cannot be fetched fits nothing."""
    assert await http_get(approval=(pattern,))._rule.asks({"url": url}, NO_RUN) is not fits


def test_a_pattern_that_is_no_url_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="whole URLs"):
        http_get(approval=("example.com/*",))


# -- what is never asked


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/",
        "http://localhost:{port}/",
        "http://[::1]:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
        "http://2130706433:{port}/",
        "http://0x7f.1:{port}/",
        "http://0:{port}/",
        "http://127.1:{port}/",
        "http://10.0.0.1/",
        "http://192.168.1.1/",
        "http://100.64.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[fe80::1]/",
        "http://[fd00::1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://localhost.:{port}/",
        "http://a.localhost:{port}/",
        "http://127.0.0.1.:{port}/",
        "http://0x7f.1.:{port}/",
        "http://[::1%25lo]:{port}/",
        "http://[::ffff:127.0.0.1%25lo]:{port}/",
        "http://192.0.0.1/",
        "http://168.63.129.16/",
        "http://192.88.99.1/",
        "http://[3fff::1]/",
    ],
)
async def test_private_addresses_are_refused_however_they_are_written(url: str) -> None:
    async def home(client: Client) -> None:
        await client.answer(b"secret")

    async with serving(home=home) as server:
        result = await fetched(url.format(port=server.port), private=False, timeout=5.0)
    assert result.is_error
    assert "is no address of the public internet" in result.content or "is not a canonical IPv4" in result.content
    assert server.clients == [], "nobody was connected to"


@pytest.mark.parametrize(
    "host",
    [
        "localhost.",
        "LOCALHOST..",
        "127.0.0.1.",
        "2130706433.",
        "0x7f.1",
        "10.1.2.3",
        "10.1.2.3.",
        "127.0.0.1%2e",
        "loc%61lhost",
        "[::1%25lo]",
        "[fe80::1%25eth0]",
        "[::ffff:10.1.2.3]",
        "[fd00:ec2::254]",
        "168.63.129.16",
        "metadata.google.internal",
        "printer.local",
        "wiki",
    ],
)
async def test_a_proxy_is_not_asked_for_private_hosts(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy would look up names, and read addresses, that this machine cannot."""

    def getaddrinfo(host: str, *_: object, **options: object) -> list[Any]:
        if host == "127.0.0.1":  # the proxy
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, server.port))]
        raise socket.gaierror(-2, "unknown")

    async with serving() as server:
        monkeypatch.setenv("HTTP_PROXY", server.url(""))
        proxies.forget()
        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        result = await fetched(f"http://{host}/", private=False)
    assert result.is_error
    assert server.clients == []


def test_the_machines_own_public_addresses_are_refused() -> None:
    """In a network namespace of its own, where this machine has an address of the internet."""
    program = (
        "from halter.net.addresses import is_public as p;"
        "print([p(a) for a in ('93.184.215.14', '::ffff:93.184.215.14', '64:ff9b::5db8:d70e', '93.184.215.15',"
        " '2606:2800:220::1', '2606:2800:220::2')])"
    )
    script = (
        "ip link set lo up && ip addr add 93.184.215.14/32 dev lo && ip addr add 2606:2800:220::1/128 dev lo"
        f' && exec {sys.executable} -c "$1"'
    )
    if shutil.which("unshare") is None:
        pytest.skip("no network namespaces here")
    command = ["unshare", "-rn", "sh", "-c", script, "sh", program]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        pytest.skip(f"no network namespace here: {ran.stderr.strip()}")
    assert ran.stdout.strip() == "[False, False, False, True, False, True]"


async def test_a_name_that_changes_its_mind_gets_nobody_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is checked is the address that is connected to, not an answer of the name server before."""
    asked: list[str] = []

    def getaddrinfo(host: str, port: int, *_: object, **options: object) -> list[Any]:
        asked.append(host)
        address = "93.184.215.14" if len(asked) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    async with serving() as server:
        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        socket.getaddrinfo("rebind.example", 80)  # as a check before would have asked
        result = await fetched(f"http://rebind.example:{server.port}/", private=False)
    assert asked == ["rebind.example"] * 2
    assert "127.0.0.1 is no address of the public internet" in result.content
    assert server.clients == []


async def test_behind_a_proxy_what_we_find_of_a_name_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy itself may be at home, and what it fetches is its own to check."""
    found = {"inside.example": "10.1.2.3", "outside.example": "93.184.215.14"}

    def getaddrinfo(host: str, port: int, *_: object, **options: object) -> list[Any]:
        if host not in found:
            raise socket.gaierror(-2, "unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (found[host], port))]

    async def proxied(client: Client) -> None:
        await client.answer(b"by the proxy")

    async with serving() as server:
        server.routes = {f"http://{host}/": proxied for host in ("outside.example", "unknown.example")}
        monkeypatch.setenv("HTTP_PROXY", server.url(""))
        proxies.forget()
        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        inside, outside, unknown = [
            await fetched(f"http://{host}.example/", private=False) for host in ("inside", "outside", "unknown")
        ]
    assert "inside.example is at 10.1.2.3, which is no address of the public internet" in inside.content
    assert outside.content == unknown.content == "by the proxy"


async def test_only_the_hosts_that_are_allowed_are_asked() -> None:
    async def page(client: Client) -> None:
        await client.answer(b"page")

    async def away(client: Client) -> None:
        await client.answer(b"", status="301 Moved Permanently", location=f"http://127.0.0.1:{server.port}/page")

    async with serving(page=page, away=away) as server:
        local = ("localhost", "*.example.org")
        allowed = await fetched(server.url("/page", "LOCALHOST"), allow=local)
        others = [
            await fetched(url, allow=local)
            for url in (
                server.url("/page"),
                "http://example.org/",
                "http://localhost.evil.example/",
                "http://localhost@127.0.0.1/",
                server.url("/away", "localhost"),
            )
        ]
    assert allowed.content == "page"
    assert all(other.is_error for other in others)
    assert server.asked == ["/page", "/away"]


@pytest.mark.parametrize(
    "url", ["", "page.html", "ftp://example.com/", "http://", "http://[::1/", "http://a:99999/", "x"]
)
async def test_what_is_no_url_of_the_web_is_refused(url: str) -> None:
    result = await fetched(url)
    assert result.is_error
    assert "URL" in result.content


def test_wrong_options_are_refused_when_the_tool_is_made() -> None:
    for wrong in (
        {"allow": "example.com"},
        {"allow": ()},
        {"allow": ("https://a/b",)},
        {"max_bytes": 0},
        {"follow": -1},
    ):
        with pytest.raises(ConfigurationError):
            http_get(**wrong)  # pyright: ignore


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.215.14", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("::ffff:93.184.215.14", True),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("240.0.0.1", False),
        ("255.255.255.255", False),
        ("192.0.2.1", False),
        ("198.18.0.1", False),
        ("::", False),
        ("ff02::1", False),
        ("fec0::1", False),
        ("fe80::1%eth0", False),
        ("2002:7f00:1::", False),
        ("2001:db8::1", False),
        ("64:ff9b::a00:1", False),
        ("64:ff9b::5db8:d70e", True),
        ("168.63.129.16", False),
        ("::ffff:168.63.129.16", False),
        ("64:ff9b::a83f:8110", False),
        ("192.0.0.9", False),
        ("192.0.0.192", False),
        ("192.31.196.1", False),
        ("192.52.193.1", False),
        ("192.88.99.1", False),
        ("192.175.48.1", False),
        ("::93.184.215.14", False),
        ("::ffff:0:5db8:d70e", False),
        ("64:ff9b:1::1", False),
        ("100:0:0:1::1", False),
        ("2001::1", False),
        ("2001:1::1", False),
        ("2001:4:112::1", False),
        ("2001:20::1", False),
        ("2002:5db8:d70e::1", False),
        ("2620:4f:8000::1", False),
        ("3fff::1", False),
        ("3fff:fff:ffff::1", False),
        ("4000::1", False),
        ("5f00::1", False),
        ("2606:2800:220:1:248:1893:25c8:1946%eth0", False),
        ("::ffff:93.184.215.14%1", False),
        ("2a00:1450:4001:82b::200e", True),
    ],
)
def test_an_address_is_public_or_not(address: str, public: bool) -> None:
    assert is_public(address) is public


def test_every_private_network_is_none_of_the_public() -> None:
    for network in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "169.254.0.0/16", "fc00::/7"):
        block = ipaddress.ip_network(network)
        assert not is_public(str(block[0]))
        assert not is_public(str(block[-1]))
        assert not is_public(str(block[block.num_addresses // 3]))


# -- bounds


async def test_an_endless_answer_is_cut_and_read_no_further() -> None:
    async def endless(client: Client) -> None:
        await client.say(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 1000000000\r\n\r\n")
        while True:
            await client.say(b"x" * 65536)

    async with serving(endless=endless) as server:
        result = await fetched(server.url("/endless"), max_bytes=100_000, max_result=200_000)
        await server.awaited(lambda: server.clients[0].gone_at is not None)
    assert result.content == "x" * 100_000 + "\n\n(cut after 100,000 bytes)"
    assert server.clients[0].sent < 20_000_000, "what the kernel's buffers hold, of a gigabyte"


async def test_a_server_that_is_too_slow_ends_the_call_and_not_the_run() -> None:
    async def stall(client: Client) -> None:
        await client.wait_until_gone()

    async with serving(stall=stall) as server:
        result = await fetched(server.url("/stall"), timeout=0.3)
        await server.awaited(lambda: server.clients[0].gone_at is not None)
    assert result.is_error
    assert "took too long" in result.content


# -- a stop


async def _headers(client: Client) -> None:
    await client.wait_until_gone()


async def _body(client: Client) -> None:
    await client.say(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 1000\r\n\r\nbegin")
    await client.wait_until_gone()


@pytest.mark.scenario(3, 27)
@pytest.mark.loops
@pytest.mark.parametrize("stall", [_headers, _body], ids=["before-headers", "in-the-body"])
async def test_a_stop_closes_the_socket(stall: Any, no_leaks: None) -> None:
    async with serving(stall=stall) as server:
        url = server.url("/stall")
        run = (
            Agent(Scripted(calls("http_get", url=url), "done"), tools=[http_get(private=True, robots=False)])
            .run("Go on")
            .start()
        )
        await server.awaited(lambda: bool(server.clients) and bool(server.clients[0].path))
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
    assert line.label == f"GET 127.0.0.1:{server.port}/stall"
    assert line.ended is Ended.CLOSED


async def test_a_stop_in_the_middle_of_a_large_page_ends_at_once() -> None:
    async def page(client: Client) -> None:
        await client.answer(b"<p>" + b"<a href='x'>word</a> " * 400_000, "text/html")

    async with serving(page=page) as server:
        tool = http_get(private=True, robots=False, max_bytes=10_000_000)
        run = Agent(Scripted(calls("http_get", url=server.url("/page")), "done"), tools=[tool]).run("Go on").start()
        await server.awaited(lambda: bool(server.clients) and server.clients[0].sent > 8_000_000)
        await asyncio.sleep(0.2)  # it is being made text
        since = time.monotonic()
        run.cancel()
        result = await run.finished()
    assert_within(T, time.monotonic() - since, "the stop")
    assert result.is_cancelled
    assert result.receipt is not None
    assert result.receipt.confirmed, "the thread has ended by itself"


async def test_a_page_that_takes_too_long_is_not_worked_on_after_the_time_out() -> None:
    async def page(client: Client) -> None:
        await client.answer(page_of("links", 9_000_000).encode(), "text/html")

    async with serving(page=page) as server:
        result = await fetched(server.url("/page"), max_bytes=10_000_000, timeout=1.0)
        assert "took too long" in result.content
        await server.awaited(lambda: not [one for one in threading.enumerate() if one.name == "halter-call-text"], 10.0)


# -- HTML that is broken on purpose


# What a page repeats; or its begin, what it repeats, and what it repeats after that.
HARMFUL: dict[str, tuple[str, str, str]] = {
    "comments": ("", "<!--", ""),
    "tags": ("", "<a ", ""),
    "signs": ("", "<", ""),
    "attributes": ("<a ", "b=' ", ""),
    "script": ("<script>", "</scrip", ""),
    "ends": ("", "</", ""),
    "declarations": ("", "<!", ""),
    "sections": ("", "<![CDATA[", ""),
    "entities": ("", "&am", ""),
    "numbers": ("", "&#", ""),
    "deep": ("", "<div>", ""),
    "hidden-deep": ("", "<svg>", "</b>" * 4),
    "links": ("", "<a href=x>y</a>", ""),
    "open-links": ("", "<a href=x>", "<i>"),
    "tables": ("", "<table><tr><td>", ""),
    "titles": ("<title>", "<b>", ""),
    "preformatted": ("<pre>", " \n", ""),
    "blank": ("", "<br>", ""),
}


def page_of(kind: str, length: int) -> str:
    begin, repeated, then = HARMFUL[kind]
    count = length // len(repeated)
    return begin + repeated * count + then * count


@pytest.mark.parametrize("kind", HARMFUL)
def test_broken_pages_take_no_time(kind: str) -> None:
    since = time.thread_time()
    text_of(page_of(kind, 60_000), "http://example.com/", lambda: None)
    assert_within(2.0, time.thread_time() - since, "in processor time, it")


def test_a_page_is_never_parsed_for_long_between_two_looks() -> None:
    """So that a stop, or the time-out, ends the work within the patience with a thread."""
    looks: list[float] = []
    text_of(page_of("links", 100_000), "http://example.com/", lambda: looks.append(time.thread_time()))
    longest = sorted(after - before for before, after in pairwise(looks))[-3]  # the collector may run in one or two
    assert_within(0.1, longest, "in processor time, one piece")


def test_links_do_not_make_a_page_many_times_longer() -> None:
    page = "<a href=x>y</a>" * 2_000
    text = text_of(page, f"http://example.com/{'p' * 7000}/", lambda: None)
    assert "(http://example.com/" in text
    assert len(text) < 3 * len(page)


def test_an_element_that_is_closed_closes_what_is_hidden_inside() -> None:
    assert text_of("<body><svg><object></svg>seen", "http://h/", lambda: None) == "seen"


def test_what_is_hidden_is_not_shown_and_what_is_open_hides_nothing() -> None:
    page = (
        "<head><title>t</title><meta><body><p>seen<template>no</template><svg><title>no</title></svg>"
        "<noscript>no</noscript><pre>  a\n    b</pre><a href='javascript:x'>c</a><a href='//d/e'>f<img alt=g></a>"
        "<table><tr><td>1<td>2</table><style>no" + "</style>end"
    )
    text = text_of(page, "https://h/i", lambda: None)
    assert text == "t\n\nseen\n  a\n    b\ncf[g] (https://d/e)\n\n\t1\t2\nend"
