"""Images and files that a tool returns: taken out of its value, and named in its text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

from halter.errors import ConfigurationError, ToolError
from halter.messages import File, Image
from halter.shown import message_of

MOST_BYTES = 20_000_000  # of all attachments of one result; no provider takes larger requests inline
Attachment: TypeAlias = Image | File
Takes: TypeAlias = Callable[[Attachment], None]


def told(value: Any, text: Callable[[Any], str], takes: Takes | None = None) -> tuple[str, tuple[Attachment, ...]]:
    """The text and the attachments that a model gets of a tool's value.

    Args:
        value: The value that the tool returned: an image or a file, a list or tuple with some, or anything else.
        text: Makes text of a value that is no attachment.
        takes: Raises `ConfigurationError` for an attachment that the model refuses: the text then says why.

    Raises:
        ToolError: The attachments have more than 20 MB, or the model refuses all of them and there is nothing else.
    """
    parts: list[Any] = []
    if isinstance(value, Image | File):
        parts = [value]
    elif isinstance(value, list | tuple) and any(isinstance(part, Image | File) for part in cast("list[Any]", value)):
        parts = list(cast("list[Any]", value))
    if not parts:
        return text(value), ()
    lines: list[str] = []
    attached: list[Attachment] = []
    for part in parts:
        if not isinstance(part, Image | File):
            lines.append(text(part))
        elif (refusal := _refusal(part, takes)) is None:
            attached.append(part)
            lines.append(f"[attached: {_named(part)}]")
        elif len(parts) == 1:
            raise ToolError(f"The tool returned what cannot be sent to you: {refusal}.")
        else:
            lines.append(f"[not shown: {_named(part)}: {refusal}]")
    size = sum(len(part.data or b"") for part in attached)
    if size > MOST_BYTES:
        raise ToolError(f"The tool returned images or files of {size:,} bytes: at most {MOST_BYTES:,} can be sent.")
    return text("\n".join(lines)), tuple(attached)


def _refusal(part: Attachment, takes: Takes | None) -> str | None:
    try:
        if takes is not None:
            takes(part)
    except ConfigurationError as error:
        return message_of(error)
    return None


def _named(part: Attachment) -> str:
    name = part.name if isinstance(part, File) else None
    size = None if part.data is None else f"{len(part.data):,} bytes"
    return ", ".join(filter(None, (name, part.media_type, size))) or "by address"
