"""Proxies of the environment over a real proxy, CAs, and that no secret of either is ever shown."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import traceback
from base64 import b64encode
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from halter import Agent, RunResult, events
from halter.errors import (
    AuthenticationFailed,
    ConfigurationError,
    ConnectionFailed,
    ProviderError,
    RateLimited,
    RequestRejected,
    ServerFailed,
    StreamTimeout,
)
from halter.models import OpenAIChat
from halter.models.error_frames import describe_body
from halter.models.http import Timeouts
from halter.net import proxies as reading
from halter.net.proxies import Proxy as Found
from halter.net.proxies import proxy_for
from halter.net.sockets import SocketSource
from halter.testing import Answer, MemorySource
from halter.testing.memory import error_status
from halter.testing.wire_probe import WireProbe

from .forwarding import Proxy, forwarding

WHOLE = "".join(f"t{index} " for index in range(20))
KEY = "sk-very-secret-0123456789"
USER, PASSWORD = "ann%40corp", "p%3Aw-hush-hush"
BASIC = b64encode(b"ann@corp:p:w-hush-hush").decode()
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUEST_METHOD")
Environment = Callable[..., None]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Generator[Environment]:
    """`environment(HTTP_PROXY="…")`: these variables and no others, for the length of the test."""

    def set_to(**variables: str) -> None:
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.lower(), raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        reading.forget()

    set_to()
    yield set_to
    monkeypatch.undo()
    reading.forget()


@pytest.fixture(params=["forward", "tunnel"])
def through(
    request: pytest.FixtureRequest, wire: WireProbe, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[str, dict[str, Any]]]:
    """`through(proxy, mode)`: the URL and the options of a model behind the proxy, plain or over TLS.

    The provider is on this machine, which no proxy is asked about otherwise.
    """
    monkeypatch.setattr(reading, "is_loopback", lambda host: False)

    def reach(proxy: Proxy, mode: str, credentials: str = "") -> tuple[str, dict[str, Any]]:
        is_tunnel = request.param == "tunnel"
        environment(**{"HTTPS_PROXY" if is_tunnel else "HTTP_PROXY": f"http://{credentials}{proxy.url}"})
        return (wire.tls_url(mode), {"ca_file": wire.ca_file}) if is_tunnel else (wire.url(mode), {})

    return reach


def agent_at(url: str, **options: Any) -> Agent:
    return Agent(OpenAIChat("m", base_url=url, api_key=KEY, **options))


async def result_at(url: str, **options: Any) -> RunResult[Any]:
    return await agent_at(url, **options).run("count").finished()


def everything_in(error: BaseException | None) -> str:
    """All that a log would show of an error."""
    assert error is not None
    chain = "".join(traceback.format_exception(error))
    facts = [getattr(error, name, None) for name in ("code", "request_id")]
    return f"{error} {error!r} {error.args} {facts} {chain} {' '.join(map(repr, _before(error)))}"


def _before(error: BaseException) -> Iterator[BaseException]:
    """Its causes and contexts, and theirs."""
    for before in (error.__cause__, error.__context__):
        if before is not None:
            yield before
            yield from _before(before)


# --- which proxy --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "url", "expected"),
    [
        ({}, "https://api.test/v1", None),
        ({"HTTPS_PROXY": "http://p:1"}, "https://api.test/v1", "http://p:1"),
        ({"https_proxy": "http://p:1"}, "https://api.test/v1", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1"}, "http://api.test/v1", None),
        ({"HTTP_PROXY": "http://p:1"}, "http://api.test/v1", "http://p:1"),
        ({"ALL_PROXY": "http://p:1"}, "https://api.test/v1", "http://p:1"),
        ({"HTTPS_PROXY": "p:1"}, "https://api.test/v1", "http://p:1"),
        ({"HTTPS_PROXY": "https://p"}, "https://api.test/v1", "https://p"),
        ({"HTTPS_PROXY": "http://[::2]:3"}, "https://api.test/v1", "http://[::2]:3"),
        ({"HTTPS_PROXY": ""}, "https://api.test/v1", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "api.test"}, "https://api.test/v1", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".test"}, "https://api.test/v1", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, "https://api.test/v1", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "other.test, api.test:443"}, "https://api.test/v1", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "api.test:444"}, "https://api.test/v1", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "api.test:444"}, "https://api.test:444/v1", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "test.api"}, "https://api.test/v1", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1"}, "https://localhost/v1", None),
        ({"HTTPS_PROXY": "http://p:1"}, "https://127.0.0.1/v1", None),
        ({"HTTPS_PROXY": "http://p:1"}, "https://127.8.8.8/v1", None),
        ({"HTTPS_PROXY": "http://p:1"}, "https://[::1]:4/v1", None),
        ({"HTTPS_PROXY": "http://p:1"}, "https://127.example.com/v1", "http://p:1"),
    ],
)
def test_the_environment_says_which_proxy(
    environment: Environment, variables: dict[str, str], url: str, expected: str | None
) -> None:
    """In capitals or not, with a port or not; never for this machine itself."""
    environment(**variables)
    found = proxy_for(url)
    assert (found.url if found else None) == expected


@pytest.mark.parametrize("wrong", ["socks5://p:1", "ftp://p", "http://", "http://p:port", "http://[::2"])
def test_a_proxy_that_cannot_be_used_is_your_mistake(environment: Environment, wrong: str) -> None:
    environment(HTTPS_PROXY=wrong)
    with pytest.raises(ConfigurationError, match="HTTPS_PROXY"):
        proxy_for("https://api.test/v1")


def test_a_proxys_user_and_password_are_kept_out_of_its_url(environment: Environment) -> None:
    """Decoded for the header, and in no `repr`."""
    environment(HTTPS_PROXY=f"http://{USER}:{PASSWORD}@p:1")
    assert proxy_for("https://api.test/v1") == Found("http://p:1", f"Basic {BASIC}")
    assert repr(proxy_for("https://api.test/v1")) == "<Proxy http://p:1>"


# --- through it ---------------------------------------------------------------------------------------------


@pytest.mark.loops
async def test_an_answer_comes_through_a_proxy(wire: WireProbe, through: Any) -> None:
    """Forwarded, or by CONNECT with TLS inside; five answers use one connection."""
    with forwarding() as proxy:
        url, options = through(proxy, "steady(20,1)")
        agent = agent_at(url, **options)
        for _ in range(5):
            assert (await agent.run("count")).text == WHOLE
        assert len({record.connection for record in wire.requests()}) == 1
        if url.startswith("https"):
            assert [asked.method for asked in proxy.asked] == ["CONNECT"]
            assert "authorization" not in proxy.asked[0].headers  # the key is inside the tunnel
        else:
            assert {unquote(asked.target) for asked in proxy.asked} == {unquote(f"{url}/chat/completions")}


@pytest.mark.loops
async def test_a_stop_through_a_proxy_closes_the_socket(wire: WireProbe, through: Any) -> None:
    """The receipt is confirmed, and the provider sees the close as without a proxy."""
    with forwarding() as proxy:
        url, options = through(proxy, "steady(5000,2)")
        run = agent_at(url, **options).run("count").start()
        await wire.awaited("token")
        at = time.monotonic()
        run.cancel()
        result = await run.finished()
        assert result.is_cancelled
        assert result.receipt is not None
        assert result.receipt.confirmed
        assert [line.kind for line in result.receipt.resources if line.kind == "socket"] == ["socket"]
        wire.assert_closed(within=0.25, since=at)


@pytest.mark.loops
async def test_a_stop_never_poisons_the_next_one_through_a_proxy(wire: WireProbe, through: Any) -> None:
    """One connection, fifteen times: one run is stopped somewhere, the next is whole and at its first try."""
    with forwarding() as proxy:
        url, options = through(proxy, "steady(20,1)")
        agent = agent_at(url, connections=1, **options)
        for number in range(15):
            stopped, next_one = agent.run("a").start(), agent.run("b").start()
            await asyncio.sleep(number * 0.0024)
            stopped.cancel()
            await stopped.finished()
            result = await asyncio.wait_for(next_one.finished(), 5.0)
            assert result.text == WHOLE, result.why()
            assert not [event async for event in next_one.events() if isinstance(event, events.ModelRetry)]


@pytest.mark.loops
async def test_a_stop_while_a_proxy_says_nothing_closes_the_socket(through: Any) -> None:
    """It has taken the connection and answers nothing: the stop ends it there."""
    with forwarding("silent") as proxy:
        url, options = through(proxy, "steady(20,1)")
        run = agent_at(url, **options).run("count").start()
        while not proxy.asked:  # noqa: ASYNC110 - it is in another thread
            await asyncio.sleep(0.005)
        run.cancel()
        result = await run.finished()
        assert result.receipt is not None
        assert result.receipt.confirmed
        assert await asyncio.to_thread(proxy.closed_by_client.wait, 1.0)


@pytest.mark.loops
async def test_a_tunnel_that_is_not_made_is_a_time_out_of_connecting(
    wire: WireProbe, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "is_loopback", lambda host: False)
    with forwarding("silent") as proxy:
        environment(HTTPS_PROXY=proxy.url)
        limits = Timeouts(connect=0.2)
        result = await result_at(wire.tls_url(), ca_file=wire.ca_file, timeouts=limits, max_retries=0)
        assert isinstance(result.error, StreamTimeout)
        assert result.error.phase == "connect"
        assert await asyncio.to_thread(proxy.closed_by_client.wait, 1.0)


@pytest.mark.loops
async def test_user_and_password_go_to_the_proxy_alone(wire: WireProbe, through: Any) -> None:
    """In the request for a tunnel, or in each forwarded request; the provider sees none of it."""
    with forwarding() as proxy:
        url, options = through(proxy, "steady(20,1)", f"{USER}:{PASSWORD}@")
        for _ in range(2):
            assert (await result_at(url, **options)).text == WHOLE
        assert {asked.headers["proxy-authorization"] for asked in proxy.asked} == {f"Basic {BASIC}"}
        assert not any("proxy-authorization" in record.headers for record in wire.requests())


@pytest.mark.loops
@pytest.mark.parametrize("way", ["refusing", "bad gateway", "garbled", "gone"])
async def test_no_error_shows_a_proxys_password(way: Any, through: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A proxy that repeats it, one that makes no sense, or none there: message, causes, events, and the log."""
    caplog.set_level(logging.DEBUG)
    with forwarding("silent" if way == "gone" else way) as proxy:
        url, options = through(proxy, "steady(20,1)", f"{USER}:{PASSWORD}@")
        if way == "gone":
            proxy.close()
        run = agent_at(url, max_retries=0, **options).run("count")
        result = await run.finished()
        assert result.is_failed
        kinds = {"refusing": AuthenticationFailed, "bad gateway": (ServerFailed, ConnectionFailed)}
        assert isinstance(result.error, kinds.get(way, ConnectionFailed)), result.why()
        assert way != "refusing" or result.error.status == 407
        shown = everything_in(result.error) + repr([event async for event in run.events()]) + caplog.text
        for secret in (PASSWORD, "p:w-hush-hush", BASIC, KEY):
            assert secret not in shown


@pytest.mark.loops
async def test_a_proxy_that_is_not_asked_is_not_asked(wire: WireProbe, environment: Environment) -> None:
    """`NO_PROXY`, and this machine itself."""
    with forwarding() as proxy:
        environment(HTTP_PROXY=f"http://{proxy.url}")
        assert (await result_at(wire.url("steady(20,1)"))).text == WHOLE
        environment(HTTP_PROXY=f"http://{proxy.url}", NO_PROXY="127.0.0.1")
        assert (await result_at(wire.url("steady(20,1)"))).text == WHOLE
        assert proxy.asked == []


# --- connections --------------------------------------------------------------------------------------------


@pytest.mark.loops
async def test_connections_are_counted_by_host(wire: WireProbe) -> None:
    """Two at once to one host: six runs share two connections; another name has two of its own."""
    url = wire.url("steady(20,2)")
    agents = [agent_at(place, connections=2) for place in (url, url.replace("127.0.0.1", "localhost"))]
    results = await asyncio.gather(*(agent.run("count").finished() for agent in agents for _ in range(6)))
    assert [result.text for result in results] == [WHOLE] * 12
    by_host: dict[str, set[int]] = {}
    for record in wire.requests():
        by_host.setdefault(record.headers["host"], set()).add(record.connection)
    assert [len(used) for used in by_host.values()] == [2, 2]


# --- certificates -------------------------------------------------------------------------------------------


@pytest.mark.loops
async def test_an_unknown_authority_is_a_connection_that_failed(wire: WireProbe) -> None:
    """Not trusted by default; trusted with `ca_file`, in the model or in its source."""
    result = await result_at(wire.tls_url("steady(20,1)"), max_retries=0)
    assert isinstance(result.error, ConnectionFailed)
    assert "certificate" in str(result.error).lower()
    assert (await result_at(wire.tls_url("steady(20,1)"), ca_file=wire.ca_file)).text == WHOLE
    source = SocketSource(ca_file=wire.ca_file)
    assert (await result_at(wire.tls_url("steady(20,1)"), source=source)).text == WHOLE


def test_a_ca_file_that_cannot_be_read_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    for path in (tmp_path / "none.pem", tmp_path / "empty.pem"):
        with pytest.raises(ConfigurationError, match="cannot be read"):
            OpenAIChat("m", base_url="https://api.test/v1", api_key=KEY, ca_file=str(path))


@pytest.mark.loops
async def test_pools_of_different_authorities_are_apart(wire: WireProbe) -> None:
    """A connection that one model trusts is not handed to a model that does not."""
    assert (await result_at(wire.tls_url("steady(20,1)"), ca_file=wire.ca_file)).is_completed
    assert isinstance((await result_at(wire.tls_url("steady(20,1)"), max_retries=0)).error, ConnectionFailed)


# --- secrets ------------------------------------------------------------------------------------------------

SECRET = "top+secret/4711"


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("options", "secret"),
    [
        ({"api_key": SECRET}, SECRET),
        ({"headers": {"Authorization": f"Bearer {SECRET}"}}, SECRET),
        ({"headers": {"api-key": SECRET}}, SECRET),
        ({"headers": {"X-Goog-Api-Key": SECRET}}, SECRET),
        ({"headers": {"X-Gateway-Token": SECRET}}, SECRET),
        ({"headers": {"X-Custom-Pass": f"two words {SECRET}"}}, f"two words {SECRET}"),
        ({"headers": {"Cookie": f"session={SECRET}"}}, f"session={SECRET}"),
        ({"base_url": "https://api.test/v1?api-version=1&key=top%2Bsecret%2F4711"}, "top%2Bsecret%2F4711"),
        ({"base_url": "https://api.test/v1?api-version=1&key=top%2Bsecret%2F4711"}, SECRET),
    ],
    ids=str,
)
@pytest.mark.parametrize("way", ["status", "frame", "garbage", "broken", "retried"])
async def test_no_error_shows_a_key_that_is_repeated(
    options: dict[str, Any], secret: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By an error status, an error frame, no JSON at all, or a library's exception: in no message, cause or event."""
    caplog.set_level(logging.DEBUG)
    said = f"denied: {secret} is not right"
    frame = b'data: {"error": {"message": "%s", "type": "server_error"}}\n\n' % said.encode()
    answers = {
        "status": [error_status(400, message=said)],
        "frame": [Answer(body=((0.0, frame),))],
        "garbage": [Answer(body=((0.0, f"data: {said}\n\n".encode()),))],
        "broken": [Answer(connect=_caused(said))],
        "retried": [error_status(503, message=said)] * 2,
    }[way]
    source = MemorySource(*answers)
    common = {"base_url": "https://api.test/v1", "api_key": KEY, "max_retries": int(way == "retried")}
    model = OpenAIChat("m", source=source, **common | options)
    run = Agent(model).run("count")
    result = await run.finished()
    assert result.is_failed
    shown = everything_in(result.error) + repr([event async for event in run.events()]) + caplog.text
    assert "[key]" in str(result.error)
    assert secret not in shown
    assert secret not in f"{model!r} {Agent(model)!r} {source.requests[0]!r} {source.requests[0].request!r}"
    assert secret not in repr(source.requests[0].headers)


def _caused(said: str) -> ConnectionFailed:
    error = ConnectionFailed(f"cannot connect: {said}")
    error.__cause__ = OSError(said)
    return error


@pytest.mark.virtual_time
@pytest.mark.parametrize("options", [{"api_key": SECRET}, {"headers": {"X-Custom-Pass": SECRET}}], ids=str)
async def test_no_error_shows_part_of_a_key_where_it_is_cut(options: dict[str, Any]) -> None:
    """Wherever the key stands in a long message, page or frame: the message is shortened behind the redaction."""
    for length in (*range(960, 1001, 5), *range(150, 201, 7), 2040, 4090):
        long = "x" * length + SECRET
        frame = b'data: {"error": {"message": "%s"}}\n\n' % long.encode()
        page = Answer(status=400, body=((0.0, f"<html>{' ' * length}{SECRET}</html>".encode()),))
        garbage = Answer(body=((0.0, f"data: {long}\n\n".encode()),))
        for answer in (error_status(400, message=long), Answer(body=((0.0, frame),)), page, garbage):
            model_options: dict[str, Any] = {
                "base_url": "https://api.test/v1",
                "api_key": KEY,
                "max_retries": 0,
            } | options
            run = Agent(OpenAIChat("m", source=MemorySource(answer), **model_options)).run("count")
            result = await run.finished()
            assert result.is_failed
            assert len(str(result.error)) < 1100
            shown = everything_in(result.error) + repr([event async for event in run.events()])
            assert SECRET[:5] not in shown


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "no", "code": f"invalid:{SECRET}"}},
        {"error": {"message": "no", "type": SECRET}},
        {"error": f"invalid key {SECRET}", "message": "no"},
    ],
    ids=str,
)
async def test_no_code_and_no_request_id_shows_a_key(body: dict[str, Any]) -> None:
    """Some servers put the key, or the words of the error, where a code should stand."""
    told = json.dumps(body).encode()
    refused = Answer(status=400, headers={"x-request-id": f"for-{SECRET}"}, body=((0.0, told),))
    for answer in (refused, Answer(body=((0.0, b"data: %s\n\n" % told),))):
        source = MemorySource(answer)
        run = agent_at("https://api.test/v1", source=source, max_retries=0, headers={"X-Pass": SECRET}).run("count")
        result = await run.finished()
        assert result.is_failed
        assert isinstance(result.error, ProviderError)
        assert "[key]" in f"{result.error.code} {result.error}"
        assert answer is not refused or result.error.request_id == "for-[key]"
        assert SECRET not in everything_in(result.error) + repr([event async for event in run.events()])


@pytest.mark.parametrize("piece", [b"<", b"<script>", b"<title", b"<p>x</p>", b"</script ", b"<!-- "])
def test_a_page_takes_time_in_proportion_to_its_length(piece: bytes) -> None:
    """64 KB of opening brackets is no reason to stand still."""
    began = time.process_time()
    describe_body(b"<html>" + piece * (65536 // len(piece)))
    assert time.process_time() - began < 0.5


@pytest.mark.virtual_time
async def test_what_is_no_secret_is_not_redacted() -> None:
    """The name of a parameter, a version, a short value."""
    said = "api-version 2024-10-21 is not true, code a, OpenAI-Beta assistants=v2, application/json"
    source = MemorySource(error_status(400, message=said))
    url, headers = "https://api.test/v1?api-version=2024-10-21&code=a", {"OpenAI-Beta": "assistants=v2", "X-A": "true"}
    model = OpenAIChat("m", base_url=url, api_key=KEY, source=source, headers=headers)
    result = await Agent(model).run("count").finished()
    assert said in str(result.error)


@pytest.mark.virtual_time
@pytest.mark.parametrize(("told", "requests"), [("false", 1), ("true", 3), ("maybe", 3)])
async def test_a_server_that_says_whether_to_retry_is_believed(told: str, requests: int) -> None:
    """`x-should-retry`, as the official SDKs take it; without a clear word the status decides."""
    failing = error_status(429 if told != "true" else 400)
    answer = Answer(status=failing.status, headers={**failing.headers, "x-should-retry": told}, body=failing.body)
    source = MemorySource(*[answer] * 3)
    result = await result_at("https://api.test/v1", source=source)
    assert isinstance(result.error, RateLimited | RequestRejected)
    assert len(source.requests) == requests
