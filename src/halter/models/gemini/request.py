"""A request in the words of Google's Gemini API (https://ai.google.dev/api/generate-content).

1. Roles are `user` and `model`: neighbours with one role are one content, and no content is empty. 2. A call and its
result are sent only together; the result repeats the call's name, and stands in a content without any words. 3. What
only Google understands goes back as it came: a signature on its own part. 4. Thoughts go back only if they are signed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, cast
from urllib.parse import urlsplit

from halter.core.history import paired
from halter.errors import ConfigurationError
from halter.messages import File, Image, Message, Opaque, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from halter.models.calls import arguments_object, told_apart
from halter.models.conversation import attached_to, inline_data, instructions, is_theirs, tool_name
from halter.models.gemini.parts import PROVIDER, fields_of
from halter.models.limits import limits_of
from halter.request import ModelRequest, OnlyTool, OutputSchema, Settings, ToolChoice, ToolSpec
from halter.schemas import in_words

# For calls that no Gemini model has made, or whose signature is lost; Gemini 3 refuses a call without one.
# https://ai.google.dev/gemini-api/docs/thought-signatures
NO_SIGNATURE = "skip_thought_signature_validator"
_EARLIER = re.compile(r"gemini-[12]\b|gemma|learnlm")
# https://ai.google.dev/gemini-api/docs/function-calling#multimodal
_IN_RESULTS = ("image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain")
_PICTURES = {"png": "png", "jpg": "jpeg", "jpeg": "jpeg", "webp": "webp", "gif": "gif", "heic": "heic", "heif": "heif"}

_KNOBS = {
    "max_output_tokens": "maxOutputTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "stop": "stopSequences",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}
SETTINGS = frozenset((*_KNOBS, "reasoning_effort", "reasoning_tokens"))
FAMILY = "gemini"
# Tokens for an effort, where a model knows budgets only: as Google's own OpenAI-compatible server has them
# (https://ai.google.dev/gemini-api/docs/openai).
_BUDGETS = {"minimal": 1024, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 24576}


def gemini_body(request: ModelRequest, *, model: str, address: str) -> dict[str, Any]:
    """The body. `address`: where files lie that are named by their id. Raises `ConfigurationError`."""
    system, messages = instructions(request.messages)
    contents = gemini_contents(messages, model=model, address=address)
    if not contents or (contents[-1]["role"] == "model" and messages[-1].role != "assistant"):
        raise ConfigurationError(f"gemini:{model} needs something to answer: end with a user's message with some text")
    body: dict[str, Any] = {"contents": contents}
    if system:
        body["systemInstruction"] = {"parts": [{"text": system}]}
    body |= _tools(request.tools, request.tool_choice)
    config = _config(request.settings, model) | _output(request.output, model)
    return body | {"generationConfig": config} if config else body


# --- the conversation ---------------------------------------------------------------------------------------


def gemini_contents(messages: Sequence[Message], *, model: str, address: str = "") -> list[dict[str, Any]]:
    """The conversation as the API's contents."""
    names: dict[str, str] = {}
    contents: list[dict[str, Any]] = []
    for message, answered in paired(told_apart(messages).messages):
        match message.role:
            case "assistant":
                names = {call.id: tool_name(call.name) for call in message.tool_calls}
                _add(contents, "model", _answer(message, answered, needs_signature=_is_third(model)))
            case "tool":
                results = [part for part in message.parts if isinstance(part, ToolResult)]
                has_place = _is_third(model)
                _add(contents, "user", [_result(part, names[part.call_id], has_place) for part in results])
                _add(contents, "user", [each for part in results for each in _behind(part, names, has_place, address)])
            case _:
                _add(contents, "user", [sent for part in message.parts for sent in _said(part, address)])
    if contents and contents[0]["role"] == "model":  # the API wants a user to begin
        contents.insert(0, {"role": "user", "parts": [{"text": " "}]})
    return contents


def _add(contents: list[dict[str, Any]], role: str, parts: list[dict[str, Any]]) -> None:
    if (
        parts
        and contents
        and contents[-1]["role"] == role
        and _are_results(contents[-1]["parts"]) == _are_results(parts)
    ):
        contents[-1]["parts"].extend(parts)
    elif parts:
        contents.append({"role": role, "parts": parts})


def _are_results(parts: list[dict[str, Any]]) -> bool:
    return "functionResponse" in parts[0]


def _answer(message: Message, answered: AbstractSet[str], *, needs_signature: bool) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    for part, following in zip(message.parts, (*message.parts[1:], None), strict=True):
        fields = _answered(part, answered, is_interrupted=message.interrupted)
        added = _shape(following, "added")
        if isinstance(part, Reasoning) and not added:
            continue
        if fields is not None:
            sent.append(fields | added)
    if needs_signature:
        _sign(sent)
    return sent


def _answered(part: Part, answered: AbstractSet[str], *, is_interrupted: bool) -> dict[str, Any] | None:
    match part:
        case Text(text) | Refusal(text) if text:
            return {"text": text}
        case Reasoning(text):
            return {"text": text, "thought": True}
        case ToolCall() if part.id in answered:
            return {"functionCall": {"id": part.id, "name": tool_name(part.name), "args": arguments_object(part)}}
        case Opaque() if not is_interrupted:  # of an interrupted answer they may be halves: code without its result
            return _shape(part, "part") or None
        case _:
            return None


def _shape(part: Part | None, name: str) -> dict[str, Any]:
    """What lies in this shape of `parts.py`; empty for any other part."""
    fields = fields_of(part).get(name) if isinstance(part, Opaque) and is_theirs(part, PROVIDER) else None
    return cast("dict[str, Any]", fields) if isinstance(fields, dict) else {}


def _result(result: ToolResult, name: str, has_place: bool) -> dict[str, Any]:
    """`has_place`: the model takes images and documents in a result."""
    response = {"error" if result.is_error else "output": result.content}
    sent: dict[str, Any] = {"id": result.call_id, "name": name, "response": response}
    inside = [_inline(*inline) for part in result.attachments if (inline := _inside(part, has_place))]
    return {"functionResponse": sent | ({"parts": inside} if inside else {})}


def _inside(part: Image | File, has_place: bool) -> tuple[str, str] | None:
    """The media type and the base64 text of what goes into a result; `None`: it goes behind it."""
    inline = inline_data(part) if has_place else None
    return inline if inline is not None and inline[0] in _IN_RESULTS else None


def _behind(result: ToolResult, names: dict[str, str], has_place: bool, address: str) -> list[dict[str, Any]]:
    """The attachments for which a result has no place, as said by the user."""
    parts = [part for part in result.attachments if _inside(part, has_place) is None]
    sent = [each for part in parts for each in _said(part, address)]
    return [{"text": attached_to(result, names[result.call_id])}, *sent] if sent else []


def _is_third(model: str) -> bool:
    """Gemini 3 and later refuse a call without a signature, and take images in results; earlier ones do neither."""
    return _EARLIER.search(model) is None


def _sign(parts: list[dict[str, Any]]) -> None:
    """The first call of a step carries the signature for all of them."""
    first = next((part for part in parts if "functionCall" in part), None)
    if first is not None:
        first.setdefault("thoughtSignature", NO_SIGNATURE)


# --- what a user says ---------------------------------------------------------------------------------------


def _said(part: Part, address: str) -> Iterable[dict[str, Any]]:
    match part:
        case Text(text) if text:
            yield {"text": text}
        case File(id=str(id)):
            yield _fetched(id if "://" in id else f"{address}/{id}", part.media_type)
        case Image() | File():
            inline = inline_data(part)
            yield _fetched(part.url or "", part.media_type) if inline is None else _inline(*inline)
        case _:
            pass


def _inline(media_type: str, data: str) -> dict[str, Any]:
    return {"inlineData": {"mimeType": media_type, "data": data}}


def _fetched(url: str, media_type: str | None) -> dict[str, Any]:
    return {"fileData": {"mimeType": media_type or _picture_at(url), "fileUri": url}}


def _picture_at(url: str) -> str:
    """A picture's media type, which the API wants to know, from how the path ends."""
    _, _, ending = urlsplit(url).path.rpartition(".")
    kind = _PICTURES.get(ending.lower())
    if kind is None:
        raise ConfigurationError(
            "give the Image's media_type: Gemini wants to know it, and the path of its url does not tell it"
        )
    return f"image/{kind}"


# --- tools and settings -------------------------------------------------------------------------------------


def _tools(tools: tuple[ToolSpec, ...], choice: ToolChoice | None) -> dict[str, Any]:
    if not tools:
        return {}
    sent: dict[str, Any] = {"tools": [{"functionDeclarations": [_declaration(tool) for tool in tools]}]}
    config = _calling(choice, is_strict=any(tool.strict for tool in tools))
    return sent | {"toolConfig": {"functionCallingConfig": config}} if config else sent


def _declaration(tool: ToolSpec) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, "parametersJsonSchema": tool.parameters}


def _calling(choice: ToolChoice | None, *, is_strict: bool) -> dict[str, Any]:
    """`VALIDATED` is the API's `AUTO` with arguments that are held to their schema; `ANY` always holds them."""
    match choice:
        case OnlyTool(name):
            return {"mode": "ANY", "allowedFunctionNames": [name]}
        case "required":
            return {"mode": "ANY"}
        case "none":
            return {"mode": "NONE"}
        case _ if is_strict:
            return {"mode": "VALIDATED"}
        case "auto":
            return {"mode": "AUTO"}
        case None:
            return {}


def check_settings(settings: Settings, model: str) -> None:
    """Raises `ConfigurationError` for settings that do not go together."""
    if settings.reasoning_effort is not None and settings.reasoning_tokens is not None:
        raise ConfigurationError(f"gemini:{model} takes reasoning_effort or reasoning_tokens, not both")
    if settings.reasoning_effort == "none" and not limits_of(FAMILY, model).can_stop_reasoning:
        raise ConfigurationError(f"gemini:{model} always thinks: set reasoning_effort to 'minimal' or leave it out")


def _config(settings: Settings, model: str) -> dict[str, Any]:
    config = {_KNOBS[name]: value for name, value in settings.given().items() if name in _KNOBS}
    thinking = _thinking(settings, model)
    return config | {"thinkingConfig": thinking} if thinking else config


def _thinking(settings: Settings, model: str) -> dict[str, Any]:
    """How long to think, and that we want to see it. Gemini 2.5 knows budgets only, Gemini 3 also levels."""
    effort, budget = settings.reasoning_effort, settings.reasoning_tokens
    if effort == "none":
        return {"thinkingBudget": 0}
    if effort is not None and (level := limits_of(FAMILY, model).levels.get(effort)):
        return {"thinkingLevel": level, "includeThoughts": True}
    budget = budget if effort is None else _BUDGETS[effort]
    return {} if budget is None else {"thinkingBudget": budget, "includeThoughts": True}


def _output(output: OutputSchema | None, model: str) -> dict[str, Any]:
    if output is None:
        return {}
    schema = in_words(output.schema, limits_of(FAMILY, model).schemas.not_held)
    return {"responseMimeType": "application/json", "responseJsonSchema": schema}
