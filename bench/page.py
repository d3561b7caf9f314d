"""The figures in `docs/benchmarks.md`, between two markers; the prose around them is not touched."""

from __future__ import annotations

from collections.abc import Sequence

from bench.child import ROOT
from bench.table import Table

PAGE = ROOT / "docs" / "benchmarks.md"


def write(facts: str, tables: Sequence[Table], *, place: str = "bench") -> None:
    """Replaces what stands between the markers of this name. Raises `ValueError` for a page without them."""
    begin, end = f"<!-- {place}: begin -->", f"<!-- {place}: end -->"
    before, found_begin, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found_begin and found_end):
        raise ValueError(f"{PAGE.name} has no place between {begin} and {end}")
    body = "\n\n".join((facts, *(table.as_markdown().rstrip() for table in tables)))
    PAGE.write_text(f"{before}{begin}\n\n{body}\n\n{end}{after}", encoding="utf-8")
