"""What a change makes of a text: exact words replaced, or all of it; decided without touching the file."""

from __future__ import annotations

import re
from itertools import islice

from halter.errors import ToolError
from halter.tools.contents import Contents, check_size

_NUMBERED = re.compile(r"^\d+\t", re.MULTILINE)
MOST_PLACES = 5  # that are named
MOST_REPLACED = 100_000  # places of one edit
LONGEST_COMPARED = 500_000  # characters of a text that is compared without its white space


def edited(seen: bytes | None, path: str, old: str, new: str, all: bool = False) -> bytes:
    """The file with `new` for `old`, which must be there once, or with `all` at least once.

    `seen`: what the file holds, `None` if there is none. Raises `ToolError` that says what to do instead.
    """
    if seen is None:
        raise ToolError(f"there is no {path}: a new file is written with write_file")
    if not old or old == new:
        raise ToolError("old must be some text of the file, and new another one")
    contents = Contents.of(seen, path)
    old, new = _with_its_ends(contents, old, new)
    count = contents.text.count(old)
    if count == 0:
        raise ToolError(f"{path} does not hold this text.{_hint(contents.text, old)}")
    if count > 1 and not all:
        raise ToolError(
            f"{path} holds this text {count} times (in lines {_lines_of(contents.text, old)}): give more of the text "
            "around it, so that it is there once, or all=true for every one"
        )
    if count > MOST_REPLACED:
        raise ToolError(f"{path} holds this text {count:,} times: {MOST_REPLACED:,} are the most that are replaced")
    check_size(len(seen) + count * (contents.size_of(new) - len(old.encode())), path)
    return contents.with_text(contents.text.replace(old, new))


def written(seen: bytes | None, path: str, content: str) -> bytes:
    """The file with this content; if it replaces a text, with that one's byte order mark and line ends."""
    check_size(len(content), path)
    data = _with_ends_of(seen, path, content)
    check_size(len(data), path)
    return data


def _with_ends_of(seen: bytes | None, path: str, content: str) -> bytes:
    if seen is None:
        return content.encode()
    try:
        return Contents.of(seen, path).with_text(content)
    except ToolError:
        return content.encode()  # what it replaces is no text


def _with_its_ends(contents: Contents, old: str, new: str) -> tuple[str, str]:
    """In a text with line ends of several kinds, those that are meant are the ones that are there."""
    if contents.newline != "\n":
        return old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if old in contents.text or "\r\n" not in contents.text:
        return old, new
    return _crlf(old), _crlf(new)


def _crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _hint(text: str, old: str) -> str:
    if _NUMBERED.search(old):
        return " The numbers before the lines, and the tab, are read_file's: leave them out."
    if len(text) < LONGEST_COMPARED and "".join(old.split()) in "".join(text.split()):
        return " But for white space it does: copy it exactly, with its indentation and line ends."
    return " Read the file again, and copy the text exactly."


def _lines_of(text: str, part: str) -> str:
    numbers = (text.count("\n", 0, match.start()) + 1 for match in re.finditer(re.escape(part), text))
    first = list(islice(numbers, MOST_PLACES + 1))
    return ", ".join(map(str, first[:MOST_PLACES])) + (", …" if len(first) > MOST_PLACES else "")
