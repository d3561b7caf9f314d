"""JSON as providers write it: with `NaN`, halves of surrogate pairs, and bytes that are no UTF-8.

The strict decoder is the path of every good frame; this one is for the rest, and slow.
"""

from __future__ import annotations

import json
from typing import Any, cast

from halter.shown import well_formed


def read_json(data: bytes) -> Any:
    """The value. What is no text becomes U+FFFD, as WHATWG wants it of a stream. Raises `ValueError`."""
    try:
        return without_lone_surrogates(json.loads(data.decode("utf-8-sig", "replace")))
    except RecursionError:
        raise ValueError("the value is nested too deeply") from None


def without_lone_surrogates(value: Any) -> Any:
    """The value with U+FFFD for each half of a surrogate pair: no encoder takes those."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list):
        return [without_lone_surrogates(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return {without_lone_surrogates(key): without_lone_surrogates(item) for key, item in pairs}
    return value
