"""The picture of a run's states in docs/lifecycle.md is the table's own."""

from __future__ import annotations

import re
from pathlib import Path

from halter.core.lifecycle import diagram
from halter.outcome import RunStatus

PAGE = (Path(__file__).parents[2] / "docs" / "lifecycle.md").read_text(encoding="utf-8")


def test_the_picture_is_printed_from_the_table() -> None:
    pictures = re.findall(r"^```mermaid\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert [picture.strip() for picture in pictures] == [diagram().strip()]


def test_each_state_is_explained() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == [str(status) for status in RunStatus]
