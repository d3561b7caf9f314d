"""An answer that is written as the arguments of a tool, shown and kept as the text that it is."""

from __future__ import annotations

from typing import Any, cast

from halter.core.ports import HttpRequest
from halter.core.reply import Reply
from halter.errors import ProviderError
from halter.models.format import Format
from halter.models.wire import Decoder


class AnswerToolFormat(Format):
    """A wire whose calls of one tool are the answer. `wire`: the model's own; `tool`: that tool's name."""

    __slots__ = ("_tool", "_wire")

    def __init__(self, wire: Format, tool: str) -> None:
        super().__init__(wire.name, provider=wire.provider)
        self._wire = wire
        self._tool = tool

    def begin(self, reply: Reply) -> Decoder:
        return self._wire.begin(cast("Reply", AnswerReply(reply, self._tool)))

    def resume(self, decoder: Decoder, error: ProviderError) -> HttpRequest | None:
        return self._wire.resume(decoder, error)

    async def give_up(self, decoder: Decoder) -> bool:
        return await self._wire.give_up(decoder)

    def describe_error(self, body: bytes) -> tuple[str, str | None]:
        return self._wire.describe_error(body)

    def retry_delay(self, body: bytes) -> float | None:
        return self._wire.retry_delay(body)

    def redacted(self, text: str) -> str:
        return self._wire.redacted(text)


class AnswerReply:
    """A `Reply` that shows the first call of `tool` as text, in a part of its own. Another call of it is left out."""

    def __init__(self, reply: Reply, tool: str) -> None:
        self._reply = reply
        self._tool = tool
        self._calls: set[int | str] = set()
        self._first: int | str | None = None
        self._is_answering = False

    def tool_fragment(self, key: int | str, id: str | None, name: str | None, fragment: str) -> None:
        if name == self._tool:
            self._calls.add(key)
        self._is_answering = key in self._calls
        if not self._is_answering:
            self._reply.tool_fragment(key, id, name, fragment)
            return
        if self._first is None:
            self._first = key
            self._reply.next_part()
        if key == self._first:
            self._reply.text(fragment)

    def carry(self, provider: str, data: Any) -> None:
        """Leaves out what the provider has added to the call: there is no call that it could go back with."""
        if not (self._is_answering and _is_added(data)):
            self._reply.carry(provider, data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reply, name)


def _is_added(data: Any) -> bool:
    """Whether it adds fields to the part before it: Gemini's `added`, and Anthropic's block without a type."""
    match data:
        case {"added": _}:
            return True
        case {"type": str()} | {"part": _} | {"facts": _} | {"container": _}:
            return False
        case _:
            return True
