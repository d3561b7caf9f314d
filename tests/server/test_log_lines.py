"""Log lines of the server as JSON, whatever is logged."""

from __future__ import annotations

import json
import logging
from typing import Any

from halter.server.logs import _Json  # pyright: ignore[reportPrivateUsage]


class Unshowable:
    def __repr__(self) -> str:
        raise ValueError("no")


def test_any_value_makes_a_json_line() -> None:
    given: dict[str, Any] = {"text": "a\ud800", "large": 2**70, "odd": Unshowable(), "keys": {(1, 2): 3}}
    record = logging.makeLogRecord({"msg": "a\ud800", **given})
    line = json.loads(_Json().format(record))
    assert (line["message"], line["text"], line["large"]) == ("a?", "a?", 2**70)
    assert "Unshowable" in line["odd"]
