"""`AzureOpenAI`: its two routes, its ways in, and what its content filters do to an answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from openai import AsyncAzureOpenAI, AsyncOpenAI
from openai import AzureOpenAI as SdkAzureOpenAI

from halter import Agent, RunContext, RunFailed, runnable
from halter.errors import AuthenticationFailed, ConfigurationError, RequestRejected, StreamTimeout
from halter.messages import Message, Usage
from halter.models.azure import AzureOpenAI
from halter.models.http import Timeouts
from halter.proof.wire import Wire
from halter.request import ModelRequest, Settings
from halter.testing import Answer, MemorySource, run
from halter.testing.memory import chat_stream, error_status

from .recording_reply import decode_frames
from .test_openai import asked

KEY, TOKEN = "azure-key-of-mine", "eyJ0eXAi.token-of-mine"
ENDPOINT = "https://mine.openai.azure.com"
VARIABLES = ("AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN", "OPENAI_API_VERSION")


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def sent(model: str = "dep", **options: Any) -> Any:
    """The one request that such a model makes."""
    source = MemorySource(chat_stream(1))
    asked(AzureOpenAI(model, **({"base_url": ENDPOINT} | options), source=source), source)
    return source.requests[0]


# --- routes -------------------------------------------------------------------------------------------------


def test_without_a_version_the_v1_route_is_taken() -> None:
    """The deployment is the model; the key has a header of its own."""
    request = sent(api_key=KEY)
    assert request.url == f"{ENDPOINT}/openai/v1/chat/completions"
    assert request.json["model"] == "dep"
    assert request.headers["api-key"] == KEY
    assert "Authorization" not in request.headers


def test_with_a_version_the_deployments_route_is_taken() -> None:
    """The deployment stands in the path, whatever characters it has."""
    url = sent("my dep/x", api_key=KEY, api_version="2024-10-21").url
    assert url == f"{ENDPOINT}/openai/deployments/my%20dep%2Fx/chat/completions?api-version=2024-10-21"
    assert sent(api_key=KEY, api_version="preview").url == f"{ENDPOINT}/openai/v1/chat/completions?api-version=preview"
    assert sent(api_key=KEY, api_version="v1").url == f"{ENDPOINT}/openai/v1/chat/completions"


@pytest.mark.parametrize("copied", ["", "/", "/openai", "/openai/v1", "/openai/v1/"])
def test_the_endpoint_may_be_copied_with_its_route(copied: str) -> None:
    """The portal and the SDKs show it in several ways."""
    assert sent(api_key=KEY, base_url=ENDPOINT + copied).url == f"{ENDPOINT}/openai/v1/chat/completions"


def test_all_comes_from_the_variables_of_the_official_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Endpoint, key, version; a token in the environment wins over a key there, and a given key over both."""
    for name, value in zip(VARIABLES, (ENDPOINT + "/", KEY + "\n", "", "2024-10-21"), strict=True):
        monkeypatch.setenv(name, value)
    request = sent(base_url=None)
    assert request.url == f"{ENDPOINT}/openai/deployments/dep/chat/completions?api-version=2024-10-21"
    assert request.headers["api-key"] == KEY
    assert sent(api_version="").url == f"{ENDPOINT}/openai/v1/chat/completions"
    monkeypatch.setenv("AZURE_OPENAI_AD_TOKEN", TOKEN)
    headers = sent().headers
    assert (headers["Authorization"], headers.get("api-key")) == (f"Bearer {TOKEN}", None)
    given = sent(api_key="another").headers
    assert (given["api-key"], given.get("Authorization")) == ("another", None)


@pytest.mark.parametrize("env", [{}, {"AZURE_OPENAI_AD_TOKEN": TOKEN}, {"AZURE_OPENAI_API_KEY": KEY}])
@pytest.mark.parametrize("given", [{}, {"api_key": "k"}, {"azure_ad_token": "t"}])
def test_the_same_way_in_is_chosen_as_by_the_official_sdk(
    env: dict[str, str], given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK's own client, made of the same arguments and variables, sends the same header."""
    if not env and not given:
        return
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    sdk = SdkAzureOpenAI(azure_endpoint=ENDPOINT, api_version="2024-10-21", **given)
    ours = sent(**{{"azure_ad_token": "ad_token"}.get(name, name): value for name, value in given.items()}).headers
    expected = {"Authorization": f"Bearer {sdk._azure_ad_token}"} if sdk._azure_ad_token else {"api-key": sdk.api_key}
    assert {name: ours[name] for name in ("Authorization", "api-key") if name in ours} == expected
    sdk.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "AZURE_OPENAI_API_KEY"),
        ({"base_url": None, "api_key": KEY}, "AZURE_OPENAI_ENDPOINT"),
        ({"api_key": KEY, "ad_token": TOKEN}, "only one of"),
        ({"api_key": KEY, "token_provider": lambda: TOKEN}, "only one of"),
        ({"token_provider": TOKEN}, "token_provider"),
        ({"api_key": KEY, "base_url": f"{ENDPOINT}/openai/deployments/x"}, "the name as model"),
        ({"ad_token": "two words"}, "ad_token"),
        ({"api_key": KEY, "api_version": "2024&x=1"}, "api_version"),
        ({"api_key": KEY, "settings": Settings(top_k=3)}, "top_k"),
    ],
)
def test_what_cannot_work_is_refused_when_the_model_is_made(options: dict[str, Any], words: str) -> None:
    """The error names what is missing or one too many, and shows no secret."""
    with pytest.raises(ConfigurationError, match=words) as caught:
        AzureOpenAI("dep", **({"base_url": ENDPOINT} | options))
    assert not [secret for secret in (KEY, TOKEN, "two words") if secret in str(caught.value)]


def test_a_header_of_ones_own_is_a_way_in() -> None:
    """Behind a gateway: no key is asked for, and the token provider is left alone."""
    assert sent(headers={"Authorization": "Bearer x"}).headers["Authorization"] == "Bearer x"
    request = sent(headers={"authorization": "Bearer x"}, token_provider=never)
    assert request.headers["authorization"] == "Bearer x"
    assert "api-key" not in sent(api_key="", headers={"X-Gateway": "k"}).headers


def never() -> str:
    raise AssertionError("nobody should ask")


# --- tokens -------------------------------------------------------------------------------------------------


def numbered(kind: str) -> tuple[Callable[[], str | Awaitable[str]], list[int]]:
    calls: list[int] = []

    def plain() -> str:
        calls.append(len(calls))
        return f"token-{len(calls)}"

    async def later() -> str:
        await asyncio.sleep(1)
        return plain()

    return (plain if kind == "plain" else later), calls


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_token_provider_is_asked_for_each_answer(kind: str) -> None:
    """Plain or `async`; each answer has the newest token, and no key."""
    provider, calls = numbered(kind)
    source = MemorySource(chat_stream(1), repeat=True)
    model = AzureOpenAI("dep", base_url=ENDPOINT, token_provider=provider, source=source)
    asked(model, source)
    asked(model, source)
    assert [request.headers["Authorization"] for request in source.requests] == ["Bearer token-1", "Bearer token-2"]
    assert len(calls) == 2
    assert "api-key" not in source.requests[0].headers


def failing() -> str:
    raise OSError("no network")


@pytest.mark.parametrize("provider", [failing, lambda: "", lambda: None, lambda: "a\nb"])
def test_a_token_provider_that_fails_is_a_typed_error_and_nothing_is_sent(provider: Any) -> None:
    """`AuthenticationFailed`, which is not retried, with its cause."""
    source = MemorySource(chat_stream(1))
    with pytest.raises(RunFailed) as caught:
        asked(AzureOpenAI("dep", base_url=ENDPOINT, token_provider=provider, source=source), source)
    error = caught.value.__cause__
    assert isinstance(error, AuthenticationFailed)
    assert "azure:dep: the token provider" in str(error)
    assert isinstance(error.__cause__, OSError) == (provider is failing)
    assert source.requests == []


def test_a_stop_ends_the_wait_for_a_token() -> None:
    """The provider sees its own cancellation; no request is made."""
    seen: list[str] = []
    source = MemorySource(chat_stream(1))

    async def slow() -> str:
        try:
            await asyncio.sleep(3600)
        finally:
            seen.append("ended")
        return TOKEN

    model = AzureOpenAI("dep", base_url=ENDPOINT, token_provider=slow, source=source)

    @runnable
    async def ask(ctx: RunContext) -> Message:
        return await model.respond(ModelRequest(messages=(Message.user("hi"),)), ctx)

    async def main() -> str:
        started = ask.run(None).start()
        await asyncio.sleep(1)
        started.cancel()
        return (await started.finished()).status.value

    assert run(main) == "cancelled"
    assert (seen, source.requests) == (["ended"], [])


@pytest.mark.parametrize("limit", ["first_token", "total"])
def test_a_token_that_does_not_come_is_a_time_out(limit: str) -> None:
    """A phase of its own, before there is a connection: no longer than for a first byte, or than all may take."""
    source = MemorySource(chat_stream(1))
    timeouts = Timeouts(**{limit: 7.0})
    model = AzureOpenAI("dep", base_url=ENDPOINT, token_provider=never_comes, timeouts=timeouts, source=source)
    with pytest.raises(RunFailed) as caught:
        asked(model, source)
    error = caught.value.__cause__
    assert isinstance(error, StreamTimeout)
    assert (error.phase, source.requests) == ("token", [])
    assert "no token for 7.0 s" in str(error)


async def never_comes() -> str:
    await asyncio.sleep(3600)
    return TOKEN


def test_a_stop_leaves_a_token_that_others_wait_for_too() -> None:
    """A provider that hands out one task to all who ask: the first is stopped, the second gets its answer."""
    source = MemorySource(chat_stream(1))
    shared: list[asyncio.Task[str]] = []

    async def fetched() -> str:
        await asyncio.sleep(10)
        return TOKEN

    model = AzureOpenAI("dep", base_url=ENDPOINT, token_provider=lambda: shared[0], source=source)

    @runnable
    async def ask(ctx: RunContext) -> Message:
        return await model.respond(ModelRequest(messages=(Message.user("hi"),)), ctx)

    async def main() -> list[str]:
        shared.append(asyncio.ensure_future(fetched()))
        first, second = ask.run(None).start(), ask.run(None).start()
        await asyncio.sleep(1)
        first.cancel()
        return [(await each.finished()).status.value for each in (first, second)]

    assert run(main) == ["cancelled", "completed"]


def test_a_token_provider_that_is_cancelled_by_others_has_failed() -> None:
    """No stop was asked for: the run fails, and is not cancelled."""

    async def cancelled() -> str:
        raise asyncio.CancelledError

    source = MemorySource(chat_stream(1))
    with pytest.raises(RunFailed) as caught:
        asked(AzureOpenAI("dep", base_url=ENDPOINT, token_provider=cancelled, source=source), source)
    assert isinstance(caught.value.__cause__, AuthenticationFailed)


def test_no_secret_is_shown() -> None:
    """Not in `repr`, and not in the error of a server that repeats the token."""
    source = MemorySource(error_status(401, message=f"bad token {TOKEN}"))
    model = AzureOpenAI("dep", base_url=ENDPOINT, token_provider=lambda: TOKEN, source=source)
    with pytest.raises(RunFailed) as caught:
        asked(model, source)
    shown = f"{caught.value.__cause__}{model!r}{source.requests[0].request!r}{model._headers!r}"
    assert "bad token [key]" in shown
    assert TOKEN not in shown
    assert repr(model) == f"AzureOpenAI('dep', base_url='{ENDPOINT}')"


def test_a_token_that_an_error_frame_repeats_is_not_shown_either() -> None:
    """Each request's own token, also inside a stream."""
    frame = b'data: {"error": {"message": "bad token ' + TOKEN.encode() + b'"}}\n\n'
    source = MemorySource(Answer(body=((0.0, frame),)))
    model = AzureOpenAI("dep", base_url=ENDPOINT, token_provider=lambda: TOKEN, max_retries=0, source=source)
    with pytest.raises(RunFailed) as caught:
        asked(model, source)
    assert "bad token [key]" in str(caught.value.__cause__)


# --- content filters ----------------------------------------------------------------------------------------

SAFE = {"hate": {"filtered": False, "severity": "safe"}}


def frames(*values: dict[str, Any]) -> list[bytes]:
    head = {"id": "", "object": "", "created": 0, "model": ""}
    return [*(json.dumps(head | value).encode() for value in values), b"[DONE]"]


def choice(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "finish_reason": None} | fields]}


PROMPT_FILTERS = {"choices": [], "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": SAFE}]}
CHECKED = choice(
    content_filter_results=SAFE, content_filter_offsets={"check_offset": 44, "start_offset": 44, "end_offset": 198}
)


def test_what_the_filters_found_is_skipped() -> None:
    """A first chunk without a choice, results beside a delta, and the asynchronous filter's chunks without a delta."""
    decoded = decode_frames(
        *frames(
            PROMPT_FILTERS,
            choice(delta={"role": "assistant"}, content_filter_results={}),
            choice(delta={"content": "Hel"}, content_filter_results=SAFE),
            CHECKED,
            choice(delta={"content": "lo"}),
            choice(delta={}, finish_reason="stop"),
            CHECKED,
            {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}},
        )
    )
    assert (decoded.message.text, decoded.message.finish_reason) == ("Hello", "stop")
    assert (decoded.message.usage, decoded.error) == (Usage(input=3, output=2), None)


def test_an_answer_that_a_filter_cut_off_says_so() -> None:
    """Also where the asynchronous filter says it after the answer was over."""
    hit = {"violence": {"filtered": True, "severity": "high"}}
    for before in ([], [choice(delta={}, finish_reason="stop")]):
        last = choice(finish_reason="content_filter", content_filter_results=hit)
        decoded = decode_frames(*frames(choice(delta={"content": "He"}), *before, last))
        assert (decoded.message.text, decoded.message.finish_reason) == ("He", "content_filter")
        assert decoded.is_over


REFUSED = {
    "message": "The response was filtered due to the prompt triggering the content management policy.",
    "type": None,
    "param": "prompt",
    "code": "content_filter",
    "status": 400,
    "innererror": {
        "code": "ResponsibleAIPolicyViolation",
        "content_filter_result": SAFE
        | {"violence": {"filtered": True, "severity": "high"}, "jailbreak": {"filtered": True, "detected": True}},
    },
}


@pytest.mark.parametrize(
    ("outer", "code"), [("content_filter", "content_filter"), (None, "ResponsibleAIPolicyViolation")]
)
def test_a_prompt_that_the_filters_refuse_is_rejected_and_says_by_which(outer: str | None, code: str) -> None:
    """A 400: `RequestRejected`, its code Azure's own, never retried."""
    body = json.dumps({"error": REFUSED | {"code": outer}}).encode()
    source = MemorySource(Answer(status=400, headers={"content-type": "application/json"}, body=((0.0, body),)))
    with pytest.raises(RunFailed) as caught:
        asked(AzureOpenAI("dep", base_url=ENDPOINT, api_key=KEY, source=source), source)
    error = caught.value.__cause__
    assert isinstance(error, RequestRejected)
    assert (error.status, error.code) == (400, code)
    assert "content management policy. (filtered: violence, jailbreak)" in str(error)


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"error": "x"}', b'{"error": {"innererror": 5}}', b"\xff\xfe", b"[" * 100_000]
)
def test_an_error_body_of_any_shape_is_described(body: bytes) -> None:
    """Gateways in front of Azure answer what they like."""
    model = AzureOpenAI("dep", base_url=ENDPOINT, api_key=KEY, source=MemorySource(chat_stream(1)))
    message, code = model._wire.describe_error(body)
    assert isinstance(message, str)
    assert code is None


# --- over a socket ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["", "2024-10-21"])
def test_both_routes_are_served_by_the_recording_provider_to_us_and_to_the_sdk(version: str) -> None:
    """The same answer, streamed and whole, and the key in its own header."""
    with Wire.start() as wire:
        endpoint = wire.url("steady(5,0)", tag="us").removesuffix("/v1")
        for stream in (True, False):
            model = AzureOpenAI("dep", base_url=endpoint, api_key=KEY, api_version=version, stream=stream)
            result = asyncio.run(_answer(model))
            assert (result.output, result.usage.output) == ("t0 t1 t2 t3 t4 ", 5)
        assert {request.headers["api-key"] for request in wire.requests("us")} == {KEY}
        text = asyncio.run(_sdk_answer(wire.url("steady(5,0)", tag="sdk").removesuffix("/v1"), version))
        assert text == "t0 t1 t2 t3 t4 "
        ours, theirs = wire.requests("us")[0], wire.requests("sdk")[0]
        assert ours.path.replace("/us/", "/sdk/") == theirs.path


async def _answer(model: AzureOpenAI) -> Any:
    return await Agent(model).run("hi")


async def _sdk_answer(endpoint: str, version: str) -> str:
    """As its documentation shows it for each route; a filter's chunk has no delta, whatever the SDK's types say."""
    if version:
        client: AsyncOpenAI = AsyncAzureOpenAI(azure_endpoint=endpoint, api_version=version, api_key=KEY)
    else:
        client = AsyncOpenAI(base_url=f"{endpoint}/openai/v1", api_key=KEY)
    async with client:
        stream = await client.chat.completions.create(
            model="dep", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        deltas = [chunk.choices[0].delta async for chunk in stream if chunk.choices]
        return "".join(delta.content or "" for delta in deltas if delta is not None)
