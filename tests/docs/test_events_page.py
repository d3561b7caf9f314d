"""The table of events in docs/events.md says what the code says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec

from halter import events

PAGE = (Path(__file__).parents[2] / "docs" / "events.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(?P<type>[\w.]+)` \| `(?P<name>\w+)` \| (?P<fields>[^|]*) \| (?P<note>[^|]*) \|$", re.MULTILINE)


def fields_of(kind: type[msgspec.Struct]) -> list[str]:
    return [field.name for field in msgspec.structs.fields(kind)]


def own_fields(kind: type[events.Event]) -> list[str]:
    base = events.AgentEvent if issubclass(kind, events.AgentEvent) else events.Event
    return [name for name in fields_of(kind) if name not in fields_of(base)]


def test_the_table_has_every_event_with_its_class_and_fields_in_order() -> None:
    rows = [(row["type"], row["name"], re.findall(r"`(\w+)`", row["fields"])) for row in ROW.finditer(PAGE)]
    kinds = get_args(events.AnyEvent)
    assert rows == [(kind.__struct_config__.tag, kind.__name__, own_fields(kind)) for kind in kinds]


def test_the_terminal_events_are_marked() -> None:
    terminal = {kind.__name__ for kind in get_args(events.AnyEvent) if kind.is_terminal}
    assert {row["name"] for row in ROW.finditer(PAGE) if row["note"].startswith("terminal")} == terminal


def test_what_all_events_carry_is_named() -> None:
    shared = PAGE[PAGE.index("Every event has") : PAGE.index("| type | class |")]
    assert set(re.findall(r"`(\w+)`", shared)) >= set(fields_of(events.AgentEvent))
