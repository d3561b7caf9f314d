"""Which tool call a fragment belongs to.

By its index; by its id where servers number all calls alike or not at all; else to the call before it. Calls may be
interleaved. A new id under a known index begins a new call only together with a name: some servers invent an id for
each fragment.
"""

from __future__ import annotations

from typing import Any

import msgspec

from halter.core.reply import Reply
from halter.errors import MalformedStream


class CalledFunction(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: Any = None  # text in the format; an object from some servers


class CallFragment(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: CalledFunction | None = None
    extra_content: Any = None  # Google's servers: a signature that goes back with the call


class _Call:
    __slots__ = ("id", "key")

    def __init__(self, key: int) -> None:
        self.key = key
        self.id: str | None = None


LEGACY_INDEX = -1
_NO_FUNCTION = CalledFunction()


class Calls:
    """The calls of one answer. `extra_content`: what goes back with a call, by its id."""

    __slots__ = ("_by_id", "_by_index", "_count", "_last", "extra_content")

    def __init__(self) -> None:
        self.extra_content: dict[str, Any] = {}
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._last: _Call | None = None
        self._count = 0

    def take(self, fragment: CallFragment, reply: Reply) -> None:
        """Writes the fragment into the reply, under a key that is its call's own."""
        function = fragment.function or _NO_FUNCTION
        call = self._find(fragment.index, fragment.id, function.name)
        reply.tool_fragment(call.key, call.id, function.name or None, _text_of(function.arguments))
        if fragment.extra_content and call.id:
            self.extra_content[call.id] = fragment.extra_content

    def take_function(self, function: CalledFunction, reply: Reply) -> None:
        """The one call of the format's first version (`function_call`)."""
        self.take(CallFragment(index=LEGACY_INDEX, function=function), reply)

    def _find(self, index: int | None, id: str | None, name: str | None) -> _Call:
        call = self._known(index, id, name) or self._begin()
        if index is not None:
            self._by_index[index] = call
        if id:
            call.id = call.id or id
            self._by_id.setdefault(id, call)
        self._last = call
        return call

    def _known(self, index: int | None, id: str | None, name: str | None) -> _Call | None:
        if index is not None:
            return self._known_at(index, id, name)
        if id:
            return self._by_id.get(id)
        return None if name else self._last

    def _known_at(self, index: int, id: str | None, name: str | None) -> _Call | None:
        here = self._by_index.get(index)
        if here is None or not id or not here.id or id == here.id:
            return here
        return self._by_id.get(id) or (None if name else here)

    def _begin(self) -> _Call:
        self._count += 1
        return _Call(self._count - 1)


def _text_of(arguments: Any) -> str:
    """The arguments as JSON text: as written, or of the object that some servers send."""
    if isinstance(arguments, str):
        return arguments
    try:
        return "" if arguments is None else msgspec.json.encode(arguments).decode()
    except RecursionError:
        raise MalformedStream("a tool call's arguments are nested too deeply") from None
