"""What a measurement hands back: rows to read, and lines that are met or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True)
class Line:
    """A limit that Halter promises. `measured` and `limit` share a unit."""

    what: str
    measured: float
    limit: float
    unit: str
    at_least: bool = False

    @property
    def is_met(self) -> bool:
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "≤"
        verdict = "met" if self.is_met else "NOT met"
        return f"{self.what} {sign} {self.limit:g}{self.unit}: {self.measured:.3g}{self.unit}, {verdict}"


@dataclass(frozen=True)
class Table:
    """One subject. `about`: how it was measured, in a sentence or two."""

    title: str
    about: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    lines: Sequence[Line] = field(default_factory=tuple)

    def as_text(self) -> str:
        widths = [max(map(len, cells)) for cells in zip(self.columns, *self.rows, strict=True)]
        rows = [_aligned(row, widths) for row in (self.columns, *self.rows)]
        rule = "─" * len(rows[0])
        marks = [f"  {'✓' if line.is_met else '✗'} {line}" for line in self.lines]
        return "\n".join((self.title, self.about, "", rows[0], rule, *rows[1:], *marks, ""))

    def as_markdown(self) -> str:
        head = [_piped(self.columns), "|---|" + "---:|" * (len(self.columns) - 1)]
        lines = [f"- {line}" for line in self.lines]
        return "\n".join((f"### {self.title}", "", self.about, "", *head, *map(_piped, self.rows), "", *lines))


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = (
        cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join((first, *rest))


def _piped(row: Sequence[str]) -> str:
    return f"| {' | '.join(row)} |"


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Median and range: `7.8 (7.1–9.0)`."""
    return f"{median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def ratios(values: Sequence[float], by: Sequence[float]) -> list[float]:
    """Round by round: what the machine did meanwhile falls out."""
    return [value / other for value, other in zip(values, by, strict=True)]


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest rank; the largest value for a percentile that the sample cannot tell from it."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
