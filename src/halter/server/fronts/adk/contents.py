"""ADK's contents (those of the Gemini API) as messages, and messages as contents."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, cast

import msgspec

from halter.messages import File, Image, Message, Part, Reasoning, Refusal, Text, ToolCall, ToolResult, Usage
from halter.server.fronts.adk.bodies import BlobBody, ContentBody, EventBody, FileBody, PartBody, ResponseBody
from halter.server.problems import Problem

Json: TypeAlias = dict[str, Any]
# Fields of a part that say something about it, and may be ignored.
_ABOUT = frozenset(
    (
        *("thoughtSignature", "thought_signature", "videoMetadata", "video_metadata"),
        *("mediaResolution", "media_resolution", "partMetadata", "part_metadata"),
    )
)
_FETCHED = ("https://", "http://", "gs://")  # by the provider; a file would be one of the model's own machine
_FINISHED = {
    **dict.fromkeys(("stop", "end_turn", "stop_sequence", "tool_calls", "tool_use", "completed"), "STOP"),
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens"), "MAX_TOKENS"),
    **dict.fromkeys(("content_filter", "refusal", "safety"), "SAFETY"),
}


# --- from clients -------------------------------------------------------------------------------------------


def answers_in(content: ContentBody) -> list[ResponseBody]:
    """The answers to questions that a message brings. Raises `Problem` 400 for one that says something else as well."""
    answers = [part.function_response for part in content.parts if part.function_response is not None]
    if answers and len(answers) < len(content.parts):
        raise _bad("a message with a functionResponse has no other parts: send the text as a message of its own")
    return answers


def user_message(content: ContentBody) -> Message:
    """What the user says. Raises `Problem` 400 if it is nothing, 501 for audio and other kinds that are left out."""
    if (content.role or "user") != "user":
        raise _bad(f"the role of a new message must be 'user', not {content.role!r}")
    if not content.parts:
        raise _bad("the new message has no parts")
    return Message("user", tuple(map(_user_part, content.parts)))


def _user_part(part: PartBody) -> Part:
    if part.text is not None:
        return Text(part.text)
    if part.inline_data is not None:
        return _inline(part.inline_data)
    if part.file_data is not None:
        return _linked(part.file_data)
    kinds = ["functionCall"] if part.function_call else [name for name in part.model_extra or () if name not in _ABOUT]
    if not kinds:
        raise _bad("a part of the message is empty")
    detail = f"parts of the kind {kinds[0]!r} are not supported in a message of the user"
    raise Problem(501, detail, code="unsupported")


def _inline(blob: BlobBody) -> Part:
    kind = blob.mime_type.partition(";")[0].strip().lower()
    _refuse_sound(kind)
    try:  # clients send both alphabets, with and without padding
        plain = blob.data.replace("-", "+").replace("_", "/").rstrip("=")
        data = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise _bad(f"the inlineData of a part is no base64: {error}") from error
    if kind.startswith("image/"):
        return Image(data=data, media_type=kind)
    if kind == "text/plain":
        return Text(data.decode("utf-8", "replace"))
    return File(data=data, name=blob.display_name, media_type=kind)


def _linked(file: FileBody) -> Part:
    if not file.file_uri.lower().startswith(_FETCHED):
        raise _bad(f"a fileUri must be an https: or gs: URI, not {file.file_uri[:40]!r}")
    kind = (file.mime_type or "application/pdf").partition(";")[0].strip().lower()
    _refuse_sound(kind)
    if kind.startswith("image/"):
        return Image(url=file.file_uri, media_type=kind)
    return File(url=file.file_uri, name=file.display_name, media_type=kind)


def _refuse_sound(kind: str) -> None:
    if kind.partition("/")[0] in ("audio", "video"):
        raise Problem(501, f"{kind} is not supported: send text, images or documents", code="unsupported")


def restored(events: Iterable[EventBody]) -> tuple[Message, ...]:
    """The messages of a conversation that a client brings along.

    Raises `Problem` 400 for events that claim more than to have been said, as ADK does.
    """
    said: list[Message] = []
    for place, event in enumerate(events):
        if event.long_running_tool_ids or any((event.actions or {}).values()):
            raise _bad(f"event {place} of a new session cannot include actions or long-running tool ids")
        if event.content is not None and event.content.parts and not event.partial:
            said.append(_restored(event.content, by_user=event.author == "user"))
    return tuple(said)


def _restored(content: ContentBody, *, by_user: bool) -> Message:
    if answers := answers_in(content):
        return Message("tool", tuple(ToolResult(each.id or each.name, _text_of(each.response)) for each in answers))
    if by_user or content.role == "user":
        return user_message(content.model_copy(update={"role": "user"}))
    return Message("assistant", tuple(map(_model_part, content.parts)))


def _model_part(part: PartBody) -> Part:
    if part.function_call is not None:
        call = part.function_call
        return ToolCall(call.id or call.name, call.name, msgspec.json.encode(call.args).decode())
    if part.thought and part.text is not None:
        return Reasoning(part.text)
    return _user_part(part)


def _text_of(response: Json) -> str:
    if response.keys() == {"result"} and isinstance(response["result"], str):
        return response["result"]
    return msgspec.json.encode(response).decode()


def _bad(detail: str) -> Problem:
    return Problem(400, detail, code="invalid")


# --- to clients ---------------------------------------------------------------------------------------------


def _parts(message: Message, calls: Mapping[str, str]) -> list[Json]:
    """The message's parts as ADK shows them.

    Calls of a message that was cut off are left out: they never ran. So are parts that only a provider understands.
    """
    found: list[Json] = []
    for part in message.parts:
        match part:
            case Text() | Refusal():
                found.append({"text": part.text})
            case Reasoning():
                found.append({"text": part.text, "thought": True})
            case ToolCall() if not message.interrupted:
                found.append({"functionCall": call_json(part)})
            case ToolResult():
                name = calls.get(part.call_id, part.call_id)
                found.append(response_part(part.call_id, name, part.content, is_error=part.is_error))
            case Image() | File() if part.data is not None:
                data = base64.b64encode(part.data).decode()
                found.append({"inlineData": {"data": data, "mimeType": part.media_type}})
            case Image() | File() if part.url is not None:
                about = {"mimeType": part.media_type} if part.media_type else {}
                found.append({"fileData": {"fileUri": part.url, **about}})
            case _:
                pass
    return [part for part in found if part.get("text") != ""]


def message_fields(message: Message, calls: Mapping[str, str]) -> Json:
    """The fields of the event that shows this message. `calls`: the names of earlier calls by their ids."""
    role = "model" if message.role == "assistant" else "user"
    fields: Json = {"content": {"parts": _parts(message, calls), "role": role}}
    if (reason := _finish(message.finish_reason)) is not None:
        fields["finishReason"] = reason
    if message.interrupted:
        fields["interrupted"] = True
    if message.usage is not None:
        fields["usageMetadata"] = _usage(message.usage)
    if message.model is not None:
        fields["modelVersion"] = message.model
    return fields


def call_json(call: ToolCall) -> Json:
    """A call; arguments that are no JSON object are shown as text."""
    try:
        read = msgspec.json.decode(call.arguments or "{}")
    except msgspec.DecodeError:
        read = None
    args = cast("Json", read) if isinstance(read, dict) else {"arguments": call.arguments}
    return {"id": call.id, "args": args, "name": call.name}


def response_part(id: str, name: str, result: Any, *, is_error: bool) -> Json:
    """What came of a call, wrapped as ADK wraps what is no mapping."""
    if is_error:
        response: Json = {"error": result}
    elif isinstance(result, dict):
        response = cast("Json", result)
    else:
        response = {"result": result}
    return {"functionResponse": {"id": id, "name": name, "response": response}}


def _usage(usage: Usage) -> Json:
    """Tokens; the thoughts are not among the candidates, as in the Gemini API."""
    counts = {
        "cachedContentTokenCount": usage.cached,
        "candidatesTokenCount": max(0, usage.output - usage.reasoning),
        "promptTokenCount": usage.input,
        "thoughtsTokenCount": usage.reasoning,
        "totalTokenCount": usage.total,
    }
    optional = ("cachedContentTokenCount", "thoughtsTokenCount")
    return {name: count for name, count in counts.items() if count or name not in optional}


def _finish(reason: str | None) -> str | None:
    """The Gemini API's word for why an answer ended; `None` where it has none."""
    return _FINISHED.get(reason.lower()) if reason else None
