"""The Responses' frames: what is shown, what is kept, and what becomes of frames that are broken."""

from __future__ import annotations

import json
import time
from typing import Any

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halter.errors import MalformedStream, ProviderError, RateLimited, RequestRejected, ServerFailed
from halter.messages import Message, Opaque, Reasoning, Refusal, Text, ToolCall, ToolResult, Usage
from halter.models.http_model import encode_body
from halter.models.responses.request import Ways, responses_body
from halter.models.responses.wire import ResponsesWire
from halter.request import ModelRequest
from halter.testing.wire_probe import WireProbe

from ..sizes import examples
from .recording_reply import Decoded, RecordingReply, decode

WIRE = ResponsesWire("openai-responses:test", provider="responses:test", key="sk-very-secret")


def decoded(chunks: list[bytes]) -> Decoded:
    return decode(chunks, WIRE)  # type: ignore[arg-type]


def event(kind: str, place: int = 0, **fields: Any) -> bytes:
    return json.dumps({"type": f"response.{kind}", "output_index": place, **fields}).encode()


def ended(*output: dict[str, Any], status: str = "completed", **fields: Any) -> bytes:
    return event(status, response={"id": "resp_1", "status": status, "output": list(output), **fields})


def frames(*events: bytes) -> Decoded:
    return decoded([b"event: x\ndata: " + data + b"\n\n" for data in events])


def parts_of(*events: bytes) -> list[Any]:
    """The readable parts of a message that is over."""
    result = frames(*events)
    assert result.error is None
    assert result.is_over
    return [part for part in result.message.parts if not isinstance(part, Opaque)]


def kept_in(message: Message) -> list[Any]:
    return [part.data for part in message.parts if isinstance(part, Opaque)]


def message_item(*content: dict[str, Any], id: str = "msg_1", **fields: Any) -> dict[str, Any]:
    return {
        "type": "message",
        "id": id,
        "role": "assistant",
        "status": "completed",
        "content": list(content),
        **fields,
    }


def said(text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], **fields}


CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "f",
    "arguments": '{"a":1}',
    "status": "completed",
}
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "encrypted_content": "gAAA",
    "summary": [{"type": "summary_text", "text": "Hm."}, {"type": "summary_text", "text": "So."}],
}

# --- deltas, and what is told again -------------------------------------------------------------------------

WAYS: dict[str, list[bytes]] = {
    "deltas": [
        event("output_item.added", item=message_item()),
        event("output_text.delta", content_index=0, delta="Hel"),
        event("output_text.delta", content_index=0, delta="lo"),
    ],
    "no item announced": [event("output_text.delta", content_index=0, delta="Hello")],
    "half of it": [event("output_text.delta", content_index=0, delta="Hel")],
    "text at the beginning": [event("content_part.added", content_index=0, part=said("Hel"))],
    "only done": [event("output_text.done", content_index=0, text="Hello")],
    "only the part": [event("content_part.done", content_index=0, part=said("Hello"))],
    "only the item": [event("output_item.done", item=message_item(said("Hello")))],
    "only the response": [],
}
AGAIN = [
    event("output_text.done", content_index=0, text="Hello"),
    event("content_part.done", content_index=0, part=said("Hello")),
    event("output_item.done", item=message_item(said("Hello"))),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("again", [True, False])
def test_each_text_is_shown_once_however_often_it_is_told(way: str, again: bool) -> None:
    """In deltas, done, as a part, an item, a response: what one has not brought another does, and never twice."""
    result = frames(*WAYS[way], *(AGAIN if again else ()), ended(message_item(said("Hello"))))
    assert result.message.text == "Hello"
    assert kept_in(result.message) == [message_item({"type": "output_text", "annotations": []})]


@pytest.mark.parametrize("again", [True, False])
def test_refusals_summaries_thoughts_and_arguments_are_shown_once_too(again: bool) -> None:
    """Each from its deltas, and what they lack from what is told again."""
    refused = message_item({"type": "refusal", "refusal": "No."})
    thought = REASONING | {"content": [{"type": "reasoning_text", "text": "Deep."}]}
    told = [
        event("reasoning_summary_part.added", summary_index=0, part={"type": "summary_text", "text": ""}),
        event("reasoning_summary_text.delta", summary_index=0, delta="H"),
        event("reasoning_summary_text.done", summary_index=0, text="Hm."),
        event("reasoning_summary_part.done", summary_index=1, part={"type": "summary_text", "text": "So."}),
        event("reasoning_text.delta", content_index=0, delta="De"),
        event("reasoning_text.done", content_index=0, text="Deep."),
        event("output_item.done", item=thought),
        event("refusal.delta", 1, content_index=0, delta="N"),
        event("refusal.done", 1, content_index=0, refusal="No."),
        event("output_item.done", 1, item=refused),
        event("output_item.added", 2, item=CALL | {"arguments": ""}),
        event("function_call_arguments.delta", 2, delta='{"a"'),
        event("function_call_arguments.done", 2, arguments='{"a":1}'),
        event("output_item.done", 2, item=CALL),
    ]
    parts = parts_of(*(told if again else ()), ended(thought, refused, CALL))
    reasoning = [Reasoning("Hm."), Reasoning("So."), Reasoning("Deep.")]
    assert parts == [*reasoning, Refusal("No."), ToolCall("call_1", "f", '{"a":1}')]


def test_what_was_shown_otherwise_stays_as_it_was_shown() -> None:
    """A text that is told again with other words cannot be unsaid, and is not said twice."""
    assert parts_of(event("output_text.delta", delta="Helo"), ended(message_item(said("Hello")))) == [Text("Helo")]


def test_parallel_calls_that_come_interleaved_are_told_apart() -> None:
    """By their output index; ids come with the items."""
    other = CALL | {"id": "fc_2", "call_id": "call_2", "name": "g", "arguments": "[]"}
    parts = parts_of(
        event("output_item.added", 0, item=CALL | {"arguments": ""}),
        event("output_item.added", 1, item=other | {"arguments": ""}),
        event("function_call_arguments.delta", 0, delta='{"a"'),
        event("function_call_arguments.delta", 1, delta="["),
        event("function_call_arguments.delta", 0, delta=":1}"),
        event("function_call_arguments.delta", 1, delta="]"),
        ended(CALL, other),
    )
    assert parts == [ToolCall("call_1", "f", '{"a":1}'), ToolCall("call_2", "g", "[]")]


BUILT_IN = [
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
    {"type": "file_search_call", "id": "fs_1", "queries": ["q"], "results": None},
    {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "outputs": []},
    {"type": "image_generation_call", "id": "ig_1", "result": "aGk="},
    {"type": "computer_call", "id": "cu_1", "call_id": "call_c", "action": {"type": "wait"}},
    {"type": "mcp_list_tools", "id": "ml_1", "tools": []},
    {"type": "mcp_call", "id": "mc_1", "name": "n", "arguments": "{}"},
    {"type": "mcp_approval_request", "id": "ma_1", "name": "n", "arguments": "{}"},
    {"type": "custom_tool_call", "id": "ct_1", "call_id": "call_t", "name": "n", "input": "free text"},
    {"type": "of_the_future", "anything": {"goes": [None, 1.5]}},
]


@pytest.mark.parametrize("streamed", [True, False])
def test_other_items_are_kept_verbatim_and_in_their_order(streamed: bool) -> None:
    """Built-in tools, custom calls, unknown kinds: unchanged, between the items they came between."""
    items = [REASONING, *BUILT_IN, message_item(said("Done."))]
    told = [event("output_item.done", place, item=item) for place, item in enumerate(items)]
    message = frames(*(told if streamed else ()), ended(*items)).message
    assert kept_in(message) == [*items[:-1], message_item({"type": "output_text", "annotations": []})]
    assert message.text == "Done."


def test_annotations_that_come_in_events_of_their_own_are_kept() -> None:
    """Where neither part nor item repeats them."""
    link = {"type": "url_citation", "url": "https://example.com"}
    message = frames(
        event("output_item.added", item=message_item()),
        event("output_text.delta", delta="See."),
        event("output_text.annotation.added", content_index=0, annotation_index=0, annotation=link),
        ended(message_item(said("See."))),
    ).message
    (item,) = kept_in(message)
    assert item["content"] == [{"type": "output_text", "annotations": [link]}]


def test_a_server_that_counts_with_gaps_is_matched_by_id() -> None:
    """An announced item without content leaves a gap in the indexes, and none in the response."""
    assert parts_of(
        event("output_item.added", 0, item=None),
        event("output_item.added", 1, item=message_item()),
        event("output_text.delta", 1, delta="Hello"),
        ended(message_item(said("Hello"))),
    ) == [Text("Hello")]


def test_a_server_that_changes_ids_on_the_way_is_matched_by_place() -> None:
    """Some proxies make an id for each event."""
    assert parts_of(
        event("output_item.added", item=message_item(id="a")),
        event("output_text.delta", delta="Hello"),
        event("output_item.done", item=message_item(said("Hello"), id="b")),
        ended(message_item(said("Hello"), id="c")),
    ) == [Text("Hello")]


def test_an_item_that_was_cut_off_is_kept_as_nothing() -> None:
    """What of it was shown is there; it cannot go back as the server's own."""
    message = frames(
        event("output_item.done", item=REASONING | {"summary": []}),
        event("output_item.added", 1, item=message_item()),
        event("output_text.delta", 1, delta="Hel"),
    ).message
    assert kept_in(message) == [REASONING | {"summary": []}, {}]
    assert message.text == "Hel"


def test_nothing_shown_and_nothing_whole_is_an_empty_message() -> None:
    """So that a request that broke before anything came leaves nothing behind."""
    result = frames(event("created", response={"id": "r"}), event("output_item.added", item=message_item()))
    assert result.message.parts == ()
    assert not result.is_over


# --- the end ------------------------------------------------------------------------------------------------

COUNTS = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 5},
}


def incomplete(details: dict[str, str] | None) -> bytes:
    return ended(status="incomplete", incomplete_details=details, usage=COUNTS)


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (ended(usage=COUNTS), "completed"),
        (incomplete({"reason": "max_output_tokens"}), "max_output_tokens"),
        (incomplete({"reason": "content_filter"}), "content_filter"),
        (incomplete(None), "incomplete"),
    ],
)
def test_the_whole_response_ends_the_answer_with_reason_and_usage(end: bytes, reason: str) -> None:
    """`input` includes what was cached, `output` what was thought; what comes behind it is not read."""
    result = frames(event("output_text.delta", delta="x"), end, b"[DONE]", b"{broken", ended(status="failed"))
    assert result.error is None
    assert result.is_over
    assert result.message.finish_reason == reason
    assert result.message.usage == Usage(input=10, output=7, cached=4, reasoning=5)


@pytest.mark.parametrize(
    ("data", "kind", "code"),
    [
        (ended(status="failed", error={"code": "server_error", "message": "Oops"}), ServerFailed, "server_error"),
        (ended(status="failed", error={"code": "rate_limit_exceeded", "message": "Oops"}), RateLimited, None),
        (ended(status="failed", error={"code": "invalid_prompt", "message": "Oops"}), RequestRejected, None),
        (ended(status="failed", error=None), ServerFailed, "failed"),
        (ended(status="cancelled", error=None), ServerFailed, "cancelled"),
        (b'{"type":"error","code":"server_error","message":"Oops","param":null}', ServerFailed, "server_error"),
        (b'{"type":"error","error":{"type":"invalid_request_error","message":"Oops"}}', RequestRejected, None),
        (b'{"error":{"message":"Oops sk-very-secret","code":"rate_limit_exceeded"}}', RateLimited, None),
    ],
)
def test_a_failure_in_the_stream_is_raised_as_what_it_is(data: bytes, kind: type[Exception], code: str | None) -> None:
    """`response.failed` and `error` in each shape; without the key."""
    result = frames(event("output_text.delta", delta="so far"), data)
    assert type(result.error) is kind
    assert code is None or result.error.code == code  # type: ignore[union-attr]
    assert "sk-very-secret" not in str(result.error)
    assert result.message.text == "so far"
    assert not result.is_over


def whole(body: dict[str, Any]) -> tuple[Message, bool]:
    reply = RecordingReply()
    decoder = WIRE.begin(reply)  # type: ignore[arg-type]
    decoder.whole(json.dumps(body).encode())
    return reply.assembly.message(), decoder.is_over


def test_an_answer_in_one_piece_gives_what_its_stream_would() -> None:
    """The same message, items and all; over unless it says that it is still at work."""
    body = {"status": "completed", "output": [REASONING, message_item(said("Hi")), CALL], "usage": COUNTS}
    message, is_over = whole(body)
    assert is_over
    assert message == frames(ended(*body["output"], usage=COUNTS)).message  # type: ignore[misc]
    assert not whole(body | {"status": "in_progress"})[1]
    assert whole({"output": []})[1]


@pytest.mark.parametrize(
    ("body", "kind"),
    [({}, MalformedStream), ({"error": {"message": "x"}}, ServerFailed), ({"status": "failed"}, ServerFailed)],
)
def test_a_body_that_is_no_answer_is_an_error(body: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        whole(body)


# --- anything at all ----------------------------------------------------------------------------------------

STREAM = b"".join(
    b"event: x\ndata: " + data + b"\n\n"
    for data in [
        event("created", response={"id": "resp_1"}),
        *[event("output_item.done", 0, item=REASONING)],
        *[event("output_item.added", 1, item=message_item())],
        *[event("output_text.delta", 1, content_index=0, delta=f"wörd{index} ") for index in range(5)],
        event("output_item.added", 2, item=CALL | {"arguments": ""}),
        event("function_call_arguments.delta", 2, delta='{"a":1}'),
        ended(REASONING, message_item(said("".join(f"wörd{index} " for index in range(5)))), CALL, usage=COUNTS),
    ]
)
TEXT = "".join(f"wörd{index} " for index in range(5))


@given(st.integers(0, len(STREAM)), st.binary(max_size=40))
@settings(deadline=None)
def test_any_prefix_of_a_stream_gives_a_prefix_of_its_answer(end: int, garbage: bytes) -> None:
    """Cut anywhere, and with anything behind the cut: no exception but ours, and nothing invented."""
    result = decoded([chunk for chunk in (STREAM[:end], garbage) if chunk])
    assert TEXT.startswith(result.message.text) or b"data" in garbage
    assert not result.is_over or end == len(STREAM) or len(STREAM) - end < 40


@given(st.data())
@settings(deadline=None)
def test_garbage_between_frames_raises_nothing_but_our_errors(data: st.DataObject) -> None:
    """Whatever stands between two frames."""
    pieces = STREAM.split(b"\n\n")
    place = data.draw(st.integers(0, len(pieces)))
    pieces.insert(place, data.draw(st.binary(max_size=60)))
    size = data.draw(st.integers(1, 50))
    body = b"\n\n".join(pieces)
    decoded([body[begin : begin + size] for begin in range(0, len(body), size)])


KINDS = st.sampled_from(
    [
        "output_text.delta", "output_text.done", "function_call_arguments.delta", "function_call_arguments.done",
        "reasoning_summary_text.delta", "reasoning_summary_part.done", "reasoning_text.delta", "refusal.delta",
        "output_item.added", "output_item.done", "content_part.added", "content_part.done", "created",
        "output_text.annotation.added", "completed", "incomplete", "failed",
    ]
)  # fmt: skip
TYPES = st.sampled_from(["message", "reasoning", "function_call", "output_text", "refusal", "x"])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | TYPES
NAMES = st.sampled_from(
    ["type", "id", "call_id", "name", "content", "summary", "arguments", "text", "refusal", "output", "status", "usage",
     "annotations", "error", "input_tokens", "output_tokens_details", "incomplete_details", "reason"]
)  # fmt: skip
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=6), max_leaves=12
)
FIELDS = st.sampled_from(
    ["delta", "text", "item", "part", "response", "output_index", "content_index", "summary_index", "sequence_number",
     "arguments", "refusal", "annotation", "error", "message", "code"]
)  # fmt: skip


@given(st.lists(st.tuples(KINDS, st.dictionaries(FIELDS, VALUES, max_size=6)), max_size=6))
@settings(deadline=None, max_examples=examples(40))
def test_any_events_at_all_give_a_message_or_one_of_our_errors(events: list[tuple[str, dict[str, Any]]]) -> None:
    """Known kinds of events with fields of any shape; and what came of them can be sent in the next turn."""
    message = frames(*[json.dumps({"type": f"response.{kind}", **fields}).encode() for kind, fields in events]).message
    results = Message("tool", tuple(ToolResult(call.id, "ok") for call in message.tool_calls))
    request = ModelRequest(messages=(message, results, Message.user("Go on.")))
    encode_body(responses_body(request, model="m", ways=Ways(provider=WIRE.provider)))


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes_at_all_give_a_message_or_one_of_our_errors(data: bytes) -> None:
    result = decoded([data] if data else [])
    assert result.error is None or isinstance(result.error, ProviderError)


@pytest.mark.parametrize("data", [b"Internal Server Error", b"{'single': 1}", b'{"type": ', b"[" * 100_000])
def test_what_is_no_json_is_malformed_and_shows_its_beginning(data: bytes) -> None:
    result = frames(data)
    assert isinstance(result.error, MalformedStream)
    assert data[:10].decode() in str(result.error)


def test_a_frame_that_does_not_fit_gives_what_of_it_does() -> None:
    """A wrong index, half a surrogate pair, bytes that are no text: the rest is read."""
    assert parts_of(
        b'{"type":"response.output_text.delta","output_index":"one","delta":"a\\ud83d"}',
        b'{"type":"response.output_text.delta","content_index":0.5,"delta":"\xff"}',
        ended(),
    ) == [Text("a\ufffd\ufffd")]


def test_a_frame_of_two_megabytes_in_single_bytes_takes_less_than_two_seconds() -> None:
    """Linear in the bytes."""
    text = "x" * 2_000_000
    body = b"data: " + event("output_text.delta", delta=text) + b"\n\n"
    began = time.process_time()
    result = decoded([body[index : index + 1] for index in range(len(body))])
    assert time.process_time() - began < 2
    assert result.message.text == text


def test_a_long_answer_takes_time_in_proportion_to_its_length() -> None:
    """Also one of many parts, each told again."""

    def spent(count: int) -> float:
        items = [message_item(said(f"t{index}"), id=f"msg_{index}") for index in range(count)]
        told = [
            data
            for place, item in enumerate(items)
            for data in (
                event("output_item.added", place, item=item | {"content": []}),
                event("output_text.delta", place, delta=item["content"][0]["text"]),
                event("output_item.done", place, item=item),
            )
        ]
        decoder = WIRE.begin(RecordingReply())  # type: ignore[arg-type]
        began = time.process_time()
        told += [event("output_text.delta", 0, delta="x" * 100), event("output_text.done", 0, text="t0x")] * count
        for data in [*told, ended(*[message_item(said("t"), id="gap"), *items])]:
            decoder.frame(data)
        return time.process_time() - began

    short = min(spent(250) for _ in range(3))
    assert min(spent(1_000) for _ in range(3)) < 10 * short


# --- the recording provider ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["steady(20,1)", "one-byte(5)", "crlf(5)", 'tool-call(f,{"a": [1, 2]})', "echo(3,1)"])
def test_the_official_sdk_understands_the_recording_provider(wire: WireProbe, mode: str) -> None:
    """Its stream adds up, in the SDK's own accumulator, to what it says in the end."""
    with (
        openai.OpenAI(api_key="k", base_url=wire.url(mode)) as client,
        client.responses.stream(model="m", input="hello") as stream,
    ):
        told = list(stream)
        numbers = [one.sequence_number for one in told]
        response = stream.get_final_response()
    assert response.status == "completed"
    (item,) = response.output
    if mode.startswith("tool-call"):
        assert item.type == "function_call"
        assert item.arguments == '{"a": [1, 2]}'
    else:
        assert "".join(one.delta for one in told if one.type == "response.output_text.delta") == response.output_text
        assert response.output_text.split()[0] in ("t0", "hello#0")
    assert mode in ("one-byte(5)",) or numbers == sorted(set(numbers))


def test_a_delta_at_a_place_of_its_own_belongs_to_the_item_it_names() -> None:
    """Some servers count the places of deltas otherwise than those of items: nothing is shown twice."""
    item = message_item({"type": "output_text", "text": "Hello"})
    delta = event("output_text.delta", 3, content_index=0, item_id="msg_1", delta="Hello")
    added = event("output_item.added", 0, item=message_item())
    done = event("output_item.done", 0, item=item)
    for events in [(delta,), (added, delta), (delta, done), (added, delta, done)]:
        assert parts_of(*events, ended(item)) == [Text("Hello")]
