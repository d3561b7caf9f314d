"""How values lie in columns: any text in databases that do not take every character, and data as JSON.

PostgreSQL refuses NUL in text, and neither database takes a lone surrogate, which tools and models do come up with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa

from halter.errors import SessionsUnavailable

T = TypeVar("T")

_TROUBLE = re.compile("[\\\\\0\t\n\ud800-\udfff]")
_ESCAPED = re.compile(r"\\(\\|0|t|n|u[0-9a-f]{4})")
_SHORT = {"\\": "\\\\", "\0": "\\0", "\t": "\\t", "\n": "\\n"}
_LONG = {short[1:]: sign for sign, short in _SHORT.items()}


def escaped(text: str) -> str:
    """The text without NUL, tabs, line ends and lone surrogates. `unescaped` gives it back."""
    return _TROUBLE.sub(lambda found: _SHORT.get(found[0]) or f"\\u{ord(found[0]):04x}", text)


def as_text(value: str | bytes) -> str:
    """What lies in a column of text, also where it is damaged: SQLite's may hold bytes, which are no text of ours."""
    return value if isinstance(value, str) else f"\ufffd{value.decode(errors='replace')}"


def utf8_or_bytes(data: bytes) -> str | bytes:
    """What SQLite holds as text. For bytes that are none, its driver would refuse all rows that are asked for."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: _LONG.get(found[1]) or chr(int(found[1][1:], 16)), text)


class AnyText(sa.types.TypeDecorator[str]):
    """Text with any characters."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        return None if value is None else escaped(value)

    def process_result_value(self, value: str | bytes | None, dialect: sa.Dialect) -> str | None:
        text = None if value is None else as_text(value)
        return unescaped(text) if text is not None and "\\" in text else text


def tag_part(tag: str) -> str:
    """What a column of `Tags` has in it if it has this tag."""
    return f"\n{escaped(tag)}\t"


class Tags(sa.types.TypeDecorator[Sequence[str]]):
    """Several texts as one, each between two signs that no escaped text has: `tag_part` is how one is found in it."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Sequence[str] | None, dialect: sa.Dialect) -> str:
        return "".join(map(tag_part, value or ()))

    def process_result_value(self, value: str | bytes | None, dialect: sa.Dialect) -> tuple[str, ...]:
        return tuple(unescaped(tag) for tag in as_text(value)[1:-1].split("\t\n")) if value else ()


def packed(value: object) -> bytes:
    """As JSON."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # a lone surrogate: JSON has an escape for it, which msgspec neither writes nor reads
        return json.dumps(msgspec.to_builtins(value, str_keys=True)).encode()


def packed_data(value: Any) -> bytes:
    """Data of any shape as JSON; as Python writes it where there is a number that msgspec would make `null` of: NaN and
    the infinities."""
    data = packed(value)
    return data if b"null" not in data else json.dumps(value).encode()


class Unreadable(SessionsUnavailable):
    """Stored bytes are not what they should be. Those who know which row it is name it, or go on without it."""

    def __init__(self, why: str) -> None:
        super().__init__(why, retryable=False)


def unpacked(data: bytes, given: type[T]) -> T:
    """JSON as `packed` has written it. Raises `Unreadable` if it is nothing of that type."""
    try:
        return msgspec.json.decode(data, type=given)
    except (TypeError, ValueError, RecursionError):  # SQLite's columns may also hold what are no bytes
        pass
    try:
        return msgspec.convert(json.loads(data), given)
    except (TypeError, ValueError, RecursionError) as error:
        name = getattr(given, "__name__", str(given))
        raise Unreadable(f"it is no {name}: {error}".encode(errors="replace").decode()) from error


def unpacked_all(rows: Iterable[bytes], given: type[T]) -> tuple[T, ...]:
    """Many at once: as one list, which is several times faster than one by one."""
    data = list(rows)
    try:
        return msgspec.json.decode(b"[" + b",".join(data) + b"]", type=tuple[given, ...])  # pyright: ignore[reportInvalidTypeForm]
    except (TypeError, ValueError, RecursionError):
        return tuple(unpacked(row, given) for row in data)


def read_text(stored: Any) -> None:
    """Raises `Unreadable` for what does not lie in a column as `AnyText` writes it: it is not found by its value."""
    if stored is not None and (not isinstance(stored, str) or escaped(unescaped(stored)) != stored):
        raise Unreadable(f"{as_text(stored) if isinstance(stored, str | bytes) else stored!r} is no text of ours")


def read_number(stored: Any) -> Any:
    """The number. Raises `Unreadable`: SQLite's columns may hold anything."""
    if not isinstance(stored, int | float):
        raise Unreadable(f"{type(stored).__name__} is no number")
    return stored


def any_json(data: bytes | None) -> Any:
    """JSON of any shape; `None` where there is none."""
    return None if data is None else unpacked(data, object)
