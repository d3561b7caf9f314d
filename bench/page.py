"""The figures in `docs/benchmarks.md`, between two markers; the prose around them is not touched."""

from __future__ import annotations

from collections.abc import Sequence

from bench.child import ROOT
from bench.table import Table

PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN = "<!-- bench: begin -->"
END = "<!-- bench: end -->"


def write(facts: str, tables: Sequence[Table]) -> None:
    """Replaces what stands between the markers. Raises `ValueError` for a page without them."""
    before, found_begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, found_end, after = rest.partition(END)
    if not (found_begin and found_end):
        raise ValueError(f"{PAGE.name} has no place between {BEGIN} and {END}")
    body = "\n\n".join((facts, *(table.as_markdown().rstrip() for table in tables)))
    PAGE.write_text(f"{before}{BEGIN}\n\n{body}\n\n{END}{after}", encoding="utf-8")
