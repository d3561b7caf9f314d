"""The tool calls of a conversation as strict servers take them: one step that all formats share.

1. Arguments are a JSON object: those that a stop, a cut or the model has broken go as `{"INVALID_JSON": "…"}`, so that
the model sees what it wrote. 2. No two calls of a conversation have one id, and no id is longer than the format takes.
The first of two keeps its id, and so does what was sent before: a provider's prompt cache stays valid.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from hashlib import sha256
from typing import Any, NamedTuple, cast

import msgspec

from halter.core.complete_calls import is_object
from halter.messages import Message, Part, ToolCall, ToolResult
from halter.models.lenient_json import read_json

LONGEST_ID = 64  # of Responses ("string too long. Expected a string with maximum length 64"), and enough everywhere


# --- arguments ----------------------------------------------------------------------------------------------


def object_in(text: str) -> dict[str, Any] | None:
    """The object that this JSON text is, the empty one for no text; `None` if it is none."""
    try:
        value: object = read_json(text.encode("utf-8", "replace")) if text.strip() else {}
    except ValueError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def arguments_object(call: ToolCall) -> dict[str, Any]:
    """The arguments as an object.

    What was broken is told by the words that Anthropic advises:
    https://platform.claude.com/docs/en/agents-and-tools/tool-use/fine-grained-tool-streaming
    """
    found = object_in(call.arguments)
    return {"INVALID_JSON": call.arguments} if found is None else found


def arguments_text(call: ToolCall) -> str:
    """The arguments as the text of a JSON object: as the model wrote them, if they are one."""
    return call.arguments if is_object(call.arguments) else msgspec.json.encode(arguments_object(call)).decode()


# --- ids ----------------------------------------------------------------------------------------------------


class ToldApart(NamedTuple):
    """A conversation in which no two calls have one id. `written`: the id that the model gave, by the one here."""

    messages: Sequence[Message]
    written: dict[str, str]


def short(id: str, longest: int = LONGEST_ID) -> str:
    """The id; one that is empty or too long in another form, always the same."""
    return id if 0 < len(id) <= longest else digest(id)[:longest]


def digest(id: str) -> str:
    """64 letters and digits that stand for an id which a server does not take."""
    return sha256(id.encode("utf-8", "replace")).hexdigest()


def told_apart(
    messages: Sequence[Message], fit: Callable[[str], str] = short, others: Collection[str] = ()
) -> ToldApart:
    """The conversation with an id of its own for each call and its result.

    `fit`: an id as the format takes it. `others`: ids of calls that are no `ToolCall`s and keep theirs. An id that is
    used again: a result is that of the last answer before it, the first one that of its first call. Results without a
    call are left out.
    """
    naming = _Naming(fit, others)
    return ToldApart([naming.message(message) for message in messages], naming.written)


class _Naming:
    def __init__(self, fit: Callable[[str], str], others: Collection[str]) -> None:
        self.written: dict[str, str] = {}
        self._fit = fit
        self._others = others
        self._taken = set(others)
        self._times: Counter[str] = Counter()
        self._is_answering = False  # the message before was the model's, too
        self._open: dict[str, deque[str]] = {}  # what the calls without a result are called, by the id as written

    def message(self, message: Message) -> Message:
        goes_on, self._is_answering = self._is_answering, message.role == "assistant"
        if message.role == "assistant" and message.tool_calls:
            for call in () if goes_on else message.tool_calls:
                self._open.pop(call.id, None)
            parts = tuple(self._call(part) if isinstance(part, ToolCall) else part for part in message.parts)
        elif message.role == "tool":
            named = (self._result(part) if isinstance(part, ToolResult) else part for part in message.parts)
            parts = tuple(part for part in named if part is not None)
        else:
            return message
        return message if parts == message.parts else msgspec.structs.replace(message, parts=parts)

    def _call(self, call: ToolCall) -> Part:
        name = self._free(call.id)
        self.written[name] = call.id
        self._open.setdefault(call.id, deque()).append(name)
        return call if name == call.id else msgspec.structs.replace(call, id=name)

    def _result(self, result: ToolResult) -> Part | None:
        waiting = self._open.get(result.call_id)
        if not waiting:
            return result if result.call_id in self._others else None
        name = waiting.popleft()
        return result if name == result.call_id else msgspec.structs.replace(result, call_id=name)

    def _free(self, id: str) -> str:
        """The id, with a number behind it if another call has it."""
        while True:
            self._times[id] += 1
            number = self._times[id]
            name = self._fit(id if number == 1 else f"{id}_{number}")
            if name not in self._taken:
                self._taken.add(name)
                return name
