"""What a change does to a text, as a unified diff: for the person who is asked to approve it. Whole: nothing is cut.

Comparing two texts takes time that grows with the square of their lines. So what they have in common at both ends is
taken off first, lines that both texts have once are paired, and what lies between two pairs, if it is long, is shown as
removed and added.
"""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from typing import TypeAlias

from halter.visible import visible, visible_line

MOST_COMPARED = 150  # lines on either side: 0.1 s at the worst
MOST_COMPARED_IN_ALL = 1_000  # lines of one diff
CONTEXT = 3  # lines around a change
Code: TypeAlias = tuple[str, int, int, int, int]


def unified(path: str, old: str | None, new: str | None) -> str:
    """The diff from `old` to `new`; `old` is `None` for a file that is made, `new` for one that is removed."""
    before, after = _lines(old or ""), _lines(new or "")
    head = _common(before, after)
    tail = _common(before[head:][::-1], after[head:][::-1])
    begin = max(0, head - CONTEXT)
    before = before[begin : len(before) - max(0, tail - CONTEXT)]
    after = after[begin : len(after) - max(0, tail - CONTEXT)]
    path = visible_line(path)
    shown = map(visible, _hunks(before, after, begin))
    names = [path if text is not None else "/dev/null" for text in (old, new)]
    return "\n".join([f"--- {names[0]}", f"+++ {names[1]}", *shown])


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _lines(text: str) -> list[str]:
    """Without their ends; a last line that has none says so, as in any diff."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else [*lines[:-1], f"{lines[-1]}\n\\ No newline at end of file"]


def _hunks(before: list[str], after: list[str], begin: int) -> list[str]:
    """`begin`: how many lines stand before both."""
    hunks: list[str] = []
    for group in _Compared(before, after).get_grouped_opcodes(CONTEXT):
        first, last = group[0], group[-1]
        spans = (_span(begin + first[1], last[2] - first[1]), _span(begin + first[3], last[4] - first[3]))
        hunks.append(f"@@ -{spans[0]} +{spans[1]} @@")
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                hunks += [f" {line}" for line in before[i1:i2]]
                continue
            hunks += [f"-{line}" for line in before[i1:i2]] + [f"+{line}" for line in after[j1:j2]]
    return hunks


class _Compared(difflib.SequenceMatcher[str]):
    """Two texts, compared piece by piece between the lines that are paired."""

    def __init__(self, before: list[str], after: list[str]) -> None:
        super().__init__(None, "", "")
        self._before = before
        self._after = after
        self._codes: list[Code] = []
        self._left = MOST_COMPARED_IN_ALL
        i = j = 0
        for to_i, to_j in (*_pairs(before, after), (len(before), len(after))):
            self._compare(i, to_i, j, to_j)
            i, j = to_i, to_j

    def get_opcodes(self) -> list[Code]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._codes

    def _compare(self, i: int, to_i: int, j: int, to_j: int) -> None:
        head = _common(self._before[i:to_i], self._after[j:to_j])
        self._add("equal", i, i + head, j, j + head)
        i, j = i + head, j + head
        tail = _common(self._before[i:to_i][::-1], self._after[j:to_j][::-1])
        before, after = self._before[i : to_i - tail], self._after[j : to_j - tail]
        lines = max(len(before), len(after))
        if lines <= min(MOST_COMPARED, self._left):
            self._left -= lines
            for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
                self._add(tag, i + i1, i + i2, j + j1, j + j2)
        else:
            self._add("replace", i, to_i - tail, j, to_j - tail)
        self._add("equal", to_i - tail, to_i, to_j - tail, to_j)

    def _add(self, tag: str, i1: int, i2: int, j1: int, j2: int) -> None:
        if i1 == i2 and j1 == j2:
            return
        if self._codes and self._codes[-1][0] == tag == "equal":
            _, i1, _, j1, _ = self._codes.pop()
        self._codes.append((tag, i1, i2, j1, j2))


def _pairs(before: list[str], after: list[str]) -> list[tuple[int, int]]:
    """Places of lines that both have exactly once: as many as there are in the same order in both."""
    once = {line for line, count in Counter(after).items() if count == 1}
    once &= {line for line, count in Counter(before).items() if count == 1}
    places = {line: place for place, line in enumerate(after) if line in once}
    lowest: list[int] = []  # by length, the earliest place in `after` at which a chain so long ends
    chains: list[tuple[int, int, int | None]] = []  # place in both, and the link before
    ends: list[int] = []  # of `lowest`, in `chains`
    for i, line in enumerate(before):
        j = places.get(line)
        if j is None:
            continue
        length = bisect_left(lowest, j)
        chains.append((i, j, ends[length - 1] if length else None))
        lowest[length : length + 1] = [j]
        ends[length : length + 1] = [len(chains) - 1]
    found: list[tuple[int, int]] = []
    link = ends[-1] if ends else None
    while link is not None:
        i, j, link = chains[link]
        found.append((i, j))
    return found[::-1]


def _span(begin: int, count: int) -> str:
    """A hunk's place, as `diff -u` writes it: an empty one names the line before."""
    return f"{begin + 1 if count else begin},{count}"
