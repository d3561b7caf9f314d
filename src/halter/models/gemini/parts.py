"""What of an answer only Google understands, as data of an `Opaque`: one of three shapes.

`Added`: more fields of the part right before it, a thought signature above all. `Kept`: a part of another kind than
text, thought or function call. `Facts`: what is known about the answer (grounding, citations); it is never sent.
"""

from __future__ import annotations

from typing import Any, TypedDict, cast

from halter.messages import Opaque

PROVIDER = "gemini"  # signatures are Google's, whatever the address


class Added(TypedDict):
    added: dict[str, Any]


class Kept(TypedDict):
    part: dict[str, Any]


class Facts(TypedDict):
    facts: dict[str, Any]


def fields_of(part: Opaque) -> dict[str, Any]:
    """The fields of its data; none for data of another shape."""
    return cast("dict[str, Any]", part.data) if isinstance(part.data, dict) else {}
