"""How steps become bytes: streamed, each token its own frame and chunk, or collected into one JSON body.

A method returns the writes it stands for, in order; each is a TCP write of its own. An empty list: nothing to
send yet.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

import msgspec

from halter.proof.wire.formats import Ask, Reciting, Said, WireFormat
from halter.proof.wire.http1 import LAST_CHUNK, chunk, json_response, response_head
from halter.proof.wire.steps import CallTool, End, Open, Refuse, Replay, Say, Style, Words, counted_words

FRAMES_KEPT = 50_000
REFUSAL = "This is the recording provider, refusing as its mode says."


class Occasion(msgspec.Struct, frozen=True):
    """Everything about one answer that is known before its first byte."""

    wire_format: WireFormat
    ask: Ask
    words: Words
    style: Style
    request_id: int
    keep_alive: bool

    @property
    def call_id(self) -> str:
        return f"call_wire{self.request_id}"

    @property
    def request_header(self) -> dict[str, str]:
        return {"x-request-id": f"req_wire{self.request_id}"}


class Voice(Protocol):
    """Either way to deliver an answer."""

    @property
    def held(self) -> int:
        """How many tokens were collected, to be sent by `end`."""
        ...

    def open(self, step: Open) -> list[bytes]: ...
    def say(self, step: Say) -> list[bytes]: ...
    def call_tool(self, step: CallTool) -> list[bytes]: ...
    def replay(self, step: Replay) -> list[bytes]: ...
    def fail(self) -> list[bytes]: ...
    def refuse(self, step: Refuse) -> list[bytes]: ...
    def end(self, step: End) -> list[bytes]: ...
    def torn(self) -> list[bytes]: ...


class TokenFrames:
    """The chunks of the tokens 0, 1, 2 … of one kind of answer, each encoded once."""

    def __init__(self, encode: Callable[[str], bytes], words: Words) -> None:
        self._encode = encode
        self._words = words
        self._kept: list[bytes] = []

    def span(self, first: int, count: int) -> bytes:
        end = first + count
        if end > FRAMES_KEPT:
            return b"".join(map(self._make, range(first, end)))
        while len(self._kept) < end:
            self._kept.append(self._make(len(self._kept)))
        return self._kept[first] if count == 1 else b"".join(self._kept[first:end])

    def _make(self, index: int) -> bytes:
        return self._encode(self._words(index))


@lru_cache(maxsize=16)
def _counted_frames(wire_format: WireFormat, model: str) -> TokenFrames:
    # Shared by all answers of a model: the provider must not be the slow side of a benchmark.
    encode = wire_format.token_encoder(Ask(model=model))
    return TokenFrames(lambda text: chunk(encode(text)), counted_words)


class StreamVoice:
    """Server-sent events in a chunked body."""

    def __init__(self, occasion: Occasion) -> None:
        self._occasion = occasion
        self._format = occasion.wire_format
        self._ask = occasion.ask
        self._tokens = 0
        self._end_of_words = 0
        self._call = Said()
        self._encode = self._format.token_encoder(self._ask)
        self._frames = self._token_frames()

    @property
    def held(self) -> int:
        return 0

    def open(self, step: Open) -> list[bytes]:
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            "transfer-encoding": "chunked",
        } | self._occasion.request_header
        head = response_head(200, headers, self._occasion.keep_alive)
        return self._together(head, b"" if step.bare else self._format.opening(self._ask))

    def say(self, step: Say) -> list[bytes]:
        self._tokens += step.count
        self._end_of_words = step.first + step.count
        if self._frames is not None:
            return [self._frames.span(step.first, step.count)]
        texts = map(self._occasion.words, range(step.first, self._end_of_words))
        return [write for text in texts for write in self._style(self._encode(text))]

    def call_tool(self, step: CallTool) -> list[bytes]:
        self._tokens += 1
        self._call.tool = step.name
        self._call.arguments += step.fragment
        call_id = self._occasion.call_id
        return self._style(self._format.tool_fragment(self._ask, call_id, step.name, step.fragment, step.opens))

    def replay(self, step: Replay) -> list[bytes]:
        return [chunk(step.data)]

    def fail(self) -> list[bytes]:
        return self._style(self._format.error_frame())

    def refuse(self, step: Refuse) -> list[bytes]:
        return [_refusal(self._occasion, step)]

    def end(self, step: End) -> list[bytes]:
        self._call.is_cut = step.is_cut
        frames = self._finish() if step.finish else b""
        frames += self._format.done() if step.done else b""
        return self._together(b"", frames, LAST_CHUNK if step.body else b"")

    def _finish(self) -> bytes:
        if not isinstance(self._format, Reciting):
            return self._format.finish(self._ask, self._call.reason, self._tokens)
        self._call.text = list(map(self._occasion.words, range(self._end_of_words)))
        self._call.tokens = self._end_of_words or self._tokens
        return self._format.recite(self._ask, self._call, self._occasion.call_id)

    def torn(self) -> list[bytes]:
        whole = chunk(self._format.token_encoder(self._ask)("torn "))
        return [whole[: len(whole) // 2]]

    def _token_frames(self) -> TokenFrames | None:
        words = self._occasion.words
        if self._occasion.style != "plain":
            return None
        if words is counted_words:
            return _counted_frames(self._format, self._ask.model)
        return TokenFrames(lambda text: chunk(self._encode(text)), words)

    def _together(self, before: bytes, frames: bytes, after: bytes = b"") -> list[bytes]:
        writes = [before, *self._style(frames), after]
        if self._occasion.style != "one-byte":
            writes = [b"".join(writes)]
        return [write for write in writes if write]

    def _style(self, frames: bytes) -> list[bytes]:
        match self._occasion.style:
            case "plain":
                return [chunk(frames)] if frames else []
            case "crlf":
                return [chunk(frames.replace(b"\n", b"\r\n"))] if frames else []
            case "one-byte":
                return [chunk(frames[i : i + 1]) for i in range(len(frames))]


class WholeVoice:
    """One JSON body at the end, as a client gets it that did not ask to stream."""

    def __init__(self, occasion: Occasion) -> None:
        self._occasion = occasion
        self._said = Said()
        self._failed = False

    @property
    def held(self) -> int:
        return self._said.tokens

    def open(self, step: Open) -> list[bytes]:
        return []

    def say(self, step: Say) -> list[bytes]:
        self._said.tokens += step.count
        self._said.text.extend(map(self._occasion.words, range(step.first, step.first + step.count)))
        return []

    def call_tool(self, step: CallTool) -> list[bytes]:
        self._said.tokens += 1
        self._said.tool = step.name
        self._said.arguments += step.fragment
        return []

    def replay(self, step: Replay) -> list[bytes]:
        raise AssertionError("recordings are always streamed")

    def fail(self) -> list[bytes]:
        # There is no stream to fail inside of: the same trouble is an error status.
        self._failed = True
        self._said = Said()
        return [_refusal(self._occasion, Refuse(500))]

    def refuse(self, step: Refuse) -> list[bytes]:
        return [_refusal(self._occasion, step)]

    def end(self, step: End) -> list[bytes]:
        self._said.is_cut = step.is_cut
        return [] if self._failed else [self._response(finished=step.finish, missing=0 if step.body else 1)]

    def torn(self) -> list[bytes]:
        whole = self._response(finished=True, missing=0)
        return [whole[: len(whole) - len(whole) // 4]]

    def _response(self, finished: bool, missing: int) -> bytes:
        wire_format, ask = self._occasion.wire_format, self._occasion.ask
        body = wire_format.whole(ask, self._said, self._occasion.call_id, finished)
        # A body that never ends is one that promises a byte more than will ever come.
        headers = self._occasion.request_header | {"content-length": str(len(body) + missing)}
        return json_response(200, body, self._occasion.keep_alive, headers)


def _refusal(occasion: Occasion, step: Refuse) -> bytes:
    headers = occasion.request_header
    if step.retry_after is not None:
        headers = headers | {"retry-after": f"{step.retry_after:g}"}
    body = occasion.wire_format.refusal(step.status, REFUSAL)
    return json_response(step.status, body, occasion.keep_alive, headers)
