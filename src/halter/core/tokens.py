"""How many tokens a text is, estimated: for what a provider has not counted. Pure, and without a vocabulary.

A text is reduced to its shape, one byte for each character; a token more or less is due to each of a few patterns in
it. The costs are a least-squares fit to the mean of two real vocabularies (OpenAI's o200k and Mistral's Tekken) over
prose, code, JSON, licences and eighteen languages. Nine in ten stretches of 500 characters of English and code are
within 15 % of that mean; other languages and scripts, and very short texts, can be further off.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import Final

import msgspec

from halter.messages import File, Image, Message, Opaque, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from halter.request import ModelRequest, ToolSpec

MESSAGE: Final = 4  # tokens around each message of a request (OpenAI's cookbook; others are close)
CALL: Final = 12  # tokens around a tool call's name and arguments: 7 (Gemini) to 20 (OpenAI) in recorded answers
TOOL: Final = 12  # tokens around a tool's definition
IMAGE: Final = 1_000  # a picture of about a megapixel: OpenAI 765, Gemini 1,032 (four tiles), Anthropic 1,334
FILE: Final = 3_000  # a document of which only its provider knows the length: about two pages
SAMPLED: Final = 64_000  # characters: about a millisecond
PLACES: Final = 16
PAGE: Final = 50_000  # bytes of a document's page with its fonts, a rough mean
MOST_OF_A_CHARACTER: Final = 3.1  # tokens: an emoji's
PAGE_TOKENS: Final = 1_500  # Anthropic: 1,500 to 3,000 a page; Gemini: 258 and the text

# The patterns of a shape and what each is worth. Of a word, its beginning and each four letters cost.
_COSTS: Final[tuple[tuple[bytes, float], ...]] = (
    (b" a", 0.59),
    (b".a", 0.94),
    (b"0a", 0.69),
    (b"aaaa", 0.68),
    (b"A", 0.37),
    (b"aA", 0.30),
    (b"0", 0.75),
    (b".0", 1.30),
    (b".", 0.14),
    (b". ", 0.93),
    (b" .", 0.44),
    (b"  ", 0.05),
    (b"\n", 0.90),
    (b"e", 0.94),
    (b"y", 0.31),
    (b"r", 0.36),
    (b"i", 0.40),
    (b"s", 1.04),
    (b"k", 0.59),
    (b"z", 0.92),
    (b"g", 0.67),
    (b"m", 3.04),
)


def _shapes() -> bytes:
    """What each byte of UTF-8 stands for in a shape: the kind of its character. Bytes that continue one are dropped."""
    kinds = bytearray(b"." * 256)
    for kind, first, last in (
        ("a", 0x61, 0x7A),
        ("A", 0x41, 0x5A),
        ("0", 0x30, 0x39),
        (" ", 0x20, 0x20),
        (" ", 0x09, 0x09),
        ("\n", 0x0A, 0x0D),
        ("e", 0xC2, 0xCD),  # Latin with accents
        ("y", 0xCE, 0xD4),  # Greek, Cyrillic
        ("r", 0xD5, 0xDF),  # Hebrew, Arabic
        ("i", 0xE0, 0xE1),  # Indic, Thai, and Latin with two accents
        ("s", 0xE2, 0xE2),  # typographic signs, arrows, box drawing
        ("k", 0xE3, 0xE3),  # kana
        ("z", 0xE4, 0xE9),  # Han
        ("g", 0xEA, 0xED),  # Hangul
        ("s", 0xEE, 0xEF),  # full-width forms
        ("m", 0xF0, 0xFF),  # emoji
    ):
        kinds[first : last + 1] = kind.encode() * (last + 1 - first)
    return bytes(kinds)


_SHAPES: Final = _shapes()
_CONTINUED: Final = bytes(range(0x80, 0xC0))


def estimate_tokens(text: str) -> int:
    """About how many tokens these characters are; 0 for none. Some ten nanoseconds for a character.

    A text above `SAMPLED` characters is looked at in places: a stop does not wait for ten megabytes to be read.
    """
    if len(text) <= SAMPLED:
        return ceil(_worth(text)) if text else 0
    stretch = SAMPLED // PLACES
    starts = range(0, len(text) - stretch + 1, (len(text) - stretch) // (PLACES - 1))
    sample = [text[start : start + stretch] for start in starts]
    return ceil(sum(map(_worth, sample)) * len(text) / (stretch * len(sample)))


def _worth(text: str) -> float:
    shape = text.encode("utf-8", "surrogatepass").translate(_SHAPES, _CONTINUED)
    return max(0.3, sum(shape.count(pattern) * cost for pattern, cost in _COSTS))


# --- messages -----------------------------------------------------------------------------------------------


def estimate_input(messages: Iterable[Message], tools: Iterable[ToolSpec] = ()) -> int:
    """About how many tokens a request of these is. Pictures and documents count as flat, see `IMAGE` and `FILE`."""
    said = sum(MESSAGE + estimate_parts(message.parts) for message in messages)
    return said + sum(map(_tool_tokens, tools))


def estimate_request(request: ModelRequest) -> int:
    """About how many input tokens a request is."""
    shape = 0 if request.output is None else estimate_tokens(_json(request.output.schema))
    return estimate_input(request.messages, request.tools) + shape


def most_tokens(request: ModelRequest) -> int:
    """No estimate of this request is larger, and mostly it is far smaller; looked at are lengths alone."""
    shape = 0 if request.output is None else len(_json(request.output.schema))
    tools = sum(TOOL + 4 * (len(tool.name + tool.description + _json(tool.parameters)) + 1) for tool in request.tools)
    said = sum(MESSAGE + sum(map(_most_of, message.parts)) for message in request.messages)
    return said + tools + 4 * shape


def _most_of(part: Part) -> int:
    match part:
        case Text(text) | Refusal(text) | Reasoning(text):
            return 1 + ceil(MOST_OF_A_CHARACTER * len(text))
        case ToolCall(_, name, arguments):
            return CALL + 1 + ceil(MOST_OF_A_CHARACTER * len(name + arguments))
        case ToolResult():
            attached = sum(map(_part_tokens, part.attachments))
            return MESSAGE + 1 + ceil(MOST_OF_A_CHARACTER * len(part.content)) + attached
        case _:
            return _part_tokens(part)


def estimate_parts(parts: Iterable[Part]) -> int:
    """About how many tokens these parts are, as shown. What only its provider understands counts as nothing."""
    return sum(map(_part_tokens, parts))


def _part_tokens(part: Part) -> int:
    match part:
        case Text(text) | Refusal(text) | Reasoning(text):
            return estimate_tokens(text)
        case ToolCall(_, name, arguments):
            return CALL + estimate_tokens(name + arguments)
        case ToolResult():
            return MESSAGE + estimate_tokens(part.content) + sum(map(_part_tokens, part.attachments))
        case Image():
            return IMAGE
        case File():
            return FILE if part.data is None else _document_tokens(part)
        case Opaque():
            return 0


def _document_tokens(file: File) -> int:
    data = file.data or b""
    if file.media_type.startswith("text/") or file.media_type == "application/json":
        return estimate_tokens(data.decode("utf-8", "replace"))
    return PAGE_TOKENS * max(1, round(len(data) / PAGE))


def _tool_tokens(tool: ToolSpec) -> int:
    return TOOL + estimate_tokens(f"{tool.name} {tool.description}") + estimate_tokens(_json(tool.parameters))


def _json(schema: object) -> str:
    try:
        return msgspec.json.encode(schema, enc_hook=str).decode("utf-8", "replace")
    except UnicodeEncodeError:  # half a surrogate pair in somebody's text, which adapters replace
        return str(schema)
