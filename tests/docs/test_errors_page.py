"""The tree in docs/errors.md is the tree in halter/errors.py."""

from __future__ import annotations

import re
from pathlib import Path

from halter import errors

PAGE = (Path(__file__).parents[2] / "docs" / "errors.md").read_text(encoding="utf-8")


def tree_of(kind: type[errors.HalterError], depth: int = 0) -> list[tuple[int, str]]:
    below = [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]
    return [(depth, kind.__name__), *(row for child in below for row in tree_of(child, depth + 1))]


def test_the_tree_is_the_code_s() -> None:
    drawn = re.findall(r"^([ │├└─]*)([A-Z]\w+)", PAGE[PAGE.index("```\n") :].split("```")[1], re.MULTILINE)
    assert [(len(indent) // 4, name) for indent, name in drawn] == tree_of(errors.HalterError)
