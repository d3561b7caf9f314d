"""What Google's servers add to an error (https://google.aip.dev/193): a canonical word, and when to ask again."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from halter.models.lenient_json import read_json

BAD_KEY = "API_KEY_INVALID"


class Status(msgspec.Struct, frozen=True):
    """`word`: as `RESOURCE_EXHAUSTED`. `retry_after`: seconds. `reason`: where it says more than the word."""

    word: str | None = None
    retry_after: float | None = None
    reason: str | None = None


def read_status(body: bytes) -> Status:
    """What an error body says, also inside a list; what it does not say is `None`."""
    try:
        value = read_json(body)
    except ValueError:
        return Status()
    match value:
        case {"error": dict()} | [{"error": dict()}, *_]:
            return status_of(cast("dict[str, Any]", value[0] if isinstance(value, list) else value)["error"])
        case _:
            return Status()


def status_of(error: dict[str, Any]) -> Status:
    """The same of an error that is decoded."""
    word, details = error.get("status"), error.get("details")
    delays = map(_delay, cast("list[Any]", details) if isinstance(details, list) else ())
    return Status(
        word[:100] if isinstance(word, str) and word else None,
        next((delay for delay in delays if delay is not None), None),
        BAD_KEY if _is_bad_key(details) else None,
    )


def _is_bad_key(details: Any) -> bool:
    """Whether a `google.rpc.ErrorInfo` says so, while the word is `INVALID_ARGUMENT` and the HTTP status 400."""
    found = cast("list[Any]", details) if isinstance(details, list) else []
    return any(isinstance(detail, dict) and cast("dict[str, Any]", detail).get("reason") == BAD_KEY for detail in found)


def _delay(detail: Any) -> float | None:
    """The seconds of a `google.rpc.RetryInfo`, written as `34.07s`."""
    match detail:
        case {"retryDelay": str(text)} if text.endswith("s"):
            try:
                seconds = float(text[:-1])
            except ValueError:
                return None
            return seconds if 0 <= seconds < float("inf") else None
        case _:
            return None
