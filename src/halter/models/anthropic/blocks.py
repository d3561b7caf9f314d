"""The blocks of an answer of Anthropic's: what each kind shows, and what of it goes back on the next turn.

1. What goes back unchanged is an `Opaque`: a whole block, or without a `type` the fields that are added to the block
before it. 2. It is kept when the block ends: a block that was cut off leaves only what it has shown. 3. A kind that
nobody here knows is kept whole, in its place.
"""

from __future__ import annotations

from typing import Any, Protocol, cast

import msgspec

from halter.core.reply import Reply
from halter.errors import MalformedStream
from halter.models.anthropic.frames import Delta
from halter.models.calls import object_in


class Block(Protocol):
    """A block while it is being streamed."""

    def take(self, delta: Delta) -> None: ...

    def take_other(self, fields: dict[str, Any]) -> None:
        """A kind of delta that nobody here knows."""
        ...

    def end(self) -> None: ...


def begin_block(fields: dict[str, Any], key: int, reply: Reply, provider: str) -> Block:
    """A block, from the fields that it begins with. `key`: its own number in the answer."""
    match fields:
        case {"type": "text"}:
            return TextBlock(fields, reply, provider)
        case {"type": "thinking"}:
            return ThinkingBlock(fields, reply, provider)
        case {"type": "tool_use"}:
            return CallBlock(fields, key, reply, provider)
        case _:
            return OtherBlock(fields, reply, provider)


class TextBlock:
    """Text, and the citations that support it."""

    __slots__ = ("_citations", "_provider", "_reply", "_text")

    def __init__(self, fields: dict[str, Any], reply: Reply, provider: str) -> None:
        self._reply = reply
        self._provider = provider
        self._citations: list[Any] = _list_in(fields, "citations")
        self._text = reply.text
        reply.next_part()
        reply.text(_text_in(fields, "text"))

    def take(self, delta: Delta) -> None:
        if delta.text:
            self._text(delta.text)
        if delta.citation:
            self._citations.append(delta.citation)

    def take_other(self, fields: dict[str, Any]) -> None:
        pass  # a block of text has no place for it

    def end(self) -> None:
        if self._citations:
            self._reply.carry(self._provider, {"citations": self._citations})


class ThinkingBlock:
    """Thinking and its signature: together, word for word, or the provider refuses both."""

    __slots__ = ("_fields", "_pieces", "_provider", "_reply", "_signature")

    def __init__(self, fields: dict[str, Any], reply: Reply, provider: str) -> None:
        self._reply = reply
        self._provider = provider
        self._fields = fields
        self._pieces = [_text_in(fields, "thinking")]
        self._signature = _text_in(fields, "signature")
        reply.next_part()
        reply.reasoning(self._pieces[0])

    def take(self, delta: Delta) -> None:
        if delta.thinking:
            self._pieces.append(delta.thinking)
            self._reply.reasoning(delta.thinking)
        if delta.signature:
            self._signature = delta.signature

    def take_other(self, fields: dict[str, Any]) -> None:
        pass  # the signature would not cover it

    def end(self) -> None:
        if self._signature:
            whole = {"thinking": "".join(self._pieces), "signature": self._signature}
            self._reply.carry(self._provider, self._fields | whole)


class CallBlock:
    """A call of a tool of ours. Its input comes as pieces of JSON; in an answer in one piece, as an object."""

    __slots__ = ("_fields", "_has_begun", "_key", "_provider", "_reply")

    def __init__(self, fields: dict[str, Any], key: int, reply: Reply, provider: str) -> None:
        self._reply = reply
        self._provider = provider
        self._fields = fields
        self._key = key
        self._has_begun = False
        reply.tool_fragment(key, _text_in(fields, "id"), _text_in(fields, "name"), "")

    def take(self, delta: Delta) -> None:
        if delta.partial_json:
            self._has_begun = True
            self._reply.tool_fragment(self._key, None, None, delta.partial_json)

    def take_other(self, fields: dict[str, Any]) -> None:
        pass  # a call has no place for it

    def end(self) -> None:
        whole = self._fields.get("input")
        if whole and not self._has_begun:
            self._reply.tool_fragment(self._key, None, None, _json_of(whole))
        more = {name: value for name, value in self._fields.items() if name not in ("type", "id", "name", "input")}
        if more:  # who called, from where: `caller`, `toolset_name`
            self._reply.carry(self._provider, more)


class OtherBlock:
    """Any other kind: tools that the provider runs itself, their results, encrypted thinking, what comes tomorrow."""

    __slots__ = ("_fields", "_json", "_pieces", "_provider", "_reply")

    def __init__(self, fields: dict[str, Any], reply: Reply, provider: str) -> None:
        self._reply = reply
        self._provider = provider
        self._fields = dict(fields)
        self._json: list[str] = []
        self._pieces: dict[str, list[str]] = {}

    def take(self, delta: Delta) -> None:
        if delta.partial_json:
            self._json.append(delta.partial_json)
        for name, piece in (("text", delta.text), ("thinking", delta.thinking)):
            if piece:
                self._pieces.setdefault(name, [_text_in(self._fields, name)]).append(piece)
        if delta.signature:
            self._fields["signature"] = delta.signature
        if delta.citation:
            self._fields["citations"] = _list_in(self._fields, "citations")
            self._fields["citations"].append(delta.citation)

    def take_other(self, fields: dict[str, Any]) -> None:
        self._fields |= {name: value for name, value in fields.items() if name != "type"}

    def end(self) -> None:
        self._fields |= {name: "".join(pieces) for name, pieces in self._pieces.items()}
        if self._json:
            made = object_in("".join(self._json))
            if made is None:
                return  # cut off within its input: the provider has not run it, and would refuse it
            self._fields["input"] = made
        if isinstance(self._fields.get("type"), str):
            self._reply.carry(self._provider, self._fields)


def _json_of(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        raise MalformedStream("a tool call's input is nested too deeply") from None


def _text_in(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _list_in(fields: dict[str, Any], name: str) -> list[Any]:
    value: object = fields.get(name)
    return cast("list[Any]", value) if isinstance(value, list) else []
