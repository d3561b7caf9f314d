"""The chat completions decoder: every dialect of the format, errors in it, and bytes that are none of it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halter.errors import (
    AuthenticationFailed,
    MalformedStream,
    ModelNotFound,
    ProviderError,
    RateLimited,
    RequestRejected,
    ServerFailed,
)
from halter.messages import Message, Opaque, ToolCall, Usage
from halter.models.chat.wire import ChatWire

from ..sizes import examples
from .recording_reply import WIRE, Decoded, RecordingReply, decode, decode_frames

DONE = b"[DONE]"


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    return json.dumps({"choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}], **more}).encode()


def call(index: int | None = None, id: str | None = None, name: str | None = None, arguments: Any = None) -> bytes:
    """A frame with one fragment of a call; what is `None` is sent as null."""
    fragment = {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}
    return chunk({"tool_calls": [fragment]})


def decode_whole(body: Any) -> Decoded:
    reply = RecordingReply()
    decoder = WIRE.begin(reply)  # type: ignore[arg-type]
    error = None
    try:
        decoder.whole(body if isinstance(body, bytes) else json.dumps(body).encode())
    except ProviderError as failure:
        error = failure
    return Decoded(reply.assembly.message(), error, decoder.is_over)


# --- text and thinking --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deltas", "text", "reasoning", "refusal"),
    [
        ([{"content": "a"}, {"content": ""}, {"content": None}, {"content": "b"}], "ab", "", ""),
        ([{"reasoning_content": "a"}, {"reasoning": "b"}, {"content": "c"}], "c", "ab", ""),
        ([{"reasoning_content": "a", "reasoning": "a"}], "", "a", ""),
        ([{"reasoning": "a", "reasoning_details": [{"type": "reasoning.text", "text": "a"}]}], "", "a", ""),
        ([{"reasoning_details": [{"type": "reasoning.summary", "summary": "a"}]}], "", "a", ""),
        ([{"refusal": "I ", "content": None}, {"refusal": "won't"}], "", "", "I won't"),
        (
            [{"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "a"}]}]}, {"content": "b"}],
            "b",
            "a",
            "",
        ),
        ([{"content": [{"type": "text", "text": "a"}, {"type": "reference"}, 7, "b"]}], "ab", "", ""),
    ],
)
def test_text_reasoning_and_refusal_are_read_in_every_dialect(
    deltas: list[dict[str, Any]], text: str, reasoning: str, refusal: str
) -> None:
    """Null and empty pieces add nothing; the same thinking under two names is shown once."""
    message = decode_frames(*map(chunk, deltas), DONE).message
    assert (message.text, message.reasoning, message.refusal) == (text, reasoning, refusal)


def test_only_the_first_choice_is_read() -> None:
    """Choices with another index are somebody else's answers, wherever they stand in the frame."""
    one, two = {"index": 1, "delta": {"content": "no"}}, {"index": 0, "delta": {"content": "yes"}}
    both = json.dumps({"choices": [one, two]}).encode()
    only = json.dumps({"choices": [one]}).encode()
    assert decode_frames(both, only, DONE).message.text == "yes"


# --- tool calls ---------------------------------------------------------------------------------------------

PARIS, ROME = ToolCall("a", "weather", '{"in": "Paris"}'), ToolCall("b", "weather", '{"in": "Rome"}')
DIALECTS = {
    "by index, interleaved": [
        call(0, "a", "weather", ""),
        call(1, "b", "weather", ""),
        call(0, arguments='{"in": '),
        call(1, arguments='{"in": '),
        call(0, arguments='"Paris"}'),
        call(1, arguments='"Rome"}'),
    ],
    "by id, without an index": [
        call(None, "a", "weather", '{"in": '),
        call(None, "b", "weather", '{"in": '),
        call(None, "a", None, '"Paris"}'),
        call(None, "b", None, '"Rome"}'),
    ],
    "one call after the other, with neither": [
        call(None, "a", "weather", '{"in": '),
        call(arguments='"Paris"}'),
        call(None, "b", "weather", '{"in": '),
        call(arguments='"Rome"}'),
    ],
    "whole, each in one frame, all with index 0": [
        call(0, "a", "weather", '{"in": "Paris"}'),
        call(0, "b", "weather", '{"in": "Rome"}'),
    ],
    "index 0 for all, told apart by id": [
        call(0, "a", "weather", '{"in": '),
        call(0, "b", "weather", '{"in": '),
        call(0, "a", None, '"Paris"}'),
        call(0, "b", None, '"Rome"}'),
    ],
    "id and name in each fragment": [
        call(0, "a", "weather", '{"in": '),
        call(0, "a", "weather", '"Paris"}'),
        call(1, "b", "weather", '{"in": '),
        call(1, "b", "weather", '"Rome"}'),
    ],
    "a new id invented for each fragment": [
        call(0, "a", "weather", '{"in": '),
        call(0, "x1", None, '"Paris"}'),
        call(1, "b", "weather", '{"in": '),
        call(1, "x2", "", '"Rome"}'),
    ],
    "both in one frame": [
        chunk(
            {
                "tool_calls": [
                    {"id": "a", "function": {"name": "weather", "arguments": '{"in": "Paris"}'}},
                    {"id": "b", "function": {"name": "weather", "arguments": '{"in": "Rome"}'}},
                ]
            }
        )
    ],
}


@pytest.mark.scenario("F61")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_parallel_calls_are_told_apart_in_every_dialect(dialect: str) -> None:
    """Two calls of one tool: each keeps its id, its name and its own arguments."""
    frames = [*DIALECTS[dialect], chunk(finish="tool_calls"), DONE]
    decoded = decode_frames(*frames)
    assert decoded.message.tool_calls == (PARIS, ROME)
    assert (decoded.message.finish_reason, decoded.is_over) == ("tool_calls", True)


@pytest.mark.scenario("F61")
@pytest.mark.parametrize(
    ("frames", "arguments"),
    [
        ([call(0, "a", "now", "")], ""),
        ([call(0, "a", "now", None)], ""),
        ([call(0, "a", "now", "{}")], "{}"),
        (
            [call(0, "a", "now", {"zone": "é", "n": 12345678901234567890123})],
            '{"zone":"é","n":12345678901234567890123}',
        ),
        ([call(0, "a", "now", '{"broken": '), call(0, None, None, "tru")], '{"broken": tru'),
        ([chunk({"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "now"}}]})], ""),
    ],
)
def test_arguments_are_kept_as_the_model_wrote_them(frames: list[bytes], arguments: str) -> None:
    """None at all, an object instead of text, text that is no JSON: nothing is invented and nothing repaired."""
    assert decode_frames(*frames, DONE).message.tool_calls == (ToolCall("a", "now", arguments),)


@pytest.mark.scenario("F61")
def test_calls_with_one_id_under_two_indexes_are_two_calls() -> None:
    """A provider that reuses an id does not merge its calls."""
    message = decode_frames(call(0, "a", "x", "1"), call(1, "a", "y", "2"), DONE).message
    assert [(made.name, made.arguments) for made in message.tool_calls] == [("x", "1"), ("y", "2")]


@pytest.mark.scenario("F61")
def test_the_first_version_of_tool_calls_is_a_call_with_an_id_of_ours() -> None:
    """`function_call` has no id; the next turn needs one."""
    deltas = [{"function_call": {"name": "now", "arguments": '{"a'}}, {"function_call": {"arguments": '":1}'}}]
    (made,) = decode_frames(*map(chunk, deltas), DONE).message.tool_calls
    assert (made.name, made.arguments, bool(made.id)) == ("now", '{"a":1}', True)


@pytest.mark.scenario("F61")
def test_what_a_provider_needs_back_is_kept_verbatim_once_the_answer_is_over() -> None:
    """Signed reasoning, joined into its block, and a call's `extra_content`; nothing of it while it is half."""
    signature = {"google": {"thought_signature": "c2ln"}}
    first = {"type": "reasoning.text", "index": 0, "text": "a", "format": "f"}
    frames = [
        chunk({"reasoning_details": [first]}),
        chunk({"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "b", "signature": None}]}),
        chunk({"reasoning_details": [{"type": "reasoning.text", "index": 0, "signature": "c2lnbmVk"}]}),
        chunk({"reasoning_details": [{"type": "reasoning.encrypted", "index": 1, "data": "x"}, "no block"]}),
        chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "t"}, "extra_content": signature}]}),
    ]
    assert not [part for part in decode_frames(*frames).message.parts if isinstance(part, Opaque)]
    message = decode_frames(*frames, chunk(finish="tool_calls"), DONE).message
    blocks = [first | {"text": "ab", "signature": "c2lnbmVk"}, {"type": "reasoning.encrypted", "index": 1, "data": "x"}]
    wanted = Opaque("chat:test", {"extra_content": {"a": signature}, "reasoning_details": blocks})
    assert [part for part in message.parts if isinstance(part, Opaque)] == [wanted]


@pytest.mark.scenario("F61")
def test_unknown_kinds_of_frames_blocks_and_fields_are_skipped() -> None:
    """A ping, a value that is no object, an audio delta, a field of tomorrow: the answer is what is left."""
    frames = [
        b'{"type": "ping", "message": "still here"}',
        b"7",
        b"null",
        b"[]",
        b"",
        b"  ",
        b'{"choices": [], "prompt_filter_results": [{}]}',
        chunk({"audio": {"id": "x"}, "content": "a", "from_tomorrow": [[{}]]}, moderation={"results": []}),
    ]
    decoded = decode_frames(*frames, chunk(finish="stop"))
    assert (decoded.message.text, decoded.error, decoded.is_over) == ("a", None, True)


# --- usage and the end --------------------------------------------------------------------------------------

COUNTS = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}


@pytest.mark.parametrize(
    ("usage", "wanted"),
    [
        (COUNTS, Usage(input=7, output=5)),
        (COUNTS | {"prompt_tokens_details": {"cached_tokens": 3}}, Usage(input=7, output=5, cached=3)),
        (COUNTS | {"prompt_cache_hit_tokens": 3}, Usage(input=7, output=5, cached=3)),
        (COUNTS | {"cached_tokens": 3}, Usage(input=7, output=5, cached=3)),
        (COUNTS | {"completion_tokens_details": {"reasoning_tokens": 2}}, Usage(input=7, output=5, reasoning=2)),
        (
            COUNTS | {"total_tokens": 14, "completion_tokens_details": {"reasoning_tokens": 2}},
            Usage(input=7, output=7, reasoning=2),
        ),
        (COUNTS | {"prompt_tokens_details": None, "completion_tokens_details": None}, Usage(input=7, output=5)),
        ({"prompt_tokens": 7.0, "completion_tokens": "5"}, Usage(input=7, output=5)),
        (COUNTS | {"completion_tokens": -1, "cached_tokens": -1}, Usage(input=7)),
        (COUNTS | {"completion_tokens": 10**400}, Usage(input=7)),
        ({}, None),
    ],
)
def test_usage_is_read_in_every_form(usage: dict[str, Any], wanted: Usage | None) -> None:
    """Beside the finish reason, behind it without choices, in the choice, as Groq's: the same counts."""
    beside = [chunk(finish="stop", usage=usage), DONE]
    behind = [
        chunk({"content": "a"}, usage=None),
        chunk(finish="stop"),
        json.dumps({"choices": [], "usage": usage}).encode(),
    ]
    within = [json.dumps({"choices": [{"delta": {}, "finish_reason": "stop", "usage": usage}]}).encode()]
    groq = [chunk(finish="stop", x_groq={"id": "req", "usage": usage})]
    assert [decode_frames(*form).message.usage for form in (beside, behind, within, groq)] == [wanted] * 4


def test_counts_in_each_frame_are_of_the_answer_so_far() -> None:
    """The last ones hold; a null behind them takes nothing away."""
    frames = [chunk({"content": "a"}, usage=COUNTS | {"completion_tokens": n}) for n in (1, 2, 3)]
    assert decode_frames(*frames, chunk(finish="stop", usage=None)).message.usage == Usage(input=7, output=3)


@pytest.mark.parametrize(
    ("frames", "is_over"),
    [
        ([chunk({"content": "a"})], False),
        ([chunk({"content": "a"}, finish="")], False),
        ([chunk({"content": "a"}, finish="length")], True),
        ([chunk({"content": "a"}), DONE], True),
        ([chunk({"content": "a"}), b" [DONE] "], True),
    ],
)
def test_a_finish_reason_or_done_ends_the_answer(frames: list[bytes], is_over: bool) -> None:
    """Either is the terminal frame; an empty finish reason is none."""
    assert decode_frames(*frames).is_over is is_over


@pytest.mark.parametrize("rest", [b"[DO", b'{"choi', b"<html>", b"\xff"])
def test_what_is_broken_behind_the_terminal_frame_breaks_nothing(rest: bytes) -> None:
    """Half a `[DONE]` behind a finish reason, and anything at all behind `[DONE]`."""
    done = decode_frames(chunk({"content": "a"}, finish="stop"), rest)
    assert (done.message.text, done.error, done.is_over) == ("a", None, True)
    behind = decode_frames(chunk({"content": "a"}), DONE, rest, chunk({"content": "b"}), b'{"error": "late"}')
    assert (behind.message.text, behind.error, behind.is_over) == ("a", None, True)


# --- frames that do not fit ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frame",
    [
        b'{"choices": [{"index": "0", "delta": {"content": "a", "refusal": 7, "tool_calls": "none"}}]}',
        b'{"choices": [{"delta": {"content": "a"}, "finish_reason": 3, "usage": []}], "usage": "none"}',
        b'{"choices": [{"delta": {"content": "a"}, "logprobs": NaN}]}',
        b'{"choices": [7, {"delta": {"content": "a", "reasoning": {"effort": 1}}}], "x_groq": 1}',
        b'\xef\xbb\xbf{"choices": [{"delta": {"content": "a"}}]}',
    ],
)
def test_a_frame_that_is_json_but_does_not_fit_gives_what_of_it_does(frame: bytes) -> None:
    """A wrong type in one field costs that field, not the answer."""
    decoded = decode_frames(frame, DONE)
    assert (decoded.message.text, decoded.error) == ("a", None)


@pytest.mark.parametrize("escape", [rb"\ud83d", b"\xff", rb"\udc00"])
def test_what_is_no_text_becomes_a_replacement_character(escape: bytes) -> None:
    """Half a surrogate pair, or bytes that are no UTF-8, must not reach an encoder."""
    text = decode_frames(b'{"choices": [{"delta": {"content": "a' + escape + b'b"}}]}', DONE).message.text
    assert text == "a\ufffdb"


@pytest.mark.parametrize("frame", [b"Internal Server Error", b"{'single': 1}", b'{"choices": ', b"[" * 100_000])
def test_what_is_no_json_is_malformed_and_shows_its_beginning(frame: bytes) -> None:
    """The error names the model and the first bytes; it is shortened behind the redaction, with its request known."""
    error = decode_frames(frame).error
    assert type(error) is MalformedStream
    assert "openai:test" in str(error)
    assert frame[:12].decode() in str(error)


# --- errors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "kind", "status", "code", "words"),
    [
        (
            {"error": {"message": "busy", "type": "server_error", "code": None}},
            ServerFailed,
            None,
            "server_error",
            "busy",
        ),
        ({"error": {"message": "busy", "type": "overloaded_error"}}, ServerFailed, None, "overloaded_error", "busy"),
        (
            {"error": {"message": "slow", "code": "rate_limit_exceeded"}},
            RateLimited,
            None,
            "rate_limit_exceeded",
            "slow",
        ),
        ({"error": {"message": "slow", "code": 429}}, RateLimited, 429, "429", "slow"),
        ({"error": {"message": "x", "code": "502"}}, ServerFailed, 502, "502", "x"),
        ({"error": {"message": "x", "code": "bad", "status_code": 400}}, RequestRejected, 400, "bad", "x"),
        (
            {"error": {"message": "x", "type": "invalid_request_error"}},
            RequestRejected,
            None,
            "invalid_request_error",
            "x",
        ),
        ({"error": {"message": "x", "code": "invalid_api_key"}}, AuthenticationFailed, None, "invalid_api_key", "x"),
        ({"error": {"message": "x", "code": "model_not_found"}}, ModelNotFound, None, "model_not_found", "x"),
        ({"error": {"message": "x", "status": "RESOURCE_EXHAUSTED"}}, RateLimited, None, "RESOURCE_EXHAUSTED", "x"),
        ({"error": "Rate limit reached"}, RateLimited, None, None, "Rate limit reached"),
        ({"error": "something else"}, ServerFailed, None, None, "something else"),
        ({"error": True}, ServerFailed, None, None, "True"),
        ({"error": [{"message": "x", "code": 404}]}, ModelNotFound, 404, "404", "x"),
        ({"object": "error", "message": "x", "type": "BadRequestError", "code": 400}, RequestRejected, 400, "400", "x"),
        ({"type": "error", "message": "x"}, ServerFailed, None, "error", "x"),
        ({"message": "x", "code": 503}, ServerFailed, 503, "503", "x"),
        ({"detail": [{"loc": ["body"], "msg": "x"}, {"msg": "y"}]}, ServerFailed, None, None, "x; y"),
        (
            {"error": {"message": "Provider returned error", "code": 429, "metadata": {"raw": "upstream says no"}}},
            RateLimited,
            429,
            "429",
            "Provider returned error: upstream says no",
        ),
        ({"choices": [], "x_groq": {"error": "over capacity"}}, ServerFailed, None, None, "over capacity"),
        (
            {"choices": [{"delta": {"content": ""}, "finish_reason": "error", "error": {"message": "x", "code": 502}}]},
            ServerFailed,
            502,
            "502",
            "x",
        ),
        ({"choices": [{"delta": {}, "finish_reason": "error"}]}, ServerFailed, None, "error", "finish_reason"),
    ],
)
def test_an_error_frame_is_raised_as_what_it_is(
    frame: dict[str, Any], kind: type[ProviderError], status: int | None, code: str | None, words: str
) -> None:
    """By its number, else by the words in its code and type, else by those in its message; its text is kept."""
    decoded = decode_frames(chunk({"content": "partial"}), json.dumps(frame).encode(), DONE)
    error = decoded.error
    assert type(error) is kind
    assert (error.status, error.code) == (status, code)
    assert words in str(error)
    assert "openai:test" in str(error)
    assert (decoded.message.text, decoded.is_over) == ("partial", False)


def test_text_and_an_error_in_one_frame_are_both_there() -> None:
    """OpenRouter ends a broken answer with the error beside a choice; the reason is the frame's."""
    frame = chunk({"content": "last words"}, "error", error={"code": 502, "message": "Provider disconnected"})
    decoded = decode_frames(frame)
    assert decoded.message.text == "last words"
    assert "Provider disconnected" in str(decoded.error)


@pytest.mark.parametrize("empty", [None, {}, "", False, []])
def test_an_empty_error_field_is_no_error(empty: Any) -> None:
    """Several servers send the field in each frame."""
    assert decode_frames(chunk({"content": "a"}, error=empty), DONE).error is None


def test_no_error_shows_the_key() -> None:
    """A server that repeats the key in its error, in a body or in bytes that are no JSON, is not quoted with it."""
    said = f"no such key: {WIRE._key}"
    errors = [decode_frames(json.dumps({"error": said}).encode()).error, decode_frames(said.encode()).error]
    texts = [*map(str, errors), WIRE.describe_error(json.dumps({"message": said}).encode())[0], repr(WIRE)]
    assert not [text for text in texts if "very-secret" in text]
    assert "no such key: [key]" in texts[0]


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        (b'{"error": {"message": "no", "type": "t", "code": "c"}}', "no", "c"),
        (b'{"error": {"message": "no", "type": "t", "code": null}}', "no", "t"),
        (b'{"error": "no"}', "no", None),
        (b'{"error": "Unauthorized", "message": "no"}', "no", "Unauthorized"),
        (b'{"message": "no"}', "no", None),
        (b'{"detail": "no"}', "no", None),
        (b'{"detail": [{"loc": ["body", "model"], "msg": "no"}]}', "no", None),
        (b'[{"error": {"code": 404, "message": "no", "status": "NOT_FOUND"}}]', "no", "404"),
        (b'{"object": "error", "message": {"detail": [{"msg": "no"}]}, "code": 3000}', "no", "3000"),
        (b'{"error_code": "BAD", "error_msg": "no"}', "no", "BAD"),
        (b'{"odd": 1}', '{"odd":1}', None),
        (b'"no"', "no", None),
        (b"no\n", "no", None),
        (b"<html><head><title>502 Bad Gateway</title></head><body>x</body></html>", "502 Bad Gateway", None),
        (b"<p>no &amp; no</p><style>p { x }</style>", "no & no", None),
        (b"", "", None),
        (b"{}", "", None),
        (b"null", "", None),
    ],
)
def test_an_error_body_of_any_shape_is_described(body: bytes, message: str, code: str | None) -> None:
    """The provider's words and its code, without the wrapping."""
    assert WIRE.describe_error(body) == (message, code)


# --- answers in one piece -----------------------------------------------------------------------------------


def test_an_answer_in_one_piece_gives_what_its_stream_would() -> None:
    """Text, calls told apart by their place, usage, finish reason, and what the provider needs back."""
    message = {
        "role": "assistant",
        "content": "a",
        "reasoning": "r",
        "reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}],
        "tool_calls": [
            {"id": "same", "type": "function", "function": {"name": "t", "arguments": "{}"}},
            {"id": "same", "type": "function", "function": {"name": "u", "arguments": {"b": 1}}},
        ],
    }
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    decoded = decode_whole({"object": "chat.completion", "choices": [choice], "usage": COUNTS, "error": None})
    made = decoded.message
    assert (made.text, made.reasoning, made.finish_reason, made.usage) == (
        "a",
        "r",
        "tool_calls",
        Usage(input=7, output=5),
    )
    assert made.tool_calls == (ToolCall("same", "t", "{}"), ToolCall("same", "u", '{"b":1}'))
    assert made.parts[-1] == Opaque("chat:test", {"reasoning_details": message["reasoning_details"]})
    assert decoded.is_over


def test_an_answer_in_one_piece_is_over_unless_it_says_that_it_is_not() -> None:
    """Without a reason it is whole; a reason of null says that it was cut off."""
    assert decode_whole({"choices": [{"message": {"content": "a"}}]}).is_over
    assert not decode_whole({"choices": [{"message": {"content": "a"}, "finish_reason": None}]}).is_over


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"<html>busy</html>", MalformedStream),
        (b"", MalformedStream),
        (b"7", MalformedStream),
        ({"choices": []}, MalformedStream),
        ({"hello": "world"}, MalformedStream),
        ({"error": {"message": "x", "code": 429}}, RateLimited),
        ({"message": "x", "code": 503}, ServerFailed),
    ],
)
def test_a_body_that_is_no_answer_is_an_error(body: Any, kind: type[ProviderError]) -> None:
    """Also with status 200: the error in it, else `MalformedStream`."""
    decoded = decode_whole(body)
    assert type(decoded.error) is kind
    assert not decoded.is_over


# --- properties ---------------------------------------------------------------------------------------------

STREAM = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"reasoning": "think😀"}),
    chunk({"content": "Hello "}),
    chunk({"content": "wörld"}),
    *DIALECTS["by index, interleaved"],
    chunk(finish="tool_calls"),
    json.dumps({"choices": [], "usage": COUNTS}).encode(),
    DONE,
]
BODY = b"".join(b"data: " + frame + b"\n\n" for frame in STREAM)


@given(st.integers(0, len(BODY)), st.binary(max_size=40))
@settings(deadline=None)
def test_any_prefix_of_a_stream_gives_a_prefix_of_its_answer(end: int, garbage: bytes) -> None:
    """Cut off anywhere, with or without garbage behind: what came is there, or one of our own errors says why not."""
    whole = decode([BODY]).message
    for body in (BODY[:end], BODY[:end] + garbage):
        message = decode([body]).message
        assert whole.text.startswith(message.text)
        assert whole.reasoning.startswith(message.reasoning)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "message",
                    "content",
                    "reasoning",
                    "reasoning_details",
                    "tool_calls",
                    "function",
                    "function_call",
                    "arguments",
                    "name",
                    "id",
                    "index",
                    "finish_reason",
                    "usage",
                    "prompt_tokens",
                    "prompt_tokens_details",
                    "x_groq",
                    "error",
                    "code",
                    "detail",
                    "type",
                    "text",
                    "thinking",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@given(JSON)
@settings(deadline=None, max_examples=examples(40))
def test_any_json_at_all_gives_a_message_or_one_of_our_errors(value: Any) -> None:
    """Our own words in the wrong places, streamed or whole; and what comes out can be encoded again."""
    frame = json.dumps(value).encode()
    for nested in (frame, b'{"choices": [{"delta": ' + frame + b"}]}", b'{"choices": [' + frame + b"]}"):
        for decoded in (decode_frames(nested, DONE), decode_whole(nested)):
            assert isinstance(decoded.message, Message)
            decoded.message.text.encode()
            str(decoded.error).encode()


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes_at_all_give_a_message_or_one_of_our_errors(data: bytes) -> None:
    """As a frame, as a stream, as a body, as an error body."""
    decode_frames(data)
    decode([data])
    decode_whole(data)
    message, _ = WIRE.describe_error(data)
    message.encode()


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "word "},
        {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "word ", "signature": "s"}]},
        {"tool_calls": [{"index": 0, "id": "a", "function": {"arguments": "word "}}]},
        {"tool_calls": [{"function": {"name": "one", "arguments": {}}}]},
        {"content": 7, "reasoning": "word"},
    ],
)
def test_a_long_answer_takes_time_in_proportion_to_its_length(delta: dict[str, Any]) -> None:
    """Four times the frames take about four times as long, whatever is in them."""
    frame = chunk(delta)

    def spent(count: int) -> float:
        decoder = ChatWire("m", provider="chat").begin(RecordingReply())  # type: ignore[arg-type]
        began = time.process_time()
        for _ in range(count):
            decoder.frame(frame)
        decoder.frame(DONE)
        return time.process_time() - began

    short = min(spent(1_000) for _ in range(3))
    assert min(spent(4_000) for _ in range(3)) < 10 * short


@pytest.mark.parametrize(
    "late",
    [
        {"error": {"message": "late", "code": 500}},
        {"choices": [], "error": {"message": "late"}},
        {"choices": [], "x_groq": {"error": "late"}},
        {"choices": [{"delta": {}, "finish_reason": "error", "error": {"message": "late"}}]},
        {"choices": "none", "error": "late"},
        {"object": "error", "message": "late"},
    ],
)
def test_an_error_behind_the_finish_reason_fails_nothing(late: dict[str, Any]) -> None:
    """The answer is complete; in the frame of the finish reason itself, an error is one."""
    done = decode_frames(chunk({"content": "a"}), chunk(finish="stop"), json.dumps(late).encode(), DONE)
    assert (done.message.text, done.message.finish_reason, done.error) == ("a", "stop", None)
    assert decode_frames(chunk({"content": "a"}), chunk(finish="stop", error={"message": "x"})).error is not None
