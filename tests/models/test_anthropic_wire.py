"""The decoder of Anthropic's messages: every kind of block, errors in it, and bytes that are none of it."""

from __future__ import annotations

import json
import random
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
from halter.messages import Message, Opaque, Reasoning, Refusal, Text, ToolCall, Usage
from halter.models.anthropic.wire import AnthropicWire

from ..sizes import examples
from .recording_reply import Decoded, RecordingReply
from .recording_reply import decode as decode_as

MARK = "anthropic:test"
WIRE = AnthropicWire("anthropic:claude", provider=MARK, key="sk-very-secret")


def decode(chunks: list[bytes]) -> Decoded:
    return decode_as(chunks, WIRE)


def decode_frames(*frames: bytes) -> Decoded:
    """Frames given as their data."""
    return decode([b"data: " + data + b"\n\n" for data in frames])


def decode_whole(body: Any) -> Decoded:
    reply = RecordingReply()
    decoder = WIRE.begin(reply)  # type: ignore[arg-type]
    error = None
    try:
        decoder.whole(body if isinstance(body, bytes) else json.dumps(body).encode())
    except ProviderError as failure:
        error = failure
    return Decoded(reply.assembly.message(), error, decoder.is_over)


def frame(kind: str, **fields: Any) -> bytes:
    return json.dumps({"type": kind, **fields}).encode()


def start(index: int, **block: Any) -> bytes:
    return frame("content_block_start", index=index, content_block=block)


def delta(index: int, kind: str, **fields: Any) -> bytes:
    return frame("content_block_delta", index=index, delta={"type": kind, **fields})


def stop(index: int) -> bytes:
    return frame("content_block_stop", index=index)


def end(reason: str | None = "end_turn", usage: dict[str, Any] | None = None, **more: Any) -> bytes:
    return frame("message_delta", delta={"stop_reason": reason, "stop_sequence": None, **more}, usage=usage)


def text(index: int, *pieces: str) -> list[bytes]:
    return [
        start(index, type="text", text=""),
        *(delta(index, "text_delta", text=piece) for piece in pieces),
        stop(index),
    ]


def call(index: int, id: str, name: str, *pieces: str, **more: Any) -> list[bytes]:
    begun = start(index, type="tool_use", id=id, name=name, input={}, **more)
    return [begun, *(delta(index, "input_json_delta", partial_json=piece) for piece in pieces), stop(index)]


DONE = frame("message_stop")
COUNTS = {"input_tokens": 7, "output_tokens": 5}


# --- blocks -------------------------------------------------------------------------------------------------


def test_each_block_is_a_part_of_its_own() -> None:
    """Two blocks of text are two parts; empty ones leave none; deltas are shown as they come."""
    decoded = decode_frames(*text(0, "a", "", "b"), *text(1), *text(2, "c"), end(), DONE)
    assert decoded.message.parts == (Text("ab"), Text("c"))
    assert (decoded.message.finish_reason, decoded.is_over) == ("end_turn", True)


def test_thinking_is_shown_and_kept_with_its_signature() -> None:
    """The block goes back word for word; thinking that the provider does not show has only a signature."""
    frames = [
        start(0, type="thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="hm "),
        delta(0, "thinking_delta", thinking="so"),
        delta(0, "signature_delta", signature="c2ln"),
        stop(0),
        start(1, type="thinking", thinking="", signature=""),
        delta(1, "signature_delta", signature="c2ln2"),
        stop(1),
        start(2, type="redacted_thinking", data="ZW5j"),
        stop(2),
    ]
    assert decode_frames(*frames, end()).message.parts == (
        Reasoning("hm so"),
        Opaque(MARK, {"type": "thinking", "thinking": "hm so", "signature": "c2ln"}),
        Opaque(MARK, {"type": "thinking", "thinking": "", "signature": "c2ln2"}),
        Opaque(MARK, {"type": "redacted_thinking", "data": "ZW5j"}),
    )


def test_thinking_that_was_cut_off_is_shown_and_never_kept_to_go_back() -> None:
    """Without its end, or without its signature, the provider would refuse it."""
    frames = [
        start(0, type="thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="hm"),
        delta(0, "signature_delta", signature="c2l"),
    ]
    assert decode_frames(*frames).message.parts == (Reasoning("hm"),)
    assert decode_frames(*frames[:2], stop(0)).message.parts == (Reasoning("hm"),)


@pytest.mark.scenario("F61")
@pytest.mark.parametrize(
    ("pieces", "arguments"),
    [
        ((), ""),
        (("",), ""),
        (("", "{}"), "{}"),
        (("", '{"in": ', '"Rome"}'), '{"in": "Rome"}'),
        (('{"broken": tru',), '{"broken": tru'),
    ],
)
def test_arguments_are_kept_as_the_model_wrote_them(pieces: tuple[str, ...], arguments: str) -> None:
    """None at all, in pieces, no JSON: nothing is invented and nothing repaired."""
    message = decode_frames(*call(0, "toolu_1", "weather", *pieces), end("tool_use"), DONE).message
    assert message.parts == (ToolCall("toolu_1", "weather", arguments),)
    assert message.finish_reason == "tool_use"


@pytest.mark.scenario("F61")
def test_parallel_calls_are_told_apart_also_if_they_are_interleaved() -> None:
    """By the index of their block."""
    one, two = call(0, "a", "x", '{"n"', ":1}"), call(1, "b", "y", '{"m"', ":2}")
    mixed = [frame for pair in zip(one, two, strict=True) for frame in pair]
    for frames in ([*one, *two], mixed):
        message = decode_frames(*frames, end("tool_use")).message
        assert message.tool_calls == (ToolCall("a", "x", '{"n":1}'), ToolCall("b", "y", '{"m":2}'))


@pytest.mark.scenario("F61")
def test_a_call_whose_input_comes_whole_and_who_called_are_kept() -> None:
    """An object instead of pieces; what else the block holds goes back with it."""
    caller = {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}
    frames = [start(0, type="tool_use", id="a", name="x", input={"zone": "é"}, caller=caller), stop(0)]
    assert decode_frames(*frames, end("tool_use")).message.parts == (
        ToolCall("a", "x", '{"zone":"é"}'),
        Opaque(MARK, {"caller": caller}),
    )


def test_a_call_without_an_id_gets_one_of_ours() -> None:
    """Servers that only imitate the format leave it out; the next turn needs one."""
    (made,) = decode_frames(*call(0, "", "x", "{}"), end("tool_use")).message.tool_calls
    assert (made.name, made.arguments, bool(made.id)) == ("x", "{}", True)


CITATION = {"type": "web_search_result_location", "url": "u", "title": None, "cited_text": "t", "encrypted_index": "x"}


def test_citations_stand_behind_their_text() -> None:
    """Together they go back as the block that they were."""
    cited = [start(0, type="text", text="", citations=[]), delta(0, "citations_delta", citation=CITATION)]
    frames = [*cited, delta(0, "text_delta", text="a"), stop(0), *text(1, "b"), end()]
    assert decode_frames(*frames).message.parts == (Text("a"), Opaque(MARK, {"citations": [CITATION]}), Text("b"))


def test_a_kind_of_block_that_nobody_knows_is_kept_whole_in_its_place() -> None:
    """Server tools with their input put together, their results, and what a provider may invent tomorrow."""
    result = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"encrypted_content": "e"}]}
    compacted = {"type": "compaction", "content": "all so far", "encrypted_content": "e"}
    new = {
        "type": "from_tomorrow",
        "text": "ab",
        "thinking": "c",
        "signature": "s",
        "citations": [1, 2],
        "deep": [[{}]],
    }
    frames = [
        start(0, type="server_tool_use", id="s", name="web_search", input={}),
        delta(0, "input_json_delta", partial_json=""),
        delta(0, "input_json_delta", partial_json='{"query": '),
        delta(0, "input_json_delta", partial_json='"q"}'),
        stop(0),
        start(1, **result),
        stop(1),
        *text(2, "found"),
        start(3, type="compaction", content=None),
        delta(3, "compaction_delta", content="all so far", encrypted_content="e"),
        stop(3),
        start(4, type="from_tomorrow", text="a", citations=[1], deep=[[{}]]),
        delta(4, "text_delta", text="b"),
        delta(4, "thinking_delta", thinking="c"),
        delta(4, "signature_delta", signature="s"),
        delta(4, "citations_delta", citation=2),
        stop(4),
    ]
    used = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}}
    assert decode_frames(*frames, end()).message.parts == (
        Opaque(MARK, used),
        Opaque(MARK, result),
        Text("found"),
        Opaque(MARK, compacted),
        Opaque(MARK, new),
    )


def test_a_server_tool_that_was_cut_off_within_its_input_is_not_kept() -> None:
    """It never ran, and half an input cannot go back."""
    begun = start(0, type="server_tool_use", id="s", name="web_search", input={})
    half = delta(0, "input_json_delta", partial_json='{"que')
    for rest in ([], [stop(0), end("max_tokens")]):
        assert decode_frames(begun, half, *rest).message.parts == ()


def test_frames_that_are_not_quite_the_format_are_read_as_far_as_they_go() -> None:
    """No start, no index, a block begun twice, deltas of an unknown kind, no stops: what servers leave out."""
    frames = [
        b"{}",
        b"7",
        b"null",
        b"  ",
        b"[DONE]",
        frame("ping", message="still here"),
        frame("message_start"),
        frame("content_block_delta", delta={"type": "text_delta", "text": "a"}),
        frame("content_block_delta", index=None, delta={"text": "b"}),
        frame("content_block_delta", index=0),
        delta(7, "thinking_delta", thinking="hm"),
        start(0, type="text", text="c"),
        start(0, type="text", text="d", citations="none"),
        delta(0, "from_tomorrow_delta", text="e", more=[1]),
        frame("content_block_start", index=9),
        frame("content_block_start", index=8, content_block=[]),
        frame("content_block_stop", index="x"),
        frame("from_tomorrow", index=0),
    ]
    decoded = decode_frames(*frames, end())
    assert decoded.message.text == "abcde"
    assert (decoded.message.reasoning, decoded.error, decoded.is_over) == ("hm", None, True)


def test_fields_of_the_wrong_type_are_as_if_they_were_missing() -> None:
    """The rest of the frame counts."""
    odd = b'{"type": "content_block_delta", "index": "0", "delta": {"type": "text_delta", "text": "a", "thinking": 7}}'
    lone = b'{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "\\ud83d"}}'
    counts = {"input_tokens": "7", "output_tokens": 5, "cache_read_input_tokens": "many"}
    message = decode_frames(start(0, type="text", text=""), odd, lone, end(usage=counts)).message
    assert (message.text, message.usage) == ("a\ufffd", Usage(input=7, output=5))


# --- usage and the end --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "last", "wanted"),
    [
        (COUNTS | {"output_tokens": 1}, COUNTS, Usage(input=7, output=5)),
        (COUNTS | {"output_tokens": 1}, {"output_tokens": 5}, Usage(input=7, output=5)),
        (
            {"input_tokens": 3, "cache_creation_input_tokens": 10, "cache_read_input_tokens": 100, "output_tokens": 1},
            {"output_tokens": 5},
            Usage(input=113, output=5, cached=100),
        ),
        (COUNTS, COUNTS | {"output_tokens_details": {"thinking_tokens": 4}}, Usage(input=7, output=5, reasoning=4)),
        (COUNTS, COUNTS | {"input_tokens": 40, "cache_read_input_tokens": None}, Usage(input=40, output=5)),
        (COUNTS, {"input_tokens": -1, "output_tokens": 5}, Usage(output=5)),
        (COUNTS, {"output_tokens": 10**400}, Usage(input=7)),
        (None, None, None),
        (COUNTS, None, Usage(input=7, output=5, estimated=True)),
    ],
)
def test_the_last_counts_hold(first: dict[str, Any] | None, last: dict[str, Any] | None, wanted: Usage | None) -> None:
    """They are for the answer so far; what they leave out stands. What went through the cache is input too."""
    begun = frame("message_start", message={"usage": first, "content": []})
    assert decode_frames(begun, *text(0, "a"), end(usage=last), DONE).message.usage == wanted


def test_counts_from_before_the_answer_are_marked_as_such() -> None:
    """An answer that is cut off has its input counted, and its output still to be estimated."""
    begun = frame("message_start", message={"usage": COUNTS | {"output_tokens": 1}})
    assert decode_frames(begun, text(0, "a")[0]).message.usage == Usage(input=7, output=1, estimated=True)


@pytest.mark.parametrize(
    ("details", "words"),
    [
        ({"type": "refusal", "category": "cyber", "explanation": "That could do harm."}, "That could do harm."),
        ({"type": "refusal", "category": "cyber", "explanation": None}, "declined: cyber"),
        ({"type": "refusal", "category": None}, "declined"),
        (None, "declined"),
    ],
)
def test_a_refusal_is_told_as_what_it_is(details: Any, words: str) -> None:
    """The explanation, if there is one; what was said before it stays."""
    message = decode_frames(*text(0, "Sure, "), end("refusal", stop_details=details), DONE).message
    assert (message.text, message.refusal, message.finish_reason) == ("Sure, ", words, "refusal")
    assert [part for part in message.parts if isinstance(part, Refusal)] == [Refusal(words)]


def test_a_stop_reason_ends_an_answer_and_nothing_behind_it_breaks_it() -> None:
    """`message_stop` may be missing; half a frame or an error after it comes too late."""
    for late in ([], [DONE], [DONE, b"{"], [b'{"type": "mess'], [frame("error", error={"message": "late"})]):
        decoded = decode_frames(*text(0, "a"), end(), *late)
        assert (decoded.message.text, decoded.error, decoded.is_over) == ("a", None, True)
    decoded = decode_frames(*text(0, "a"), end(None))
    assert not decoded.is_over
    assert decode_frames(*text(0, "a"), DONE).is_over
    assert decode_frames(DONE, *text(0, "late")).message.parts == ()


def test_blocks_that_were_never_ended_are_whole_at_the_end_of_the_answer() -> None:
    """A stop reason says so of all of them."""
    frames = [start(0, type="server_tool_use", id="s", name="n", input={}), start(1, type="text", text="a")]
    assert len(decode_frames(*frames, end()).message.parts) == 2


# --- errors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "kind", "code", "words"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, ServerFailed, "overloaded_error", "Overloaded"),
        ({"type": "rate_limit_error", "message": "slow"}, RateLimited, "rate_limit_error", "slow"),
        ({"type": "api_error", "message": "x"}, ServerFailed, "api_error", "x"),
        ({"type": "timeout_error", "message": "x"}, ServerFailed, "timeout_error", "x"),
        ({"type": "invalid_request_error", "message": "x"}, RequestRejected, "invalid_request_error", "x"),
        ({"type": "authentication_error", "message": "x"}, AuthenticationFailed, "authentication_error", "x"),
        ({"type": "permission_error", "message": "x"}, AuthenticationFailed, "permission_error", "x"),
        ({"type": "not_found_error", "message": "x"}, ModelNotFound, "not_found_error", "x"),
        ("no such key: sk-very-secret", ServerFailed, None, "[key]"),
        (None, ServerFailed, "error", "anthropic:claude"),
    ],
)
def test_an_error_frame_is_raised_as_what_it_is(
    error: Any, kind: type[ProviderError], code: str | None, words: str
) -> None:
    """By its type; its words are kept, the key is not; those that pass may be asked again."""
    decoded = decode_frames(*text(0, "partial"), frame("error", error=error, request_id="req_1"), DONE)
    assert type(decoded.error) is kind
    assert decoded.error.code == code
    assert words in str(decoded.error)
    assert "very-secret" not in str(decoded.error)
    assert (decoded.message.text, decoded.is_over) == ("partial", False)
    assert decoded.error.retryable == (kind in (ServerFailed, RateLimited))


def test_what_is_no_json_is_malformed() -> None:
    """Between the frames of an answer it is an error, with its beginning."""
    decoded = decode_frames(*text(0, "a"), b"<html>", end())
    assert isinstance(decoded.error, MalformedStream)
    assert "<html>" in str(decoded.error)


# --- answers in one piece -----------------------------------------------------------------------------------


def test_an_answer_in_one_piece_gives_what_its_stream_would() -> None:
    """Blocks in their order, with what goes back; usage and reason."""
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "a", "citations": [CITATION]},
        {"type": "tool_use", "id": "t", "name": "x", "input": {}},
        {"type": "tool_use", "id": "u", "name": "x", "input": {"b": 1}},
    ]
    decoded = decode_whole({"type": "message", "content": content, "stop_reason": "tool_use", "usage": COUNTS})
    assert decoded.message.parts == (
        Reasoning("hm"),
        Opaque(MARK, content[0]),
        Text("a"),
        Opaque(MARK, {"citations": [CITATION]}),
        ToolCall("t", "x", ""),
        ToolCall("u", "x", '{"b":1}'),
    )
    assert (decoded.message.usage, decoded.message.finish_reason) == (Usage(input=7, output=5), "tool_use")
    assert decoded.is_over


def test_an_answer_in_one_piece_is_over_unless_it_says_that_it_is_not() -> None:
    """Without a reason it is whole; a reason of null says that it was cut off."""
    assert decode_whole({"content": []}).is_over
    assert not decode_whole({"content": [{"type": "text", "text": "a"}], "stop_reason": None}).is_over


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"<html>busy</html>", MalformedStream),
        (b"", MalformedStream),
        (b"7", MalformedStream),
        ({"hello": "world"}, MalformedStream),
        ({"type": "error", "error": {"type": "rate_limit_error", "message": "x"}}, RateLimited),
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
    frame("message_start", message={"usage": COUNTS}),
    start(0, type="thinking", thinking="", signature=""),
    delta(0, "thinking_delta", thinking="think😀"),
    delta(0, "signature_delta", signature="s"),
    stop(0),
    *text(1, "Hello ", "wörld"),
    start(2, type="server_tool_use", id="s", name="web_search", input={}),
    delta(2, "input_json_delta", partial_json='{"q": 1}'),
    stop(2),
    *call(3, "a", "x", '{"in": ', '"Rome"}'),
    end("tool_use", COUNTS),
    DONE,
]
BODY = b"".join(b"event: x\ndata: " + frame + b"\n\n" for frame in STREAM)


@given(st.integers(0, len(BODY)), st.binary(max_size=40))
@settings(deadline=None)
def test_any_prefix_of_a_stream_gives_a_prefix_of_its_answer(end: int, garbage: bytes) -> None:
    """Cut off anywhere, with or without garbage behind: what came is there, or one of our own errors says why not."""
    whole = decode([BODY]).message
    for body in (BODY[:end], BODY[:end] + garbage):
        message = decode([body]).message
        assert whole.text.startswith(message.text)
        assert whole.reasoning.startswith(message.reasoning)


@given(st.lists(st.sampled_from(STREAM), max_size=30), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_frames_in_any_order_and_any_cut_give_the_same_message_or_error(
    frames: list[bytes], dice: random.Random
) -> None:
    """Repeated, missing and turned round: never an exception that is not ours, and never a matter of the cut."""
    body = b"".join(b"data: " + frame + b"\n\n" for frame in frames)
    cuts = sorted(dice.sample(range(len(body)), min(len(body), 5)))
    chunks = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True) if a < b]
    assert decode(chunks) == decode([body])


WORDS = [
    *("type", "index", "delta", "content_block", "message", "usage", "error", "content", "text", "thinking"),
    *("signature", "partial_json", "citation", "citations", "stop_reason", "stop_details", "container", "input", "id"),
    *("name", "input_tokens", "output_tokens", "output_tokens_details", "explanation", "code", "detail"),
]
KINDS = [
    *("message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "error"),
    *("text", "thinking", "tool_use", "server_tool_use", "text_delta", "input_json_delta", "other_delta", "refusal"),
]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(KINDS)
    | st.text(st.characters(codec=None), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5),
    max_leaves=25,
)


@given(JSON, JSON)
@settings(deadline=None, max_examples=examples(40))
def test_any_json_at_all_gives_a_message_or_one_of_our_errors(value: Any, block: Any) -> None:
    """Our own words in the wrong places, streamed or whole; and what comes out can be encoded again."""
    raw = [value, *({"type": kind, "index": 0, "content_block": block, "delta": value} for kind in KINDS[:5])]
    frames = [json.dumps(item).encode() for item in raw]
    whole = {"content": [value, block], "usage": value, "stop_reason": block}
    for decoded in (decode_frames(*frames, end()), decode_frames(*frames[1:], DONE), decode_whole(whole)):
        assert isinstance(decoded.message, Message)
        decoded.message.text.encode()
        str(decoded.error).encode()
        json.dumps([part.data for part in decoded.message.parts if isinstance(part, Opaque)]).encode()


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes_at_all_give_a_message_or_one_of_our_errors(data: bytes) -> None:
    """As a frame, as a stream, as a body, as an error body."""
    decode_frames(data)
    decode([data])
    decode_whole(data)
    message, _ = WIRE.describe_error(data)
    message.encode()


@pytest.mark.parametrize("depth", [500, 50_000])
def test_what_is_nested_too_deeply_is_refused_without_harm(depth: int) -> None:
    """In a delta, in a block, in an input: a message, or one of our errors."""
    deep = b"[" * depth + b"]" * depth
    bodies = [
        b'{"type": "content_block_delta", "index": 0, "delta": {"type": "x", "citation": ' + deep + b"}}",
        b'{"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "input": ' + deep + b"}}",
        delta(0, "input_json_delta", partial_json=deep.decode()),
    ]
    begun = start(0, type="server_tool_use", id="s", name="n", input={})
    for body in bodies:
        decode_frames(begun, body, stop(0), end())
    decode_whole(b'{"content": [{"type": "tool_use", "id": "a", "name": "x", "input": ' + deep + b"}]}")


@pytest.mark.parametrize(
    ("begun", "piece"),
    [
        (start(0, type="text", text=""), delta(0, "text_delta", text="word ")),
        (start(0, type="text", text=""), delta(0, "citations_delta", citation=CITATION)),
        (start(0, type="thinking", thinking=""), delta(0, "thinking_delta", thinking="word ")),
        (start(0, type="tool_use", id="a", name="x"), delta(0, "input_json_delta", partial_json="word ")),
        (start(0, type="server_tool_use", id="a"), delta(0, "input_json_delta", partial_json='"" ')),
        (start(0, type="new"), delta(0, "text_delta", text="word ")),
        (start(0, type="new"), delta(0, "citations_delta", citation=1)),
        (b"{}", start(0, type="text", text="word ")),
        (b"{}", delta(0, "text_delta", text=7)),
    ],
)
def test_a_long_answer_takes_time_in_proportion_to_its_length(begun: bytes, piece: bytes) -> None:
    """Four times the frames take about four times as long, whatever is in them."""

    def spent(count: int) -> float:
        decoder = WIRE.begin(RecordingReply())  # type: ignore[arg-type]
        began = time.process_time()
        decoder.frame(begun)
        for _ in range(count):
            decoder.frame(piece)
        decoder.frame(end())
        return time.process_time() - began

    short = min(spent(500) for _ in range(3))
    assert min(spent(2_000) for _ in range(3)) < 10 * short


def test_a_frame_of_two_megabytes_in_single_bytes_takes_less_than_two_seconds() -> None:
    """A search result may be that large, and a network that slow."""
    result = start(0, type="web_search_tool_result", tool_use_id="s", content="x" * 2_000_000)
    body = b"event: content_block_start\ndata: " + result + b"\n\n"
    chunks = [body[place : place + 1] for place in range(len(body))]
    began = time.process_time()
    decoded = decode([*chunks, b"data: " + stop(0) + b"\n\n"])
    assert time.process_time() - began < 2.0
    (kept,) = decoded.message.parts
    assert isinstance(kept, Opaque)
    assert len(kept.data["content"]) == 2_000_000
