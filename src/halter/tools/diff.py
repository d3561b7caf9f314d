"""What a change does to a text, as a unified diff: for the person who is asked to approve it.

Comparing two texts takes time that grows with the square of their lines: what they have in common at both ends is taken
off first, and what is left, if it is long, is shown as removed and added.
"""

from __future__ import annotations

import difflib
from itertools import takewhile

from halter.tools.approval import visible
from halter.tools.bounds import clipped, left_out

MOST_COMPARED = 150  # lines on either side: 0.1 s at the worst
MOST_SHOWN = 400  # lines of a diff
LONGEST_LINE = 400  # characters
CONTEXT = 3  # lines around a change


def unified(path: str, old: str | None, new: str) -> str:
    """The diff from `old` to `new`, bounded; `old` is `None` for a file that is made."""
    before, after = _lines(old or ""), _lines(new)
    head = _common(before, after)
    tail = _common(before[head:][::-1], after[head:][::-1])
    begin = max(0, head - CONTEXT)
    before = before[begin : len(before) - max(0, tail - CONTEXT)]
    after = after[begin : len(after) - max(0, tail - CONTEXT)]
    hunks = _hunks(before, after, begin)
    shown = [visible(clipped(line, LONGEST_LINE)) for line in hunks[:MOST_SHOWN]]
    if len(hunks) > MOST_SHOWN:
        shown.append(left_out(len(hunks) - MOST_SHOWN, "lines"))
    path = visible(path)
    return "\n".join([f"--- {path if old is not None else '/dev/null'}", f"+++ {path}", *shown])


def _common(one: list[str], other: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _lines(text: str) -> list[str]:
    """Without their ends; a last line that has none says so, as in any diff."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else [*lines[:-1], f"{lines[-1]}\n\\ No newline at end of file"]


def _hunks(before: list[str], after: list[str], begin: int) -> list[str]:
    """`begin`: how many lines stand before both."""
    if len(before) > MOST_COMPARED or len(after) > MOST_COMPARED:
        head = f"@@ -{_span(begin, len(before))} +{_span(begin, len(after))} @@"
        return [head, *(f"-{line}" for line in before), *(f"+{line}" for line in after)]
    hunks: list[str] = []
    for group in difflib.SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(CONTEXT):
        first, last = group[0], group[-1]
        spans = (_span(begin + first[1], last[2] - first[1]), _span(begin + first[3], last[4] - first[3]))
        hunks.append(f"@@ -{spans[0]} +{spans[1]} @@")
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                hunks += [f" {line}" for line in before[i1:i2]]
                continue
            hunks += [f"-{line}" for line in before[i1:i2]] + [f"+{line}" for line in after[j1:j2]]
    return hunks


def _span(begin: int, count: int) -> str:
    """A hunk's place, as `diff -u` writes it: an empty one names the line before."""
    return f"{begin + 1 if count else begin},{count}"
