"""A conversation as the turns of Anthropic's messages (https://platform.claude.com/docs/en/api/messages).

The API refuses what does not fit, so nothing of this is sent: 1. an empty message, or text of nothing but white space;
2. thinking without the signature that makes it the provider's own, or after which nothing was said; 3. a call without
its result in the very next turn, or the reverse, and the same of tools that the provider runs; 4. an id that another
call has; 5. white space at the end of an answer to be continued. Messages of one side that follow each other are one
turn, results first in it.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import takewhile
from typing import Any, TypeAlias, cast

from halter.core.history import paired
from halter.errors import ConfigurationError
from halter.messages import File, Image, Message, Opaque, Refusal, Text, ToolCall, ToolResult
from halter.models.calls import arguments_object, short, told_apart
from halter.models.conversation import inline_data, tool_name

Block: TypeAlias = dict[str, Any]
Turn: TypeAlias = dict[str, Any]

_NOT_IN_AN_ID = re.compile(r"[^a-zA-Z0-9_-]")
_TOOL_USES = frozenset(("server_tool_use", "mcp_tool_use"))  # tools that the provider runs itself
THOUGHTS = frozenset(("thinking", "redacted_thinking"))
_IN_PROGRESS = frozenset(("pause_turn", "tool_use"))
_PICTURES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def turns_of(messages: Sequence[Message], provider: str) -> list[Turn]:
    """The conversation without its instructions. `provider`: whose `Opaque` parts go back.

    Raises `ConfigurationError` for a picture or a file that the API does not take.
    """
    pending = _in_progress(messages, provider)
    told = told_apart(messages, _id).messages
    turns = _joined((_side(message), _blocks(message, provider, answered)) for message, answered in paired(told))
    _drop_unpaired_uses(turns, pending)
    _drop_last_thoughts(turns)
    turns = _joined((turn["role"], turn["content"]) for turn in turns)
    return _without_trailing_space(turns)


def _side(message: Message) -> str:
    return "assistant" if message.role == "assistant" else "user"


def _joined(parts: Iterator[tuple[str, list[Block]]]) -> list[Turn]:
    turns: list[Turn] = []
    for role, blocks in parts:
        blocks = [block for block in blocks if block["type"] != "text" or str(block.get("text")).strip()]
        if not blocks:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    for turn in turns:
        turn["content"].sort(key=_is_no_answer)
    return turns


def _is_no_answer(block: Block) -> bool:
    return block["type"] != "tool_result"


# --- parts ⇄ blocks -----------------------------------------------------------------------------------------


def _blocks(message: Message, provider: str, answered: AbstractSet[str]) -> list[Block]:
    if message.role == "assistant":
        return _answer_blocks(message, provider, answered)
    return [block for part in message.parts if (block := _block(part)) is not None]


def _answer_blocks(message: Message, provider: str, answered: AbstractSet[str] = frozenset()) -> list[Block]:
    blocks: list[Block] = []
    for part in message.parts:
        match part:
            case Text(text) | Refusal(text):
                blocks.append({"type": "text", "text": text})
            case ToolCall() if part.id in answered:
                blocks.append(_call(part))
            case Opaque(mark, data) if mark == provider and isinstance(data, dict):
                _add(blocks, cast("Block", data))
            case _:
                pass  # thinking goes back signed, in its `Opaque`, or not at all
    return blocks


def _add(blocks: list[Block], data: Block) -> None:
    """A whole block, or more fields for the one before it."""
    if isinstance(data.get("type"), str):
        blocks.append(data)
    elif blocks and "container" not in data:
        blocks[-1] = blocks[-1] | data


def _call(call: ToolCall) -> Block:
    return {"type": "tool_use", "id": call.id, "name": tool_name(call.name), "input": arguments_object(call)}


def _id(id: str) -> str:
    """The id in the letters that the API takes: other providers' calls may have others."""
    return short(_NOT_IN_AN_ID.sub("_", id))


def _block(part: object) -> Block | None:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Image():
            return {"type": "image", "source": _image_source(part)}
        case File():
            return {"type": "document", "source": _file_source(part)} | ({"title": part.name} if part.name else {})
        case ToolResult():
            return _result(part)
        case _:
            return None


def _result(result: ToolResult) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": result.call_id}
    content = result.content if result.content.strip() else "failed" if result.is_error else ""
    if result.attachments and not result.is_error:  # a failure may have text alone
        said = [{"type": "text", "text": content}] if content else []
        return block | {"content": [*said, *filter(None, map(_block, result.attachments))]}
    block |= {"content": content} if content else {}
    return block | ({"is_error": True} if result.is_error else {})


def _image_source(image: Image) -> Block:
    inline = inline_data(image)
    if inline is None:
        return {"type": "url", "url": image.url}
    kind, data = inline
    if kind not in _PICTURES:
        raise ConfigurationError(f"Anthropic reads {', '.join(_PICTURES)}, not {kind or 'an unknown kind'}: convert it")
    return {"type": "base64", "media_type": kind, "data": data}


def _file_source(file: File) -> Block:
    if file.id is not None:
        return {"type": "file", "file_id": file.id}
    inline = inline_data(file)
    if inline is None:
        return {"type": "url", "url": file.url}
    kind, data = inline
    if kind == "application/pdf":
        return {"type": "base64", "media_type": kind, "data": data}
    if kind.startswith("text/"):
        return {"type": "text", "media_type": "text/plain", "data": _text_of(data)}
    raise ConfigurationError(f"Anthropic reads PDF and text files, not {kind}: upload it, and give its id")


def _text_of(data: str) -> str:
    try:
        return b64decode(data).decode("utf-8", "replace")
    except ValueError:
        raise ConfigurationError("a File's data: URL is not in base64") from None


# --- calls and results --------------------------------------------------------------------------------------


def _drop_unpaired_uses(turns: list[Turn], pending: set[str]) -> None:
    """The same of the provider's own tools: call and result are blocks of answers, not always of the same one."""
    answers = [turn for turn in turns if turn["role"] == "assistant"]
    uses = {str(block.get("id")) for turn in answers for block in turn["content"] if _is_use(block)}
    results = {str(block.get("tool_use_id")) for turn in answers for block in turn["content"] if _is_result(block)}
    for turn in answers:
        turn["content"] = [
            block
            for block in turn["content"]
            if not (_is_use(block) and str(block.get("id")) not in results | pending)
            and not (_is_result(block) and str(block.get("tool_use_id")) not in uses)
        ]


def _is_use(block: Block) -> bool:
    return block["type"] in _TOOL_USES


def _is_result(block: Block) -> bool:
    return block["type"].endswith("_tool_result")


def _in_progress(messages: Sequence[Message], provider: str) -> set[str]:
    """The tools that the provider is still running: those of an answer that it has paused, and will go on with."""
    last = next((message for message in reversed(messages) if message.role != "tool"), None)
    if last is None or last.role != "assistant" or last.interrupted or last.finish_reason not in _IN_PROGRESS:
        return set()
    return {str(block.get("id")) for block in _answer_blocks(last, provider) if _is_use(block)}


# --- the end ------------------------------------------------------------------------------------------------


def _drop_last_thoughts(turns: list[Turn]) -> None:
    """What a stop leaves when it comes between thinking and speaking."""
    for turn in turns:
        while turn["content"] and turn["content"][-1]["type"] in THOUGHTS:
            turn["content"].pop()


def goes_on_without_thinking(turns: Sequence[Turn]) -> bool:
    """Whether the answer that is to be gone on with, calls and results included, has begun without signed thinking.

    The API refuses a budget for thinking then: https://platform.claude.com/docs/en/build-with-claude/extended-thinking
    """
    answers = [turn for turn in takewhile(_is_open, reversed(turns)) if turn["role"] == "assistant"]
    return bool(answers) and all(turn["content"][0]["type"] not in THOUGHTS for turn in answers)


def _is_open(turn: Turn) -> bool:
    return turn["role"] == "assistant" or not _is_no_answer(turn["content"][0])


def _without_trailing_space(turns: list[Turn]) -> list[Turn]:
    """An answer at the end is one to be continued; its last words must not end with white space."""
    last = turns[-1] if turns else None
    if last is not None and last["role"] == "assistant" and last["content"][-1]["type"] == "text":
        block = last["content"][-1]
        last["content"][-1] = block | {"text": block["text"].rstrip()}
    return turns
