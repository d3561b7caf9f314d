"""Finding files by name, and lines by a regular expression, under a root; bounded, and what is left out is told.

Matching an expression cannot be interrupted, needs exponential time for some, and holds the interpreter's lock
meanwhile: `lines` is meant for a process of its own, which can be killed.
"""

from __future__ import annotations

import heapq
import os
import re
import stat
from collections.abc import Generator, Iterator

import msgspec

from halter.errors import ToolError
from halter.tools.bounds import left_out
from halter.tools.contents import Look, is_binary
from halter.tools.patterns import Pattern, split
from halter.tools.root import Place, Root
from halter.tools.walking import Entry, Walk

LARGEST = 5_000_000  # bytes of a file that is searched
LONGEST_LINE = 300  # characters of a line that are shown
BEFORE_MATCH = 100  # of these, at most, before the match


# --- files by name ------------------------------------------------------------------------------------------


def names(root: Root, pattern: str, path: str, skip: tuple[str, ...], limit: int, look: Look) -> str:
    """The paths under `path` that match, the newest first, directories with a `/`; for the model to read."""
    parts = root.parts(pattern) if pattern.startswith("/") else pattern.split("/")
    start, rest = split([part for part in parts if part not in ("", ".")] or ["*"])
    wanted = Pattern(rest)
    walk = Walk(root, skip, look)
    with root.at(start if pattern.startswith("/") else f"{path or '.'}/{start}") as place:
        base = "" if place.path == "." else f"{place.path}/"
        found = _Newest(limit)
        for entry in walk.under(place, wanted.depth):
            if wanted.matches(entry.path.removeprefix(base)):
                found.add(entry)
    return found.report(pattern, walk)


class _Newest:
    """The newest of any number of entries; ties by name."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._heap: list[tuple[int, _Reversed]] = []
        self._count = 0

    def add(self, entry: Entry) -> None:
        self._count += 1
        key = (entry.changed_at, _Reversed(f"{entry.path}/" if entry.is_directory else entry.path))
        if len(self._heap) < self._limit:
            heapq.heappush(self._heap, key)
        else:
            heapq.heappushpop(self._heap, key)

    def report(self, pattern: str, walk: Walk) -> str:
        if not self._heap:
            return "\n".join([f"Nothing matches {pattern!r}.", *_left_out(walk)])
        shown = [one.path for _, one in sorted(self._heap, reverse=True)]
        if self._count > len(shown):
            shown.append(f"({self._count:,} match; the newest {len(shown)} are shown: use a narrower pattern)")
        return "\n".join([*shown, *_left_out(walk)])


class _Reversed:
    """A path that is less than those before it in the alphabet: what is newest first is then first by name."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def __lt__(self, other: _Reversed) -> bool:
        return other.path < self.path


def _left_out(walk: Walk) -> list[str]:
    notes: list[str] = []
    if not walk.is_whole:
        notes.append("(There is more than could be looked at: name a directory further down.)")
    if walk.unreadable:
        notes.append(f"(Directories that may not be listed: {walk.unreadable:,}.)")
    return notes


# --- lines by an expression ---------------------------------------------------------------------------------


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """What to look for. `context`: lines around each match. `limit`: lines that match (or files) to show."""

    pattern: str
    path: str = "."
    glob: str | None = None
    ignore_case: bool = False
    context: int = 0
    files_only: bool = False
    limit: int = 100
    skip: tuple[str, ...] = ()


def lines(root: str, query: Query) -> str:
    """The lines under `query.path` that match, by file, for the model to read. Blocks for as long as it takes.

    Raises `ToolError`, also for an expression that is none, and `OSError`.
    """
    try:
        expression = re.compile(query.pattern, re.IGNORECASE if query.ignore_case else 0)
    except (re.error, RecursionError, OverflowError) as error:
        said = f"{query.pattern!r} is no regular expression: {error}; escape what is meant literally"
        raise ToolError(said) from None
    return _Search(Root(root), query, expression).report()


class _Search:
    def __init__(self, root: Root, query: Query, expression: re.Pattern[str]) -> None:
        self._root = root
        self._query = query
        self._expression = expression
        self._walk = Walk(root, query.skip, lambda: None)
        self._wanted = None if query.glob is None else Pattern(_anywhere(query.glob))
        self._matches = 0
        self._passed: dict[str, int] = {}

    def report(self) -> str:
        shown: list[str] = []
        with self._root.at(self._query.path) as place:
            for found in self._files(place):
                shown += self._in(found)
                if self._matches >= self._query.limit:
                    shown.append(f"(the first {self._query.limit} are shown, there may be more: narrow the search)")
                    break
        return "\n".join([*(shown or [f"Nothing matches {self._query.pattern!r}."]), *self._notes()])

    def _files(self, place: Place) -> Iterator[Place]:
        status = place.status()
        if status is None:
            raise FileNotFoundError(2, os.strerror(2), place.path)
        if not stat.S_ISDIR(status.st_mode):
            yield place
            return
        base = "" if place.path == "." else f"{place.path}/"
        for entry in self._walk.under(place):
            if entry.is_file and (self._wanted is None or self._wanted.matches(entry.path.removeprefix(base))):
                yield entry.place

    def _in(self, place: Place) -> list[str]:
        text = self._text(place)
        if text is None:
            return []
        rows = text.split("\n")
        hits = list(self._hits(rows))
        if not hits:
            return []
        path = place.path
        return [path] if self._query.files_only else [path, *_shown(rows, hits, self._query.context), ""]

    def _hits(self, rows: list[str]) -> Generator[tuple[int, int]]:
        """The numbers of the lines that match, from 0, and where in the line."""
        search = self._expression.search
        for number, row in enumerate(rows):
            match = search(row.removesuffix("\r"))
            if match is None:
                continue
            self._matches += 1
            yield number, match.start()
            if self._query.files_only or self._matches >= self._query.limit:
                return

    def _text(self, place: Place) -> str | None:
        try:
            with open(place.open(), "rb", buffering=0) as file:
                if os.fstat(file.fileno()).st_size > LARGEST:
                    return self._pass(f"larger than {LARGEST:,} bytes")
                data = file.read(LARGEST)
        except (OSError, ToolError):
            return self._pass("unreadable")
        return self._pass("binary") if is_binary(data) else data.decode("utf-8", "replace").removesuffix("\n")

    def _pass(self, why: str) -> None:
        self._passed[why] = self._passed.get(why, 0) + 1

    def _notes(self) -> list[str]:
        counts = [f"{count:,} {why}" for why, count in sorted(self._passed.items())]
        notes = [f"(files not searched: {', '.join(counts)})"] if counts else []
        return [*notes, *_left_out(self._walk)]


def _anywhere(pattern: str) -> str:
    """A pattern for a name alone means that name in any directory."""
    return pattern if "/" in pattern else f"**/{pattern}"


def _shown(rows: list[str], hits: list[tuple[int, int]], context: int) -> Generator[str]:
    """Lines with their numbers, `12:` for a match and `12-` around one; `--` where lines are left out between."""
    at = dict(hits)
    last = -1
    for number in sorted({near for hit, _ in hits for near in range(hit - context, hit + context + 1)}):
        if not 0 <= number < len(rows):
            continue
        if context and last >= 0 and number > last + 1:
            yield "--"
        last = number
        yield f"{number + 1}{':' if number in at else '-'}{_cut(rows[number].removesuffix(chr(13)), at.get(number, 0))}"


def _cut(row: str, match: int) -> str:
    if len(row) <= LONGEST_LINE:
        return row
    begin = max(0, match - BEFORE_MATCH)
    part = row[begin : begin + LONGEST_LINE]
    return f"{'… ' if begin else ''}{part} {left_out(len(row) - len(part))}"
