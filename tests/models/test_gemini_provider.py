"""The recording provider in Gemini's format: the official SDK understands it in every mode, and so does `Gemini`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from google import genai
from google.genai import errors, types

from halter import Agent
from halter.errors import ConnectionFailed, IncompleteStream, RateLimited, ServerFailed
from halter.messages import Message, ToolResult
from halter.models.gemini import Gemini
from halter.models.gemini.request import gemini_contents
from halter.outcome import RunResult
from halter.proof.wire import Wire

RECORDINGS = Path(__file__).parents[3] / "shared" / "recorded-streams" / "gemini"
RECORDED = "google-google-stream-usage-is-live-mid-stream-0.sse"
TOKENS = "".join(f"t{n} " for n in range(20))
# mode → the text of a whole answer, streamed and in one piece alike
WHOLE = {
    "steady(20,1)": TOKENS,
    "steady(20,0)": TOKENS,
    "no-done(20)": TOKENS,
    "lingering(20)": TOKENS,
    "crlf(20)": TOKENS,
    "one-byte(20)": TOKENS,
    "json(20,1)": TOKENS,
    "echo(2,1)": "hi#0 hi#1 ",
    "rate-limit(1,0.01)": TOKENS,
    "status(503,1)": TOKENS,
}


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    with Wire.start(recordings=RECORDINGS if RECORDINGS.is_dir() else None) as started:
        yield started


def asked(wire: Wire, mode: str, *, stream: bool = True, **options: Any) -> RunResult[Any]:
    """`Gemini`'s answer, through a run."""
    model = Gemini("m", base_url=wire.url(mode, "gemini"), api_key="none", stream=stream, **options)
    wire.clear()
    run = Agent(model).run("hi").start()
    list(run)
    assert run.outcome is not None
    return run.outcome


def sdk(wire: Wire, mode: str) -> genai.Client:
    """The SDK adds the version to the path itself."""
    wire.clear()
    options = types.HttpOptions(
        base_url=wire.url(mode, "sdk").removesuffix("/v1"),
        retry_options=types.HttpRetryOptions(attempts=2, initial_delay=0.01),
    )
    return genai.Client(api_key="none", http_options=options)


def sdk_text(wire: Wire, mode: str, *, stream: bool) -> str:
    client = sdk(wire, mode)
    try:
        if not stream:
            return client.models.generate_content(model="m", contents="hi").text or ""
        return "".join(chunk.text or "" for chunk in client.models.generate_content_stream(model="m", contents="hi"))
    finally:
        client.close()


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("mode", WHOLE)
def test_a_whole_answer_is_read_in_each_mode(wire: Wire, mode: str, stream: bool) -> None:
    """`lingering` in one piece never ends; for all others the run completes, with finish reason and usage."""
    if mode.startswith("lingering") and not stream:
        pytest.skip("the body promises a byte that never comes")
    result = asked(wire, mode, stream=stream)
    assert (result.error, result.output) == (None, WHOLE[mode])
    assert result.messages[-1].finish_reason == "STOP"
    tokens = WHOLE[mode].count(" ")
    assert (result.usage.input, result.usage.output) == (1, tokens)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("mode", [mode for mode in WHOLE if not mode.startswith(("lingering", "json"))])
def test_the_official_sdk_reads_the_same(wire: Wire, mode: str, stream: bool) -> None:
    assert sdk_text(wire, mode, stream=stream) == WHOLE[mode]


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        ("error-frame(3)", ServerFailed),
        ("cut(3)", ConnectionFailed),
        ("reset(3)", ConnectionFailed),
        ("eof(3)", IncompleteStream),
        ("rate-limit(9,0.01)", RateLimited),
        ("status(500)", ServerFailed),
    ],
)
def test_a_broken_answer_is_the_error_that_it_is(wire: Wire, mode: str, kind: type[Exception]) -> None:
    result = asked(wire, mode, max_retries=0)
    assert type(result.error) is kind


def test_an_answer_without_its_end_is_incomplete_where_the_official_sdk_takes_it_as_whole(wire: Wire) -> None:
    """It stops after `data: {"candidates":[{"content":{"parts":[{"text":"t2 "}]…`, without any `finishReason`."""
    assert sdk_text(wire, "eof(3)", stream=True) == "t0 t1 t2 "
    result = asked(wire, "eof(3)", max_retries=0)
    assert type(result.error) is IncompleteStream
    assert result.messages[-1].interrupted


@pytest.mark.parametrize("mode", ["error-frame(3)", "status(500)"])
def test_the_official_sdk_sees_an_error_too(wire: Wire, mode: str) -> None:
    with pytest.raises(errors.ServerError):
        sdk_text(wire, mode, stream=True)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_tool_is_called_and_its_result_gets_an_answer(wire: Wire, stream: bool) -> None:
    """The call comes whole, with an id; the next request has it and its result, and the answer is text."""
    mode = 'tool-call(weather,{"in": "Rome", "days": [1, 2]})'
    result = asked(wire, mode, stream=stream)
    answer = result.messages[1]
    (call,) = answer.tool_calls
    assert (call.name, json.loads(call.arguments)) == ("weather", {"in": "Rome", "days": [1, 2]})
    client = sdk(wire, mode)
    chunks = client.models.generate_content_stream(model="m", contents="hi")
    (seen,) = [one for chunk in chunks for one in chunk.function_calls or ()]
    assert (seen.name, seen.args) == ("weather", {"in": "Rome", "days": [1, 2]})
    contents = gemini_contents(
        (Message.user("hi"), answer, Message("tool", (ToolResult(call.id, "sunny"),))), model="m"
    )
    sent = [types.Content.model_validate_json(json.dumps(content)) for content in contents]
    assert client.models.generate_content(model="m", contents=sent).text == TOKENS
    client.close()


@pytest.mark.skipif(not RECORDINGS.is_dir(), reason="the recorded streams are not here")
def test_a_recording_is_replayed_byte_for_byte(wire: Wire) -> None:
    """Also with CRLF frames; both clients read the same text."""
    mode = f"replay({RECORDED})"
    assert asked(wire, mode).output == sdk_text(wire, mode, stream=True)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"contents": 7}', b'{"messages": []}', b"\xff"])
def test_a_body_that_is_no_question_is_refused(wire: Wire, body: bytes) -> None:
    url = urlsplit(wire.url("steady", "odd"))
    connection = HTTPConnection(url.hostname or "", url.port)
    connection.request("POST", f"{url.path}/models/m:generateContent", body)
    response = connection.getresponse()
    assert (response.status, b"generateContent" in response.read()) == (400, True)
    connection.close()
