"""What harm a tool can do: declared by its author, or by the hints of an MCP server."""

from __future__ import annotations

from typing import Any

import pytest

from halter import tool
from halter.errors import ConfigurationError
from halter.risk import risks, risks_of_hints


async def touch(path: str) -> None: ...


@pytest.mark.parametrize(
    ("given", "classes"),
    [
        (None, set()),
        ("reads", {"reads"}),
        (("changes", "network"), {"changes", "network"}),
        (["destroys"], {"destroys"}),
    ],
)
def test_a_tool_declares_one_class_of_risk_or_several(given: Any, classes: set[str]) -> None:
    assert tool(touch, risk=given).rules.risks == classes


@pytest.mark.parametrize("wrong", ["harmless", ("reads", "writes"), 7, [None], ""])
def test_an_unknown_class_of_risk_is_refused_where_the_tool_is_made(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="risk must be one or more of 'reads', 'changes'"):
        tool(touch, risk=wrong)


@pytest.mark.parametrize(
    ("hints", "classes"),
    [
        ((None, None, None), set()),
        ((True, None, False), {"reads"}),
        ((True, True, None), {"reads", "network"}),
        ((False, None, False), {"destroys"}),
        ((None, True, None), {"destroys", "network"}),
        ((None, False, False), {"changes"}),
        ((None, None, False), {"destroys"}),
        ((False, False, True), {"changes", "network"}),
    ],
)
def test_hints_of_an_mcp_server_become_classes_of_risk(hints: tuple[Any, ...], classes: set[str]) -> None:
    """A hint that is missing beside others has the protocol's own default, which is the worst."""
    assert risks_of_hints(*hints) == classes


def test_no_risk_is_an_empty_set() -> None:
    assert risks(None) == frozenset()
