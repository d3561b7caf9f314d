"""A conversation in the messages of chat completions (https://platform.openai.com/docs/api-reference/chat/create).

1. Only what the server knows is sent: its `Opaque` parts go back to it alone, reasoning where its dialect has a field.
2. No message is sent that the server would refuse: not an assistant message that says nothing, and a tool call and
its result only together. 3. What one speaker says in a row is one message.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Any, assert_never, cast

from halter.core.history import paired
from halter.errors import ConfigurationError
from halter.messages import File, Image, Message, Opaque, Part, Text, ToolCall, ToolResult
from halter.models.calls import LONGEST_ID, arguments_text, digest, short, told_apart
from halter.models.chat.dialect import OPENAI, Dialect
from halter.models.conversation import attached_to, data_url, is_theirs, tool_name

_NOT_IN_A_NAME = re.compile(r"[\s<|\\/>]+")
LONGEST_NAME = 64
DETAILS = ("auto", "low", "high", "original")


def chat_messages(messages: tuple[Message, ...], provider: str, dialect: Dialect = OPENAI) -> list[dict[str, Any]]:
    """The conversation; `provider`: whose `Opaque` parts go back. Raises `ConfigurationError` for a part too many."""
    told, written = told_apart(messages, lambda id: _call_id(id, dialect))
    writer = _Writer(provider, dialect, written)
    sent = [each for message, answered in paired(told) for each in writer.message(message, answered)]
    sent = _merged(sent)
    return sent if dialect.after_results is None else _continued(sent, dialect.after_results)


def _call_id(id: str, dialect: Dialect) -> str:
    """The id as it was given; in another form, always the same, for a server that does not take that."""
    exact = dialect.call_id_length
    if exact is None:
        return short(id, dialect.longest_call_id or LONGEST_ID)
    return id if len(id) == exact and id.isascii() and id.isalnum() else digest(id)[:exact]


def _merged(sent: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With what one speaker says in a row in one message: the templates of many servers want roles to alternate.

    Users do so after a stop before the first word, the members of a team whenever one has two turns.
    """
    whole: list[dict[str, Any]] = []
    for message in sent:
        if whole and _goes_on(whole[-1], message):
            content = _joined(whole[-1]["content"], message.get("content") or "")
            whole[-1] = whole[-1] | message | {"content": content}
        else:
            whole.append(message)
    return whole


_WORDS = {"role", "content", "name"}  # what a message has that only says something


def _goes_on(last: dict[str, Any], message: dict[str, Any]) -> bool:
    """True if one speaker goes on, and the two fit into one message: a first one with words alone."""
    is_same = message["role"] == last["role"] and message.get("name") == last.get("name")
    speaks = message["role"] in ("user", "assistant") and last.get("content") and last.keys() <= _WORDS
    return bool(is_same and speaks and message.keys() <= _WORDS | {"tool_calls"})


def _joined(first: str | list[Any], second: str | list[Any]) -> str | list[Any]:
    if isinstance(first, str) and isinstance(second, str):
        return "\n\n".join(text for text in (first, second) if text)
    return [*_as_parts(first), *_as_parts(second)]


def _as_parts(content: str | list[Any]) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _continued(sent: list[dict[str, Any]], words: str) -> list[dict[str, Any]]:
    """The conversation with these words of the assistant wherever others speak directly after a tool."""
    whole: list[dict[str, Any]] = []
    for message in sent:
        if whole and whole[-1]["role"] == "tool" and message["role"] not in ("tool", "assistant"):
            whole.append({"role": "assistant", "content": words})
        whole.append(message)
    return whole


class _Writer:
    """One conversation's terms: whose `Opaque` parts go, in which dialect, and whether a tool was called by now.

    `written`: the ids that the model gave its calls, by those that they have here.
    """

    __slots__ = ("_dialect", "_has_calls", "_names", "_provider", "_written")

    def __init__(self, provider: str, dialect: Dialect, written: dict[str, str]) -> None:
        self._provider = provider
        self._dialect = dialect
        self._written = written
        self._has_calls = False
        self._names: dict[str, str] = {}  # of the tools that the last answer has called

    def message(self, message: Message, answered: AbstractSet[str]) -> list[dict[str, Any]]:
        match message.role:
            case "system":
                return [{"role": "system", "content": message.text} | self._name(message)]
            case "developer":
                return [{"role": self._dialect.developer_role, "content": message.text} | self._name(message)]
            case "user":
                return [{"role": "user", "content": self._content(message)} | self._name(message)]
            case "assistant":
                return self._assistant(message, answered)
            case "tool":
                return self._results(message)
            case _:
                assert_never(message.role)

    def _name(self, message: Message) -> dict[str, str]:
        """The name as the API takes it: no spaces, and at most 64 characters."""
        name = _NOT_IN_A_NAME.sub("_", message.name or "")[:LONGEST_NAME]
        return {"name": name} if name and self._dialect.takes_names else {}

    # --- the user's ------------------------------------------------------------------------------------------

    def _content(self, message: Message) -> str | list[dict[str, Any]]:
        """Text alone stays text; several servers take nothing else."""
        if not any(isinstance(part, Image | File) for part in message.parts):
            return message.text
        return list(self._parts(message.parts))

    def _parts(self, parts: Iterable[Part]) -> Iterable[dict[str, Any]]:
        for part in parts:
            if isinstance(part, Text):
                yield {"type": "text", "text": part.text}
            elif isinstance(part, Image):
                yield {"type": "image_url", "image_url": self._image(part)}
            elif isinstance(part, File):
                yield {"type": "file", "file": self._file(part)}

    def _image(self, image: Image) -> dict[str, str]:
        if image.detail is not None and image.detail not in DETAILS:
            raise ConfigurationError(f"an Image's detail is one of {', '.join(DETAILS)}, not {image.detail!r}")
        detail = {} if image.detail is None else {"detail": image.detail}
        if image.data is not None:
            return {"url": data_url(image.media_type or "", image.data)} | detail
        if not self._dialect.image_urls:
            raise ConfigurationError("this server fetches no images: give the Image's data, not its url")
        return {"url": image.url or ""} | detail

    def _file(self, file: File) -> dict[str, str]:
        if file.id is not None:
            return {"file_id": file.id}
        if file.data is None and not self._dialect.file_urls:
            raise ConfigurationError("chat completions fetch no files: give the File's data or id, not its url")
        content = file.url or "" if file.data is None else data_url(file.media_type, file.data)
        return {"filename": file.name or _file_name(file.media_type), "file_data": content}

    # --- the model's, and the tools' -------------------------------------------------------------------------

    def _assistant(self, message: Message, answered: AbstractSet[str]) -> list[dict[str, Any]]:
        calls = [call for call in message.tool_calls if call.id in answered]
        self._has_calls = self._has_calls or bool(calls)
        self._names = {call.id: tool_name(call.name) for call in calls}
        if not (message.text or message.refusal or calls):
            return []
        returned = self._returned(message)
        sent: dict[str, Any] = {"role": "assistant"} | self._words(message) | self._name(message)
        if calls:
            sent["tool_calls"] = [self._call(call, returned.get("extra_content", {})) for call in calls]
        if "reasoning_details" in returned:
            return [sent | {"reasoning_details": returned["reasoning_details"]}]
        return [sent | self._reasoning(message, is_needed=bool(calls))]

    def _words(self, message: Message) -> dict[str, Any]:
        if not self._dialect.takes_refusals:
            return {"content": message.text + message.refusal or None}
        refusal = {"refusal": message.refusal} if message.refusal else {}
        return {"content": message.text or None} | refusal

    def _reasoning(self, message: Message, *, is_needed: bool) -> dict[str, str]:
        """The thinking, in a conversation with tools: a server that wants it back wants it from there on. What was said
        before goes as it went before: a provider's prompt cache stays valid."""
        field = self._dialect.reasoning
        if field is None or not self._has_calls:
            return {}
        is_sent = bool(message.reasoning) or (is_needed and self._dialect.needs_reasoning)
        return {field: message.reasoning} if is_sent else {}

    def _call(self, call: ToolCall, extra: dict[str, Any]) -> dict[str, Any]:
        function = {"name": tool_name(call.name), "arguments": arguments_text(call)}
        sent: dict[str, Any] = {"id": call.id, "type": "function", "function": function}
        written = self._written[call.id]
        return sent | {"extra_content": extra[written]} if written in extra else sent

    def _results(self, message: Message) -> list[dict[str, Any]]:
        """The results; images and files, for which the format has no place there, come behind them as a user's."""
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        sent: list[dict[str, Any]] = [
            {"role": "tool", "tool_call_id": part.call_id, "content": part.content} for part in results
        ]
        attached = [
            shown
            for part in results
            if part.attachments
            for shown in self._parts((Text(attached_to(part, self._names[part.call_id])), *part.attachments))
        ]
        return [*sent, {"role": "user", "content": attached}] if attached else sent

    def _returned(self, message: Message) -> dict[str, Any]:
        """What this provider needs back: `reasoning_details`, and `extra_content` by the id of its call."""
        returned: dict[str, Any] = {}
        for part in message.parts:
            if isinstance(part, Opaque) and is_theirs(part, self._provider) and isinstance(part.data, dict):
                returned |= cast("dict[str, Any]", part.data)
        return returned


def _file_name(media_type: str) -> str:
    """A name for a file that has none: the API wants one beside the bytes."""
    return f"document{mimetypes.guess_extension(media_type) or ''}"
