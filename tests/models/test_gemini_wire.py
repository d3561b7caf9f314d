"""The Gemini decoder: parts of every kind, signatures, ends, errors, and bytes that are none of it."""

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
    ProviderError,
    RateLimited,
    RequestRejected,
    ServerFailed,
)
from halter.messages import Opaque, Part, Reasoning, Refusal, Text, ToolCall, Usage
from halter.models.gemini.wire import GeminiWire
from halter.testing import split_sweep

from ..sizes import examples
from .recording_reply import Decoded, RecordingReply
from .recording_reply import decode as decode_with

KEY = "sk-very-secret"
WIRE = GeminiWire("gemini:test", provider="gemini", key=KEY)
SIGNATURE = "EpwI+/w=="


def decode(chunks: list[bytes]) -> Decoded:
    return decode_with(chunks, WIRE)  # type: ignore[arg-type]


def decode_frames(*frames: Any) -> Decoded:
    """Frames given as bytes, or as the value of their JSON."""
    encoded = [frame if isinstance(frame, bytes) else json.dumps(frame).encode() for frame in frames]
    return decode([b"data: " + data + b"\r\n\r\n" for data in encoded])


def decode_whole(body: Any) -> Decoded:
    reply = RecordingReply()
    decoder = WIRE.begin(reply)  # type: ignore[arg-type]
    error = None
    try:
        decoder.whole(body if isinstance(body, bytes) else json.dumps(body).encode())
    except ProviderError as failure:
        error = failure
    return Decoded(reply.assembly.message(), error, decoder.is_over)


def answer(*parts: Any, finish: str | None = None, usage: Any = None, **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}, "index": 0, **more}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate]} | ({} if usage is None else {"usageMetadata": usage})


def call(name: str = "f", args: Any = None, id: str | None = None, **more: Any) -> dict[str, Any]:
    fields = {"name": name, "args": args, "id": id}
    return {"functionCall": {key: value for key, value in fields.items() if value is not None}, **more}


def added(**fields: Any) -> Opaque:
    return Opaque("gemini", {"added": fields})


def kept(part: dict[str, Any]) -> Opaque:
    return Opaque("gemini", {"part": part})


THOUGHT = {"text": "hm", "thought": True}
STOP = answer({"text": ""}, finish="STOP")


# --- parts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        ([{"text": "a"}, {"text": "b"}], [Text("ab")]),
        ([{"text": "t", "thought": True}, {"text": "u", "thought": True}, {"text": "a"}], [Reasoning("tu"), Text("a")]),
        ([{"text": "a"}, {"text": "t", "thought": True}, {"text": "b"}], [Text("a"), Reasoning("t"), Text("b")]),
        ([{"text": "a", "thought": False}], [Text("a")]),
        ([{"text": ""}, {}, {"thought": True, "text": ""}, {"text": None}], []),
        (
            [{"text": "a"}, {"text": "b", "thoughtSignature": SIGNATURE}, {"text": "c"}],
            [Text("a"), Text("b"), added(thoughtSignature=SIGNATURE), Text("c")],
        ),
        (
            [{"text": "a"}, {"text": "", "thoughtSignature": SIGNATURE}],
            [Text("a"), kept({"text": "", "thoughtSignature": SIGNATURE})],
        ),
        (
            [{"text": "t", "thought": True, "thoughtSignature": SIGNATURE}, {"text": "u", "thought": True}],
            [Reasoning("t"), added(thoughtSignature=SIGNATURE), Reasoning("u")],
        ),
        (
            [{"text": "a"}, {"executableCode": {"code": "1"}}, {"codeExecutionResult": {"output": "1"}}, {"text": "b"}],
            [
                Text("a"),
                kept({"executableCode": {"code": "1"}}),
                kept({"codeExecutionResult": {"output": "1"}}),
                Text("b"),
            ],
        ),
        (
            [{"inlineData": {"mimeType": "image/png", "data": "AA=="}}],
            [kept({"inlineData": {"mimeType": "image/png", "data": "AA=="}})],
        ),
        ([{"text": "a", "partMetadata": {"n": 1}}], [Text("a"), added(partMetadata={"n": 1})]),
        ([{"functionCall": "odd"}, {"functionResponse": 0}, {"text": "a"}], [Text("a")]),  # sent back, it is refused
    ],
)
def test_parts_of_each_kind_keep_their_order_and_what_belongs_to_them(parts: list[Any], wanted: list[Part]) -> None:
    """In one frame, in a frame each, and in one piece: the same message. Nothing is made of an empty part."""
    whole = decode_frames(answer(*parts, finish="STOP"))
    assert list(whole.message.parts) == wanted
    assert decode_frames(*[answer(part) for part in parts], STOP) == whole
    assert decode_whole(answer(*parts, finish="STOP")) == whole


def test_several_calls_in_a_frame_are_several_calls_with_and_without_ids() -> None:
    """The API's id is kept, a missing one is made; a signature stays behind its own call; no arguments are no text."""
    frame = answer(call("f", {"x": 1.5}, "a1", thoughtSignature=SIGNATURE), call("g"), call("f", {"x": "é"}))
    message = decode_frames(frame, answer(call("h", {}, "a2")), STOP).message
    assert message.parts == (
        ToolCall("a1", "f", '{"x":1.5}'),
        added(thoughtSignature=SIGNATURE),
        ToolCall("made-1", "g", ""),
        ToolCall("made-2", "f", '{"x":"é"}'),
        ToolCall("a2", "h", "{}"),
    )


def test_text_behind_a_call_is_a_part_behind_the_call() -> None:
    message = decode_frames(answer({"text": "a"}), answer(call("f", id="1")), answer({"text": "b"}), STOP).message
    assert message.parts == (Text("a"), ToolCall("1", "f", ""), Text("b"))


def test_only_the_first_candidate_is_read() -> None:
    second = {"index": 1, "content": {"parts": [{"text": "no"}]}, "finishReason": "STOP"}
    first = {"content": {"parts": [{"text": "yes"}]}, "finishReason": "STOP"}
    assert not decode_frames({"candidates": [second]}).is_over
    assert decode_frames({"candidates": [second, first]}).message.text == "yes"


def test_facts_about_the_answer_are_kept_as_they_are() -> None:
    """Also in a frame behind the finish reason; empty ones are not."""
    grounding = {"groundingChunks": [{"web": {"uri": "https://example.com"}}]}
    message = decode_frames(
        answer({"text": "a"}, groundingMetadata={}, citationMetadata={"citationSources": [1]}),
        STOP,
        {"candidates": [{"groundingMetadata": grounding, "urlContextMetadata": {"urlMetadata": [2]}}]},
    ).message
    assert message.parts == (
        Text("a"),
        Opaque("gemini", {"facts": {"citationMetadata": {"citationSources": [1]}}}),
        Opaque("gemini", {"facts": {"groundingMetadata": grounding, "urlContextMetadata": {"urlMetadata": [2]}}}),
    )


# --- usage --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "wanted"),
    [
        ({}, None),
        ({"totalTokenCount": 5}, None),
        ({"promptTokenCount": 5, "candidatesTokenCount": 7}, Usage(input=5, output=7)),
        ({"promptTokenCount": 5, "cachedContentTokenCount": 4}, Usage(input=5, cached=4)),
        ({"candidatesTokenCount": 7, "thoughtsTokenCount": 3}, Usage(output=10, reasoning=3)),
        ({"promptTokenCount": 1, "thoughtsTokenCount": 3}, Usage(input=1, output=3, reasoning=3)),
        ({"promptTokenCount": 5, "toolUsePromptTokenCount": 100}, Usage(input=105)),
        ({"promptTokenCount": None, "candidatesTokenCount": 2, "trafficType": "X"}, Usage(output=2)),
        ({"promptTokenCount": "5", "candidatesTokenCount": "many"}, Usage(input=5)),
        ({"promptTokenCount": -1, "candidatesTokenCount": 2, "thoughtsTokenCount": -1}, Usage(output=2)),
        ({"promptTokenCount": 5, "candidatesTokenCount": 10**400}, Usage(input=5)),
    ],
)
def test_usage_is_read_in_every_form(counts: dict[str, Any], wanted: Usage | None) -> None:
    """Input has the results of server-side tools, output the thoughts, so that both make the API's total."""
    assert decode_frames(answer({"text": "a"}, usage=counts)).message.usage == wanted


def test_counts_in_each_frame_are_of_the_answer_so_far() -> None:
    """They are there before the end, so that a stopped answer has its usage; the last ones hold."""
    frames = [answer({"text": "a"}, usage={"candidatesTokenCount": n}) for n in (1, 2)]
    assert decode_frames(*frames).message.usage == Usage(output=2)
    assert decode_frames(*frames, STOP, {"usageMetadata": {"candidatesTokenCount": 3}}).message.usage == Usage(output=3)


# --- the end ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "BLOCKLIST", "SOME_NEW_REASON"])
def test_a_finish_reason_ends_the_answer_and_is_kept(reason: str) -> None:
    decoded = decode_frames(answer({"text": "a"}), answer(finish=reason))
    assert (decoded.is_over, decoded.error, decoded.message.finish_reason) == (True, None, reason)


@pytest.mark.parametrize("reason", ["SAFETY", "RECITATION", "PROHIBITED_CONTENT", "OTHER", "SOME_NEW_REASON"])
def test_an_answer_without_a_word_says_why(reason: str) -> None:
    """As a refusal, once, also behind thoughts; what was said is an answer, and needs none."""
    last = answer(finish=reason, finishMessage=f"no {KEY}", safetyRatings=[{"blocked": True}])
    for decoded in (decode_frames(last, last), decode_whole(last), decode_frames(answer(THOUGHT), last)):
        assert refusals(decoded) == [Refusal(f"declined: {reason}: no [key]")]
        assert (decoded.is_over, decoded.error, decoded.message.finish_reason) == (True, None, reason)
    assert refusals(decode_frames(answer(finish=reason))) == [Refusal(f"declined: {reason}")]
    for parts in ({"text": "a"}, call()):
        assert not refusals(decode_frames(answer(parts), last))
    for ordinary in ("STOP", "MAX_TOKENS"):
        assert not refusals(decode_frames(answer(finish=ordinary)))


def refusals(decoded: Decoded) -> list[Part]:
    return [part for part in decoded.message.parts if isinstance(part, Refusal)]


@pytest.mark.parametrize(
    "frame", [answer({"text": "a"}), {"usageMetadata": {}}, {"candidates": []}, {"candidates": [{}]}]
)
def test_without_a_finish_reason_no_answer_is_over(frame: dict[str, Any]) -> None:
    """Nor with the one that means none."""
    assert not decode_frames(frame).is_over
    assert not decode_frames(frame, answer(finish="FINISH_REASON_UNSPECIFIED")).is_over
    assert not decode_whole(answer({"text": "a"})).is_over


def test_parts_behind_the_finish_reason_still_count() -> None:
    """Some servers say STOP in each frame, and some send a signature last."""
    signed = {"text": "", "thoughtSignature": SIGNATURE}
    message = decode_frames(answer({"text": "a"}, finish="STOP"), answer({"text": "b"}, signed, finish="STOP")).message
    assert message.parts == (Text("ab"), kept(signed))


@pytest.mark.parametrize(
    "rest", [b'data: {"cand', b"data: [DONE]\n\n", b"<html>", b'data: {"error": {"code": 500}}\n\n']
)
def test_what_is_broken_behind_the_finish_reason_breaks_nothing(rest: bytes) -> None:
    whole = decode_frames(answer({"text": "a"}, finish="STOP"))
    frame = b"data: " + json.dumps(answer({"text": "a"}, finish="STOP")).encode() + b"\n\n"
    assert decode([frame, rest]) == whole


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("MALFORMED_FUNCTION_CALL", ServerFailed),
        ("MALFORMED_RESPONSE", ServerFailed),
        ("UNEXPECTED_TOOL_CALL", ServerFailed),
        ("MISSING_THOUGHT_SIGNATURE", RequestRejected),
    ],
)
def test_a_finish_reason_that_leaves_no_answer_is_an_error(reason: str, kind: type[ProviderError]) -> None:
    """With the API's own message, and its reason as code; what the model broke may work the next time."""
    decoded = decode_frames(answer({"text": "a"}), answer(finish=reason, finishMessage=f"Malformed: {KEY} f("))
    assert type(decoded.error) is kind
    assert (decoded.error.code, decoded.message.finish_reason) == (reason, reason)
    assert "Malformed: [key] f(" in str(decoded.error)
    assert not decoded.is_over


# --- errors -------------------------------------------------------------------------------------------------


def test_a_blocked_prompt_is_a_rejected_request() -> None:
    """The API answers 200 and has no candidate: there is nothing to show, and asking again cannot help."""
    feedback = {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": f"no {KEY}"}
    frame = {"promptFeedback": feedback, "usageMetadata": {"promptTokenCount": 7}}
    for decoded in (decode_frames(frame), decode_whole(frame)):
        assert isinstance(decoded.error, RequestRejected)
        assert decoded.error.code == "PROHIBITED_CONTENT"
        assert "no [key]" in str(decoded.error)
        assert decoded.message.usage == Usage(input=7)
    assert decode_frames({"promptFeedback": {"safetyRatings": []}}, STOP).error is None


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        ({"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}, ServerFailed, "UNAVAILABLE"),
        ({"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED"}, RateLimited, "RESOURCE_EXHAUSTED"),
        ({"code": 400, "message": "bad", "status": "INVALID_ARGUMENT"}, RequestRejected, "INVALID_ARGUMENT"),
        ({"code": 403, "message": "no", "status": "PERMISSION_DENIED"}, AuthenticationFailed, "PERMISSION_DENIED"),
        ({"message": "odd"}, ServerFailed, None),
        ("just text", ServerFailed, None),
    ],
)
def test_an_error_inside_a_stream_is_raised_as_what_it_is(error: Any, kind: type[ProviderError], code: str) -> None:
    """Also for JSON in one piece; what was said before is there."""
    decoded = decode_frames(answer({"text": "a"}), {"error": error})
    assert type(decoded.error) is kind
    assert decoded.error.code == code
    assert decoded.message.text == "a"
    assert type(decode_whole({"error": error}).error) is kind


def test_an_error_body_gives_googles_word_and_when_to_ask_again() -> None:
    retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s"}
    error = {"code": 429, "message": f"Quota of {KEY}", "status": "RESOURCE_EXHAUSTED", "details": [{}, 7, retry]}
    for body in ({"error": error}, [{"error": error}]):
        data = json.dumps(body).encode()
        assert WIRE.describe_error(data) == ("Quota of [key]", "RESOURCE_EXHAUSTED")
        assert WIRE.retry_delay(data) == 34.07
    raised = decode_frames({"error": error}).error
    assert raised is not None
    assert raised.retry_after == 34.07


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"7", b'{"error": 7}', b'{"error": {"details": [{"retryDelay": "xs"}]}}']
)
def test_an_error_body_of_any_other_shape_asks_for_no_pause(body: bytes) -> None:
    assert WIRE.retry_delay(body) is None
    assert isinstance(WIRE.describe_error(body)[0], str)


# --- one piece ----------------------------------------------------------------------------------------------


def test_frames_in_one_list_are_the_stream() -> None:
    """As the API answers where something on the way has dropped `alt=sse`."""
    frames = [answer({"text": "a"}), answer({"text": "b"}, finish="STOP", usage={"promptTokenCount": 1})]
    assert decode_whole(frames) == decode_frames(*frames)


@pytest.mark.parametrize("body", [b"", b"<html>", {}, [], 7, None, {"candidates": []}, {"modelVersion": "x"}])
def test_a_body_that_is_no_answer_is_malformed(body: Any) -> None:
    decoded = decode_whole(body)
    assert isinstance(decoded.error, MalformedStream)
    assert not decoded.is_over


# --- what does not fit --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frame",
    [
        {"candidates": [7, {"content": {"parts": [7, {"text": "a"}]}, "finishReason": "STOP", "index": "0"}]},
        {"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP", "finishMessage": 7}]},
        {"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}], "usageMetadata": [7]},
        {"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}], "promptFeedback": 7},
    ],
)
def test_a_frame_that_is_json_but_does_not_fit_gives_what_of_it_does(frame: Any) -> None:
    decoded = decode_frames(frame)
    assert (decoded.message.text, decoded.is_over, decoded.error) == ("a", True, None)


def test_half_a_surrogate_pair_becomes_a_replacement_character() -> None:
    frame = b'{"candidates": [{"content": {"parts": [{"text": "a\\ud83d"}]}, "finishReason": "STOP"}]}'
    assert decode_frames(frame).message.text == "a\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("frame", [b"nonsense", b'{"candidates": [', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_is_malformed(frame: bytes) -> None:
    assert isinstance(decode_frames(frame, STOP).error, MalformedStream)


PIECES = [
    answer({"text": "Grüße "}, usage={"promptTokenCount": 5}),
    answer({"text": "hm", "thought": True}),
    answer(call("f", {"a": [1, {"b": "ü"}]}, "id-1", thoughtSignature=SIGNATURE), call("g", {})),
    answer({"executableCode": {"language": "PYTHON", "code": "1\r\n2"}}, {"text": "x", "thoughtSignature": SIGNATURE}),
    answer({"text": ""}, finish="STOP", usage={"promptTokenCount": 5, "thoughtsTokenCount": 2}),
]
STREAM = b"".join(b"data: " + json.dumps(piece, ensure_ascii=False).encode() + b"\r\n\r\n" for piece in PIECES)


def test_any_cut_of_a_stream_with_everything_gives_the_same_message() -> None:
    assert split_sweep(decode, STREAM, cuts=300) > 300


@given(end=st.integers(0, len(STREAM)), garbage=st.binary(max_size=40))
@settings(max_examples=examples(40), deadline=None)
def test_any_prefix_of_a_stream_gives_a_prefix_of_its_answer(end: int, garbage: bytes) -> None:
    """Whatever follows it: no exception but ours, no part that was not sent, and no end that was not there."""
    whole = decode([STREAM])
    cut = decode([STREAM[:end]])
    assert whole.message.text.startswith(cut.message.text)
    assert [part.id for part in cut.message.tool_calls] == [part.id for part in whole.message.tool_calls][
        : len(cut.message.tool_calls)
    ]
    assert not cut.is_over or end > len(STREAM) - 5
    decode([STREAM[:end], garbage, STREAM[end:]])


@given(
    frames=st.lists(st.sampled_from([*PIECES, b"garbage", b'{"a": 1}', b"[]", {"error": {"code": 500}}]), max_size=8)
)
@settings(max_examples=examples(40), deadline=None)
def test_frames_in_any_order_with_garbage_between_them_give_a_message_or_one_of_our_errors(frames: list[Any]) -> None:
    decode_frames(*frames)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["candidates", "content", "parts", "text", "thought", "functionCall", "args", "name", "id", "finishReason",
         "index", "usageMetadata", "promptTokenCount", "promptFeedback", "blockReason", "error", "code", "message",
         "status", "details", "groundingMetadata", "thoughtSignature"]), inner, max_size=4),
    max_leaves=25,
)  # fmt: skip


@given(value=JSON)
@settings(max_examples=examples(40), deadline=None)
def test_any_json_at_all_gives_a_message_or_one_of_our_errors(value: Any) -> None:
    """As a frame, as a whole body, inside an answer, and as an error's body."""
    data = json.dumps(value).encode()
    decode_frames(data)
    decode_whole(data)
    decode_frames({"candidates": [{"content": {"parts": [value, {"functionCall": {"args": value}}]}}]})
    WIRE.describe_error(data)
    WIRE.retry_delay(data)


@given(data=st.binary(max_size=200), cut=st.integers(0, 200))
@settings(max_examples=examples(40), deadline=None)
def test_any_bytes_at_all_give_a_message_or_one_of_our_errors(data: bytes, cut: int) -> None:
    decode([data[:cut], data[cut:]])
    decode_whole(data)
    WIRE.retry_delay(data)


# --- time ---------------------------------------------------------------------------------------------------


def test_a_frame_of_two_megabytes_in_reads_of_one_byte_takes_less_than_two_seconds() -> None:
    part = {"inlineData": {"mimeType": "image/png", "data": "A" * 2_000_000}}
    data = b"data: " + json.dumps(answer(part, finish="STOP")).encode() + b"\r\n\r\n"
    reads = [data[at : at + 1] for at in range(len(data))]
    began = time.process_time()
    decoded = decode(reads)
    assert time.process_time() - began < 2.0
    assert decoded.message.parts == (kept(part),)


@pytest.mark.parametrize(
    "part",
    [{"text": "word "}, {"text": "hm ", "thought": True}, call("f", {"x": 1}), {"text": "s", "thoughtSignature": "x"}],
)
def test_a_long_answer_takes_time_in_proportion_to_its_length(part: dict[str, Any]) -> None:
    """20,000 frames; quadratic work would take many times as long."""
    data = b"data: " + json.dumps(answer(part)).encode() + b"\n\n"
    began = time.process_time()
    decode([data * 100] * 200)
    assert time.process_time() - began < 5.0
