"""A reply outside any run: what a decoder writes into it is assembled, and noted in order."""

from __future__ import annotations

from typing import Any

from halter.core.assembly import Assembly
from halter.core.sse import FrameSplitter
from halter.errors import ProviderError
from halter.messages import Message, Reasoning, Refusal, Text
from halter.models.chat.wire import ChatWire


class RecordingReply:
    """As `halter.core.context.Reply`, without events. `deltas`: (kind, text) in the order in which they came."""

    def __init__(self) -> None:
        self.assembly = Assembly()
        self.deltas: list[tuple[str, str]] = []

    def text(self, text: str) -> None:
        self._add(Text, text)

    def reasoning(self, text: str) -> None:
        self._add(Reasoning, text)

    def refusal(self, text: str) -> None:
        self._add(Refusal, text)

    def tool_fragment(self, key: int | str, id: str | None, name: str | None, fragment: str) -> None:
        call = self.assembly.call(key)
        call.id = id or call.id or f"made-{key}"
        call.name = name or call.name
        call.pieces.append(fragment)
        self.deltas.append((call.id, fragment))

    def incomplete_call(self, key: int | str) -> None:
        self.assembly.call(key).incomplete = True

    def next_part(self) -> None:
        self.assembly.end_pieces()

    def carry(self, provider: str, data: Any) -> None:
        self.assembly.carry(provider, data)

    def _add(self, kind: Any, text: str) -> None:
        assert isinstance(text, str)
        if text:
            self.assembly.pieces(kind).append(text)
            self.deltas.append((kind.__name__, text))


class Decoded:
    """What became of some bytes; two are equal if message, error and state are."""

    def __init__(self, message: Message, error: ProviderError | None, is_over: bool) -> None:
        self.message, self.error, self.is_over = message, error, is_over

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decoded) and self._key() == other._key()

    __hash__ = None  # type: ignore[assignment]

    def _key(self) -> tuple[Any, ...]:
        return self.message, type(self.error), str(self.error), self.is_over

    def __repr__(self) -> str:
        return f"<Decoded {self._key()}>"


WIRE = ChatWire("openai:test", provider="chat:test", key="sk-very-secret")


def decode(chunks: list[bytes], wire: ChatWire = WIRE) -> Decoded:
    """A stream's reads through splitter and decoder. An error ends it, as in production."""
    reply, splitter = RecordingReply(), FrameSplitter()
    decoder = wire.begin(reply)  # type: ignore[arg-type]
    error = None
    try:
        for chunk in chunks:
            for data in splitter.feed(chunk):
                decoder.frame(data)
        for data in splitter.close():
            decoder.frame(data)
    except ProviderError as failure:
        error = failure
    return Decoded(reply.assembly.message(), error, decoder.is_over)


def decode_frames(*frames: bytes) -> Decoded:
    """Frames given as their data."""
    return decode([b"data: " + data + b"\n\n" for data in frames])
