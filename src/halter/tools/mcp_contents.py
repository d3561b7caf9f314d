"""The content blocks of an MCP server, as texts and attachments of a tool's value.

Pictures that a model can see, and PDF files, become attachments. Anything else that is no text is named: never base64.
Source: https://modelcontextprotocol.io/specification/2025-06-18/server/tools (tool result)
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterable
from typing import Any, TypeAlias

import msgspec

from halter.errors import ConfigurationError
from halter.messages import File, Image

LARGEST = 5_000_000  # bytes of one attachment; no provider takes larger images
MOST = 16  # attachments of one result
Shown: TypeAlias = "str | Image | File"


def parts_of(result: Any) -> list[Shown]:
    """A call's result: its content, or where it has none, its structured content as JSON."""
    if not result.content and result.structured_content is not None:
        return [msgspec.json.encode(result.structured_content).decode()]
    return shown(result.content)


def shown(blocks: Iterable[Any]) -> list[Shown]:
    """The blocks as texts and attachments, in their order."""
    found: list[Shown] = []
    attached = 0
    for block in blocks:
        part = _part(block)
        if not isinstance(part, str):
            attached += 1
            if attached > MOST:
                part = f"(an attachment is left out: more than {MOST})"
        found.append(part)
    return found


def text_of(parts: Iterable[Shown]) -> str:
    """The texts alone, in lines."""
    return "\n".join(part for part in parts if isinstance(part, str))


def value_of(parts: list[Shown]) -> str | list[Shown]:
    """The parts as the value of a tool: a text where they are all texts."""
    return text_of(parts) if all(isinstance(part, str) for part in parts) else parts


def _part(block: Any) -> Shown:
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            return _binary(block.data, block.mime_type, f"{block.type} {block.mime_type}")
        case "resource":
            return resource_part(block.resource)
        case "resource_link":
            about = " — ".join(filter(None, (block.title or block.name, block.description)))
            return f"(resource {block.uri}: {about})"
        case other:
            return f"({other})"


def resource_part(resource: Any) -> Shown:
    """What a resource contains: its text under its address, or an attachment."""
    text = getattr(resource, "text", None)
    if text is not None:
        return f"({resource.uri})\n{text}"
    return _binary(
        resource.blob, resource.mime_type or "", f"resource {resource.uri} {resource.mime_type or ''}".strip()
    )


def _binary(data: str, media_type: str, about: str) -> Shown:
    """`media_type`: as the server says; a picture's is found from its bytes, since a wrong one fails every request."""
    size = len(data) * 3 // 4
    if size > LARGEST:
        return f"({about}: {size:,} bytes, not shown: more than {LARGEST:,})"
    try:
        decoded = b64decode(data, validate=False)
    except (binascii.Error, ValueError):
        return f"({about}: not shown: it is no base64)"
    if media_type == "application/pdf" and decoded.startswith(b"%PDF"):
        return File(data=decoded, media_type=media_type)
    try:
        return Image(data=decoded)
    except ConfigurationError:  # no picture that models can see
        return f"({about}: {len(decoded):,} bytes, not shown)"
