"""A conversation as the input items of OpenAI's Responses.

1. What the server made goes back as it made it, in its order; what others made, or what was cut off, as plain messages
and calls. 2. A reasoning item goes back only with the very item that followed it, and that one without its id if its
reasoning cannot: else the API refuses. 3. A call and its result are sent only together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, assert_never, cast

import msgspec

from halter.core.history import calls_in, paired
from halter.messages import File, Image, Message, Opaque, Part, Refusal, Text, ToolCall, ToolResult
from halter.models.calls import told_apart
from halter.models.conversation import data_url, is_theirs
from halter.models.responses.frames import fields_of, text_in
from halter.models.responses.items import whole_call, whole_message

# Calls of which the caller brings the result, as an `Opaque` of a type of its own.
_ANSWERED_BY = {
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
}


def is_bound(item: dict[str, Any]) -> bool:
    """Whether only the model that made this item takes it back: reasoning, and what refers to reasoning by its id.

    Not so the calls whose results the caller has brought, and which would be missing.
    """
    kind = text_in(item, "type")
    return kind not in _ANSWERED_BY and kind != "mcp_approval_request"


class _Item(msgspec.Struct):
    """An item that may be sent; `is_whole`: as the server made it."""

    fields: dict[str, Any]
    is_whole: bool = True

    @property
    def is_reasoning(self) -> bool:
        return text_in(self.fields, "type") == "reasoning"


def input_items(messages: Sequence[Message], provider: str, *, is_stored: bool) -> list[dict[str, Any]]:
    """The conversation. `provider`: whose `Opaque` parts go back; `is_stored`: it has kept its items itself, too."""
    calls = _Calls(messages, provider)
    sent: list[dict[str, Any]] = []
    told, written = told_apart(messages, others=calls.others)
    for message, answered in paired(told, calls.of):
        match message.role:
            case "system" | "developer" | "user":
                sent.extend(_given(message, provider))
            case "assistant":
                complete = [
                    (item, calls.is_complete(item.fields, answered)) for item in _said(message, provider, written)
                ]
                sent.extend(_in_order(complete, is_stored=is_stored))
            case "tool":
                sent.extend(calls.results(message))
            case _:
                assert_never(message.role)
    return sent


# --- what others say ----------------------------------------------------------------------------------------


def _given(message: Message, provider: str) -> Iterator[dict[str, Any]]:
    content = [_content(part) for part in message.parts if isinstance(part, Text | Image | File)]
    if len(content) == 1 and content[0]["type"] == "input_text":
        yield {"role": message.role, "content": content[0]["text"]}
    elif content:
        yield {"role": message.role, "content": content}
    yield from _own(message, provider)


def _own(message: Message, provider: str) -> list[dict[str, Any]]:
    """Items that the caller has written in the server's own words: an approval, a screenshot."""
    kept = [fields_of(part.data) for part in message.parts if isinstance(part, Opaque) and is_theirs(part, provider)]
    return [item for item in kept if item]


def _content(part: Text | Image | File) -> dict[str, Any]:
    match part:
        case Text():
            return {"type": "input_text", "text": part.text}
        case Image():
            url = part.url or data_url(part.media_type or "", part.data or b"")
            return {"type": "input_image", "image_url": url, "detail": part.detail or "auto"}
        case File():
            return {"type": "input_file"} | _file(part)


def _file(file: File) -> dict[str, Any]:
    if file.id is not None:
        return {"file_id": file.id}
    if file.url is not None:
        return {"file_url": file.url}
    name = file.name or f"file.{file.media_type.rpartition('/')[2]}"  # the API refuses data without a name
    return {"filename": name, "file_data": data_url(file.media_type, file.data or b"")}


class _Calls:
    """Which calls are in a conversation, which may be sent, and how their results are."""

    def __init__(self, messages: Sequence[Message], provider: str) -> None:
        self._provider = provider
        theirs = [(m.role, item) for m in messages for item in _own(m, provider)]
        made = {_call_id(item): text_in(item, "type") for role, item in theirs if role == "assistant"}
        outputs = {(_call_id(item), text_in(item, "type")) for role, item in theirs if role != "assistant"}
        self._approvals = {text_in(item, "approval_request_id") for role, item in theirs if role != "assistant"}
        self._custom = {id for id, kind in made.items() if kind == "custom_tool_call"}
        self._elsewhere = {id for id, kind in made.items() if (id, _ANSWERED_BY.get(kind, "")) in outputs}

    @property
    def others(self) -> AbstractSet[str]:
        """The ids of the calls whose results are `ToolResult`s, and that are no `ToolCall`s themselves."""
        return self._custom

    def of(self, message: Message) -> list[str]:
        """The calls in an answer whose results are `ToolResult`s."""
        custom = (_call_id(item) for item in _own(message, self._provider))
        return [*calls_in(message), *(id for id in custom if id in self._custom)]

    def is_complete(self, item: dict[str, Any], answered: AbstractSet[str]) -> bool:
        """Whether this may be sent: no call without its result, no question without its answer."""
        kind, id = text_in(item, "type"), _call_id(item)
        if kind == "function_call":
            return id in answered
        if kind == "mcp_approval_request":
            return text_in(item, "id") in self._approvals
        return kind not in _ANSWERED_BY or id in answered or id in self._elsewhere

    def results(self, message: Message) -> Iterator[dict[str, Any]]:
        for part in message.parts:
            if isinstance(part, ToolResult):
                kind = "custom_tool_call_output" if part.call_id in self._custom else "function_call_output"
                yield {"type": kind, "call_id": part.call_id, "output": _output(part)}
        yield from _own(message, self._provider)


def _output(result: ToolResult) -> str | list[dict[str, Any]]:
    if not result.attachments:
        return result.content
    return [_content(part) for part in (Text(result.content), *result.attachments)]


def _call_id(item: dict[str, Any]) -> str:
    return text_in(item, "call_id")


# --- what the model says ------------------------------------------------------------------------------------


def _said(message: Message, provider: str, written: dict[str, str]) -> list[_Item]:
    """The items of an answer: each begins with its `Opaque`, if it was this server's. `written`: see `ToldApart`."""
    items: list[_Item] = []
    kept: dict[str, Any] = {}
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, Opaque):
            if not is_theirs(part, provider) or not isinstance(part.data, dict):
                continue
            items.extend(_items_of(kept, parts, written))
            kept, parts = cast("dict[str, Any]", part.data), []
        else:
            parts.append(part)
    return [*items, *_items_of(kept, parts, written)]


def _items_of(kept: dict[str, Any], parts: list[Part], written: dict[str, str]) -> Iterator[_Item]:
    """One item of the server's with what it says, and whatever else stands behind it."""
    said = [part for part in parts if isinstance(part, Text | Refusal)]
    calls = [part for part in parts if isinstance(part, ToolCall)]
    match text_in(kept, "type"):
        case "":
            pass
        case "message":
            whole = whole_message(kept, said)
            if whole is not None:
                yield _Item(whole)
                said = []
        case "function_call":
            own = next((call for call in calls if written[call.id] == kept.get("call_id")), None)
            if own is not None:
                yield _Item(whole_call(kept, own))
                calls.remove(own)
        case _:
            yield _Item(kept)
    text = "".join(part.text for part in said)
    if text:
        yield _Item({"role": "assistant", "content": text}, is_whole=False)
    for call in calls:
        yield _Item(whole_call({"type": "function_call"}, call), is_whole=False)


def _in_order(items: list[tuple[_Item, bool]], *, is_stored: bool) -> list[dict[str, Any]]:
    """What of an answer can be sent, each reasoning item with what followed it; with each, whether it is complete."""
    sent: list[_Item] = []
    is_followed = False
    for item, is_complete in reversed(items):
        if item.is_reasoning:
            is_followed = is_followed and (is_stored or _speaks_for_itself(item.fields))
            if not is_followed:
                _forget_ids(sent)
                continue
        elif not is_complete:
            is_followed = False
            continue
        else:
            is_followed = item.is_whole
        sent.append(item)
    return [item.fields for item in reversed(sent)]


def _speaks_for_itself(reasoning: dict[str, Any]) -> bool:
    """Whether a server that has stored nothing can read it: encrypted, or in the open as from many other servers."""
    return bool(reasoning.get("encrypted_content") or reasoning.get("content"))


def _forget_ids(backwards: list[_Item]) -> None:
    """By its id the server would know that an item had reasoning, and miss it."""
    for item in reversed(backwards):
        if item.is_reasoning:
            break
        if text_in(item.fields, "type") in ("message", "function_call"):
            item.fields = {name: value for name, value in item.fields.items() if name != "id"}
