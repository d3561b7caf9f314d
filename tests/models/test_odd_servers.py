"""Servers and proxies that answer in other ways than they should: read all the same, or named in one error."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from halter import Agent, RunResult
from halter.errors import ConfigurationError, ConnectionFailed, ProviderError, RequestRejected, StreamTimeout
from halter.messages import Message
from halter.models import Anthropic, Gemini, OpenAIChat, OpenAIResponses, http
from halter.models.answer_body import form_of
from halter.models.http import Timeouts
from halter.net import proxies
from halter.request import ModelRequest, OutputSchema, ToolSpec

from ..agents.loops import in_real_time

WHOLE = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}]}
DELTA = {"choices": [{"index": 0, "delta": {"content": "Hi."}, "finish_reason": "stop"}]}
SSE = f"data: {json.dumps(DELTA)}\n\ndata: [DONE]\n\n".encode()
JSON = json.dumps(WHOLE).encode()
PAGE = b"<!DOCTYPE html>\n<html><head><title>Sign in to the guest network</title></head><body>Please.</body></html>"


class Server:
    """A raw server: each connection gets `head` and `body`, and its requests are counted."""

    def __init__(self, status: str, headers: dict[str, str], pieces: list[bytes], pause: float) -> None:
        self.requests = 0
        self._status, self._headers, self._pieces, self._pause = status, headers, pieces, pause

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next((int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"-length:" in line), 0)
            await reader.readexactly(length)
            self.requests += 1
            lines = [f"HTTP/1.1 {self._status}", *(f"{name}: {value}" for name, value in self._headers.items())]
            writer.write("\r\n".join([*lines, "Connection: close", "", ""]).encode())
            for piece in self._pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(self._pause)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(
    *pieces: bytes, kind: str | None = None, status: str = "200 OK", pause: float = 0.0, **headers: str
) -> AsyncIterator[tuple[Server, str]]:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    server = Server(status, given | ({"Content-Type": kind} if kind else {}), list(pieces), pause)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    async with listener:
        yield server, f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_backoff", lambda attempt: 0.01)


async def ask(url: str, kind: Callable[..., Any] = OpenAIChat, **options: Any) -> RunResult[Any]:
    return await Agent(kind("m", base_url=url, api_key="sk-test-0123", **options)).run("hi").finished()


# --- what a body is -----------------------------------------------------------------------------------------


KINDS = ["application/json", "Application/JSON; Charset=UTF-8", "text/plain", "TEXT/EVENT-STREAM", "text/html", None]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", [SSE, JSON, b"\n\n" + JSON, b"\xef\xbb\xbf" + SSE, b": hello\n\n" + SSE])
@in_real_time
async def test_an_answer_is_read_whatever_its_content_type_says(kind: str | None, body: bytes) -> None:
    async with serving(body, kind=kind) as (_, url):
        result = await ask(url)
        assert result.text == "Hi.", result.why()


@pytest.mark.parametrize("body", [SSE, JSON])
@in_real_time
async def test_an_answer_that_comes_byte_by_byte_is_told_apart(body: bytes) -> None:
    async with serving(*(body[i : i + 1] for i in range(len(body))), kind="text/plain") as (_, url):
        assert (await ask(url)).text == "Hi."


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "application/json", "text/event-stream"])
@in_real_time
async def test_a_page_is_no_answer_and_its_words_are_told_once(kind: str) -> None:
    async with serving(PAGE, kind=kind) as (server, url):
        result = await ask(url)
        assert isinstance(result.error, ProviderError)
        assert "Sign in to the guest network" in str(result.error)
        assert "base_url" in str(result.error)
        assert server.requests == 1


@in_real_time
async def test_a_page_without_an_end_is_given_up() -> None:
    async with serving(PAGE, *[b"x" * 1000] * 2_000, kind="text/html") as (server, url):
        result = await ask(url)
        assert "Sign in" in str(result.error)
        assert server.requests == 1


@in_real_time
async def test_plain_words_are_told() -> None:
    async with serving(b"no healthy upstream", kind="text/plain") as (server, url):
        assert "no healthy upstream" in str((await ask(url)).error)
        assert server.requests == 1


ERRORS = [
    {"error": {"message": "Model fish is not loaded", "type": "odd"}},
    {"error": "Model fish is not loaded"},
    {"object": "error", "message": "Model fish is not loaded", "type": "BadRequestError", "code": 40001},
    {"detail": "Model fish is not loaded"},
]
MODELS = [OpenAIChat, OpenAIResponses, Anthropic, Gemini]


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream", "text/plain"])
@pytest.mark.parametrize("error", ERRORS, ids=range(len(ERRORS)))
@pytest.mark.parametrize("model", MODELS)
@in_real_time
async def test_an_error_in_a_200_is_told_once(model: Callable[..., Any], error: Any, kind: str) -> None:
    async with serving(json.dumps(error).encode(), kind=kind) as (server, url):
        result = await ask(url, model)
        assert isinstance(result.error, ProviderError)
        assert "Model fish is not loaded" in str(result.error)
        assert server.requests == 1


@in_real_time
async def test_an_error_in_a_200_that_says_that_it_will_pass_is_tried_again() -> None:
    error = {"error": {"message": "busy", "code": 429}}
    async with serving(json.dumps(error).encode(), kind="application/json") as (server, url):
        await ask(url)
        assert server.requests == 3


@pytest.mark.parametrize("model", MODELS)
@in_real_time
async def test_an_error_frame_of_any_type_is_an_error(model: Callable[..., Any]) -> None:
    """As vLLM writes them, on Responses too."""
    error = {"object": "error", "message": "prompt refused", "type": "BadRequestError", "param": None, "code": 400}
    async with serving(f"data: {json.dumps(error)}\n\n".encode(), kind="text/event-stream") as (server, url):
        result = await ask(url, model)
        assert isinstance(result.error, RequestRejected)
        assert "prompt refused" in str(result.error)
        assert server.requests == 1


@pytest.mark.parametrize("start", [b"", b"d", b"da", b"even", b"i", b"ret"])
def test_the_beginning_of_a_fields_name_waits_for_the_rest(start: bytes) -> None:
    assert form_of(start, "value") is None


# --- silence ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [b": still there\n\n", b":\r\n", b"\n", b" "])
@in_real_time
async def test_comments_for_ever_are_silence(piece: bytes) -> None:
    """Behind words they end at the idle time-out; before any, at that of the first token."""
    words = b'data: {"choices": [{"index": 0, "delta": {"content": "Hi."}}]}\n\n'
    limits = Timeouts(first_token=0.2, idle=0.2)
    for before, phase in ((b"", "first_token"), (words, "idle")):
        async with serving(before, *[piece] * 300, kind="text/event-stream", pause=0.01) as (_, url):
            error = (await ask(url, timeouts=limits, max_retries=0)).error
            assert isinstance(error, StreamTimeout)
            assert error.phase == phase


@in_real_time
async def test_a_frame_that_comes_slowly_is_not_silent() -> None:
    async with serving(*(SSE[i : i + 8] for i in range(0, len(SSE), 8)), pause=0.04) as (_, url):
        assert (await ask(url, timeouts=Timeouts(first_token=0.3, idle=0.3))).text == "Hi."


# --- the way there ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"])
@in_real_time
async def test_a_redirect_says_where_to(status: str) -> None:
    where = "https://user:secret@api.example.com/v2/chat/completions?key=secret"
    async with serving(status=status, Location=where) as (server, url):
        text = str((await ask(url)).error)
        assert "https://api.example.com/v2/chat/completions" in text
        assert "redirect" in text
        assert "secret" not in text
        assert server.requests == 1
    async with serving(status=status, Location="/other") as (_, url):
        assert url.removesuffix("/v1") + "/other" in str((await ask(url)).error)


@pytest.mark.parametrize("where", ["http://[::1", "//[bad", "http://[v1]/?key=secret"])
@in_real_time
async def test_a_redirect_to_what_is_no_url_is_the_providers_failure(where: str) -> None:
    """Not ours: else no other model is asked in its place."""
    async with serving(status="302 Found", Location=where) as (_, url):
        error = (await ask(url)).error
        assert isinstance(error, RequestRejected)
        assert "secret" not in str(error)


@pytest.mark.parametrize("status", ["403 Forbidden", "502 Bad Gateway"])
@pytest.mark.parametrize("scheme", ["http", "https"])
@in_real_time
async def test_what_a_proxy_refuses_is_said_to_be_the_proxys(
    status: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(status=status, Content_Length="0") as (server, url):
        monkeypatch.setenv(f"{scheme.upper()}_PROXY", url.removesuffix("/v1"))
        proxies.forget()
        result = await ask(f"{scheme}://api.example.com/v1")
        assert f"the proxy {url.removesuffix('/v1')}" in str(result.error)
        assert status[:3] in str(result.error)
        assert server.requests == (1 if status.startswith("403") else 3)


@in_real_time
async def test_a_proxy_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    proxies.forget()
    result = await ask("https://api.example.com/v1", max_retries=0)
    assert isinstance(result.error, ConnectionFailed)
    assert "the proxy http://127.0.0.1:9" in str(result.error)


@pytest.fixture(autouse=True)
def forget_proxies() -> Any:
    yield
    proxies.forget()


@pytest.mark.parametrize("host", ["a..b", ".a", "a" * 64 + ".example", "a b", "a.b..", "[::g]", "a<b"])
def test_a_host_that_cannot_be_is_refused_when_the_model_is_made(host: str) -> None:
    with pytest.raises(ConfigurationError, match="base_url"):
        OpenAIChat("m", base_url=f"http://{host}/v1", api_key="k")


@pytest.mark.parametrize(
    "host", ["localhost", "a_b", "bücher.example", "a.b.", "[::1]", "10.0.0.1", "xn--bcher-kva.example"]
)
def test_a_host_that_can_be_is_taken(host: str) -> None:
    OpenAIChat("m", base_url=f"http://{host}/v1", api_key="k")


# --- compression --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["br", "zstd", "compress", "gzip, br"])
@in_real_time
async def test_a_compression_that_cannot_be_read_is_refused_once(encoding: str) -> None:
    async with serving(b"\x0b\x02\x80{}\x03", kind="application/json", Content_Encoding=encoding) as (server, url):
        result = await ask(url)
        assert isinstance(result.error, ProviderError)
        assert "compress" in str(result.error)
        assert encoding[:2] in str(result.error)
        assert server.requests == 1


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "identity"])
@in_real_time
async def test_a_compression_that_can_be_read_is_read(encoding: str) -> None:
    body = gzip.compress(SSE) if encoding.lower() == "gzip" else SSE
    async with serving(body, kind="text/event-stream", Content_Encoding=encoding) as (_, url):
        assert (await ask(url)).text == "Hi."


# --- extra_body ---------------------------------------------------------------------------------------------

SCHEMA = OutputSchema(name="City", schema={"type": "object", "properties": {}}, strict=True)
TOOL = ToolSpec(name="look", description="Looks.", parameters={"type": "object", "properties": {}})
BESIDE: list[tuple[Callable[..., Any], dict[str, Any], Callable[[Any], Any]]] = [
    (OpenAIResponses, {"text": {"verbosity": "low"}}, lambda body: body["text"]["format"]["schema"]),
    (OpenAIChat, {"response_format": {"json_schema": {"x": 1}}}, lambda body: body["response_format"]),
    (Anthropic, {"output_config": {"effort": "low"}}, lambda body: body["output_config"]["format"]["schema"]),
    (Gemini, {"generationConfig": {"seed": 1}}, lambda body: body["generationConfig"]["responseJsonSchema"]),
]
AGAINST: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (OpenAIResponses, {"text": {"format": {"type": "json_object"}}}),
    (OpenAIResponses, {"text": None}),
    (OpenAIChat, {"response_format": {"type": "json_object"}}),
    (Anthropic, {"output_config": {"format": {"type": "other"}}}),
    (Gemini, {"generationConfig": {"responseJsonSchema": {}}}),
]


def body_of(kind: Callable[..., Any], extra: dict[str, Any], output: OutputSchema | None = SCHEMA) -> Any:
    model = kind("gpt-5.2", base_url="http://x.example/v1", api_key="k", extra_body=extra)
    return json.loads(
        model._http_request(ModelRequest(messages=(Message.user("hi"),), tools=(TOOL,), output=output)).body
    )


@pytest.mark.parametrize(("kind", "extra", "schema"), [each for each in BESIDE if each[0] is not OpenAIChat])
def test_more_fields_stand_beside_the_schema(
    kind: Callable[..., Any], extra: dict[str, Any], schema: Callable[[Any], Any]
) -> None:
    body = body_of(kind, extra)
    assert schema(body) == schema(body_of(kind, {}))
    ((field, value),) = extra.items()
    assert value.items() <= body[field].items()


@pytest.mark.parametrize(("kind", "extra"), AGAINST)
def test_an_extra_body_never_replaces_the_schema(kind: Callable[..., Any], extra: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="extra_body sets"):
        body_of(kind, extra)
    assert body_of(kind, extra, None)  # and is free without one


@pytest.mark.parametrize("kind", MODELS)
def test_more_tools_join_those_of_the_agent(kind: Callable[..., Any]) -> None:
    tools = body_of(kind, {"tools": [{"type": "web_search"}]}, None)["tools"]
    assert len(tools) == 2
    assert tools[1] == {"type": "web_search"}
