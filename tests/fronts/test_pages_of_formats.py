"""The pages say of each type of event how a format shows it, or why it drops it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from halter.server.fronts.adk.format import AdkFormat
from halter.server.fronts.ag_ui_frames import AgUiFormat
from halter.server.fronts.ai_sdk_frames import AiSdkFormat
from halter.server.fronts.front import EVENT_TYPES, Dropped, RuledFormat

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("page", "format"), [("adk.md", AdkFormat), ("ai-sdk.md", AiSdkFormat), ("ag-ui.md", AgUiFormat)]
)
def test_each_type_of_event_is_shown_or_dropped_for_the_reason_that_the_page_gives(
    page: str, format: type[RuledFormat]
) -> None:
    table = (DOCS / page).read_text().partition("## How each event is shown")[2]
    told = dict(re.findall(r"^\| `([a-z.]+)` \| (.*) \|$", table, re.MULTILINE))
    names = {str(kind.__struct_config__.tag): kind for kind in EVENT_TYPES}
    assert told.keys() == names.keys()
    for name, kind in names.items():
        rule = format.rules[kind]
        dropped = f"dropped: {rule.reason}" if isinstance(rule, Dropped) else None
        assert told[name].startswith("dropped") == (dropped is not None), name
        assert dropped in (None, told[name])
