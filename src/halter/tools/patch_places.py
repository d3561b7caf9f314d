"""Where the hunks of a patch belong in a text, and the text that they make of it.

Models copy context inexactly. The lines of a hunk are looked for as they are, then without white space at their ends,
then without white space around them, and at last with typographic signs as ASCII has them: the first of these that is
found wins. Lines of context stay as they are in the file. Time grows with the size of text and patch only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator
from itertools import accumulate

from halter.errors import ToolError
from halter.tools.contents import Look
from halter.tools.patch_text import Hunk

MOST_LINES = 200_000  # of a text; changing all of them into a form in which they are compared takes 0.1 s
MOST_PLACES = 1_000  # that are compared with the line at which a hunk says it begins
MOST_EMPTY = 8  # lines at the end of a hunk that may only separate it from the next
LONGEST_SHOWN = 200  # characters of a line that is not found
_ASCII = str.maketrans(
    dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")
    | dict.fromkeys("\u2018\u2019\u201a\u201b", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u201f", '"')
    | dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " ")
)
_FORMS: tuple[Callable[[str], str], ...] = (
    lambda line: line,
    str.rstrip,
    str.strip,
    lambda line: line.translate(_ASCII).strip(),
)


def patched(text: str, hunks: tuple[Hunk, ...], path: str, look: Look) -> str:
    """The text with all hunks applied, each behind the one before. `look`: called between steps of the search.

    Raises `ToolError` for a hunk that is not found and for a text of too many lines, and what `look` does.
    """
    if text.count("\n") > MOST_LINES:
        raise ToolError(f"{path} has more than {MOST_LINES:,} lines: it is not changed by a patch")
    has_end = text.endswith("\n") or not text
    lines = text.removesuffix("\n").split("\n") if text else []
    found = _Lines(lines, look)
    made: list[str] = []
    done, drift = 0, 0  # lines of the text that are dealt with; how far the last hunk was from where it said
    for number, hunk in enumerate(hunks, 1):
        begin, kept = _place(found, hunk, done, drift, f"change {number} of {path}")
        drift = drift if hunk.start is None or not hunk.old else begin - (hunk.start - 1)
        made += lines[done:begin]
        done = begin
        for sign, line in kept:
            if sign == "+":
                made.append(line)
                continue
            if sign == " ":
                made.append(lines[done])
            done += 1
        if done == len(lines) and hunk.ends_line is not None:
            has_end = hunk.ends_line
    made += lines[done:]
    return "\n".join(made) + ("\n" if made and has_end else "")


def _place(found: _Lines, hunk: Hunk, done: int, drift: int, name: str) -> tuple[int, tuple[tuple[str, str], ...]]:
    """The line, from 0, at which the hunk begins, and the lines of it that count."""
    behind = done
    for header in hunk.headers:
        at = found.first([header], behind)
        if at is None:
            raise ToolError(f"{name}: the line {header[:LONGEST_SHOWN]!r} behind @@ is not there{_after(done)}")
        behind = at + 1
    lines = hunk.lines
    if not hunk.old:
        return _place_of_addition(found, hunk, behind, name), lines
    expected = None if hunk.start is None else hunk.start - 1 + drift
    for _ in range(MOST_EMPTY):
        old = [text for sign, text in lines if sign != "+"]
        at = found.last_lines(old, behind) if hunk.is_at_end else None
        if at is None:
            at = found.first(old, behind) if expected is None else found.nearest(old, behind, expected)
        if at is not None:
            return at, lines
        if lines[-1] != (" ", "") or len(old) == 1:
            break
        lines = lines[:-1]  # an empty line that only ends the patch
    raise ToolError(f"{name}: {_not_found(found, hunk.old, behind)}")


def _place_of_addition(found: _Lines, hunk: Hunk, behind: int, name: str) -> int:
    """Lines that are added without any around them: behind the header, or at the end of the file."""
    if hunk.headers:
        return behind
    if hunk.start is not None and found.count:
        raise ToolError(f"{name}: it has only lines with +, so it could belong anywhere: give some lines around them")
    return found.count


def _not_found(found: _Lines, old: list[str], behind: int) -> str:
    """What is wrong, as far as it can be seen: the longest beginning of the lines that is there."""
    if found.first(old, 0) is not None:
        return f"its lines are only{_before(behind)}: the changes of a file stand in the order of its lines"
    low, high = 0, len(old)
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if found.first(old[:middle], behind) is not None else (low, middle)
    line = old[low][:LONGEST_SHOWN]
    where = "" if low == 0 else f" after the {low} before it"
    return f"the line {line!r} is not found{where}{_after(behind)}: read the file again, and copy its lines exactly"


def _after(line: int) -> str:
    return f" (looked for from line {line + 1} on)" if line else ""


def _before(line: int) -> str:
    return f" before line {line + 1}" if line else ""


class _Lines:
    """The lines of a text, in which others are found."""

    def __init__(self, lines: list[str], look: Look) -> None:
        self._lines = lines
        self._look = look
        self._texts: list[tuple[str, list[int]] | None] = [None] * len(_FORMS)
        self.count = len(lines)

    def first(self, wanted: list[str], behind: int) -> int | None:
        """The number, from 0, of the first of these lines, found at `behind` or after it; in the strictest form."""
        places = (next(self._all(wanted, behind, form), None) for form in range(len(_FORMS)))
        return next((place for place in places if place is not None), None)

    def nearest(self, wanted: list[str], behind: int, expected: int) -> int | None:
        """Of all places where they are in the strictest form, the one nearest to `expected`."""
        for form in range(len(_FORMS)):
            places: list[int] = []
            for place in self._all(wanted, behind, form):
                places.append(place)
                if place >= expected or len(places) == MOST_PLACES:
                    break
            if places:
                return min(places, key=lambda place: abs(place - expected))
        return None

    def last_lines(self, wanted: list[str], behind: int) -> int | None:
        """Their number if the text ends with them."""
        begin = self.count - len(wanted)
        return begin if begin >= behind and self.first(wanted, begin) is not None else None

    def _all(self, wanted: list[str], behind: int, form: int) -> Generator[int]:
        text, offsets = self._text(form)
        pattern = "\n" + "".join(f"{_FORMS[form](line)}\n" for line in wanted)
        at = offsets[behind] if behind < len(offsets) else len(text)
        while (at := text.find(pattern, at)) >= 0:
            self._look()
            yield bisect_left(offsets, at)
            at += 1

    def _text(self, form: int) -> tuple[str, list[int]]:
        """All lines in this form, each behind a line end, and where these are."""
        known = self._texts[form]
        if known is None:
            change, shown = _FORMS[form], list[str]()
            for number, line in enumerate(self._lines):
                if number % 1_000 == 0:
                    self._look()
                shown.append(change(line))
            offsets = list(accumulate((len(line) + 1 for line in shown), initial=0))[: len(shown)]
            known = self._texts[form] = "\n" + "".join(f"{line}\n" for line in shown), offsets
        return known
