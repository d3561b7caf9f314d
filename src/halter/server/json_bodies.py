"""Bodies in JSON, checked before a route reads them: what could not be stored, or shown again, is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, cast

from fastapi import HTTPException
from starlette.requests import Request

DEEPEST = 100  # levels of lists and objects
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class JsonRequest(Request):
    """A request whose JSON is of bounded depth, and all of whose text is Unicode."""

    async def json(self) -> Any:
        """The body. Raises `HTTPException` 422 for text that is not Unicode, and for too many levels."""
        data = await self.body()
        try:
            value = await super().json()
        except RecursionError:
            raise _too_deep() from None
        if data.count(b"[") + data.count(b"{") > DEEPEST and _depth(value) > DEEPEST:
            raise _too_deep()
        if _SURROGATE.search(data) and not _is_unicode(value):
            raise HTTPException(422, "the body has text that is not Unicode: half of a surrogate pair")
        return value


def _too_deep() -> HTTPException:
    return HTTPException(422, f"the body has more than {DEEPEST} levels of lists and objects")


def _depth(value: Any) -> int:
    """The levels of lists and objects, without recursion."""
    depth, level = 0, [value]
    while inner := [each for outer in level for each in _within(outer)]:
        depth, level = depth + 1, inner
    return depth + any(isinstance(each, list | dict) for each in level)


def _within(value: Any) -> Iterable[Any]:
    """What a list or an object holds; nothing for any other value."""
    if isinstance(value, dict):
        return cast("dict[Any, Any]", value).values()
    return cast("list[Any]", value) if isinstance(value, list) else ()


def _is_unicode(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
