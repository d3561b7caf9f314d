"""Two texts side by side while they grow: redrawn in place on a terminal, line by line elsewhere."""

from __future__ import annotations

import shutil
import textwrap
import time
from types import TracebackType
from typing import TextIO

REDRAW_EVERY = 0.04  # seconds
SHOWN_LINES = 12


class Columns:
    """`with Columns(out, "left", "right") as columns: columns.add(0, "text")`."""

    def __init__(self, out: TextIO, *titles: str) -> None:
        self._out = out
        self._titles = titles
        self._texts = ["" for _ in titles]
        self._notes = ["" for _ in titles]
        self._printed = [0 for _ in titles]
        self._is_terminal = out.isatty()
        columns = shutil.get_terminal_size((100, 24)).columns
        self._width = max(20, (min(columns, 120) - 3 * len(titles)) // len(titles))
        self._drawn_at = 0.0
        self._drawn_lines = 0

    def __enter__(self) -> Columns:
        self._draw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._draw(last=True)

    def add(self, column: int, text: str) -> None:
        """More text for a column."""
        self._texts[column] += text
        if time.monotonic() - self._drawn_at >= REDRAW_EVERY:
            self._draw()

    def note(self, column: int, text: str) -> None:
        """How this column ended."""
        self._notes[column] = text
        self._draw()

    def _draw(self, last: bool = False) -> None:
        self._drawn_at = time.monotonic()
        if self._is_terminal:
            self._draw_in_place()
        else:
            self._print_new_lines(last)
        self._out.flush()

    def _wrapped(self, column: int) -> list[str]:
        paragraphs = self._texts[column].split("\n")
        return [line for paragraph in paragraphs for line in textwrap.wrap(paragraph, self._width)]

    def _draw_in_place(self) -> None:
        if self._drawn_lines:
            self._out.write(f"\x1b[{self._drawn_lines}A")
        rows = [self._titles, *self._rows(), self._notes]
        for row in rows:
            self._out.write("\x1b[2K " + " │ ".join(cell.ljust(self._width) for cell in row).rstrip() + "\n")
        self._drawn_lines = len(rows)

    def _rows(self) -> list[list[str]]:
        tails = [self._wrapped(column)[-SHOWN_LINES:] for column in range(len(self._titles))]
        return [[tail[place] if place < len(tail) else "" for tail in tails] for place in range(SHOWN_LINES)]

    def _print_new_lines(self, last: bool) -> None:
        """Each line once, when it is complete."""
        for column, title in enumerate(self._titles):
            lines = self._wrapped(column)
            complete = len(lines) if last or self._notes[column] else max(0, len(lines) - 1)
            for line in lines[self._printed[column] : complete]:
                self._out.write(f"  {title:<8}| {line}\n")
            self._printed[column] = max(self._printed[column], complete)
            if self._notes[column] and last:
                self._out.write(f"  {title:<8}| {self._notes[column]}\n")
