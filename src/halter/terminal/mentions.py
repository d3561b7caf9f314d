"""`@file` in what you type: the file goes along with it, text as text and images as images."""

from __future__ import annotations

import re
from pathlib import Path

from halter.errors import UsageError
from halter.messages import File, Image, Message

LONGEST_TEXT = 200_000  # characters of one file
LARGEST_IMAGE = 10_000_000  # bytes
_MENTION = re.compile(r'(?<!\S)@(?:"([^"]+)"|(\S+))')
_IMAGES = {".png", ".jpg", ".jpeg", ".gif", ".webp"}


def message_of(text: str) -> Message:
    """What you said, with the files that it mentions. A word that names no file stays a word.

    Raises `UsageError` for a file that cannot be read, is too large, or is neither text nor a picture.
    """
    found = dict.fromkeys(path for match in _MENTION.finditer(text) if (path := _file(match[1] or match[2])))
    return Message.user(text, *(_attached(path) for path in found))


def _file(name: str) -> Path | None:
    for candidate in (name, name.rstrip(".,;:!?)")):
        try:
            path = Path(candidate).expanduser()
            if path.is_file():
                return path
        except (OSError, ValueError, RuntimeError):
            pass  # no name that a file could have
    return None


def _attached(path: Path) -> str | Image | File:
    try:
        size = path.stat().st_size
        if path.suffix.lower() in _IMAGES:
            if size > LARGEST_IMAGE:
                raise UsageError(f"{path} is larger than {LARGEST_IMAGE:,} bytes")
            return Image(data=path.read_bytes())
        if path.suffix.lower() == ".pdf":
            return File(data=path.read_bytes(), name=path.name)
        with path.open(encoding="utf-8") as file:
            text = file.read(LONGEST_TEXT + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is neither text nor a picture") from error
    if len(text) > LONGEST_TEXT:
        raise UsageError(f"{path} has more than {LONGEST_TEXT:,} characters: name a part of it in words instead")
    return f'\n\n<file path="{path}">\n{text}\n</file>'
