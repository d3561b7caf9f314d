"""A directory tree walked under a root: by descriptors, never through a link, by order of names, and not for ever."""

from __future__ import annotations

import heapq
import os
from collections.abc import Generator, Iterator
from itertools import islice
from typing import NamedTuple

from halter.tools.contents import Look
from halter.tools.root import Place, Root

MOST_ENTRIES = 200_000  # looked at in one walk
DEEPEST = 64  # directories inside each other; each is a descriptor that is held
PIECE = 2_000  # entries that are read and sorted between two looks at the token: some milliseconds
SKIPPED = (".git", ".hg", ".svn", ".venv", "node_modules", "__pycache__")


class Entry(NamedTuple):
    """A name in a directory that is held open while the walk is at it. `path`: from the root on."""

    path: str
    place: Place
    entry: os.DirEntry[str]

    @property
    def is_directory(self) -> bool:
        return self.entry.is_dir(follow_symlinks=False)

    @property
    def is_file(self) -> bool:
        return self.entry.is_file(follow_symlinks=False)

    @property
    def changed_at(self) -> int:
        """Nanoseconds since the epoch; 0 if it is gone."""
        try:  # `DirEntry.stat` would hold up all threads while the disk is slow
            return os.stat(self.entry.name, dir_fd=self.place.directory, follow_symlinks=False).st_mtime_ns
        except OSError:
            return 0


class Walk:
    """Everything under a directory, its own name not counted. `skip`: names of directories that are not entered.

    `is_whole`: False when something was left out because there was too much, or too deep. `unreadable`: directories
    that we may not list.
    """

    def __init__(self, root: Root, skip: tuple[str, ...], look: Look) -> None:
        self._root = root
        self._skip = frozenset(skip)
        self._look = look
        self._left = MOST_ENTRIES
        self.is_whole = True
        self.unreadable = 0

    def under(self, place: Place, depth: int | None = None) -> Generator[Entry]:
        """`depth`: how many levels below the place; `None` for all. `look` is called for each entry.

        Raises `OSError` if the place is no directory, and what `look` does.
        """
        depth = DEEPEST if depth is None else min(depth, DEEPEST)
        held = [place.open_directory()]
        try:
            levels = [self._entries(held[0], place.path)]
            while levels:
                found = next(levels[-1], None)
                if found is None:
                    levels.pop()
                    os.close(held.pop())
                    continue
                yield found
                if found.is_directory and found.entry.name not in self._skip:
                    self._enter(found, depth, held, levels)
        finally:
            for number in held:
                os.close(number)

    def _enter(self, found: Entry, depth: int, held: list[int], levels: list[Iterator[Entry]]) -> None:
        if self._root.is_kernels(found.path):
            return
        if len(levels) >= depth:
            self.is_whole = self.is_whole and depth < DEEPEST
            return
        try:
            number = found.place.open_directory()
        except OSError:
            self.unreadable += 1  # or gone, or a link by now
            return
        held.append(number)
        if os.fstat(number).st_dev in self._root.kernels_devices:
            levels.append(iter(()))  # nothing in it is a file
        else:
            levels.append(self._entries(number, found.path))

    def _entries(self, directory: int, path: str) -> Iterator[Entry]:
        parents = [] if path == "." else path.split("/")
        for entry in self._sorted(directory):
            self._look()
            place = Place(self._root, directory, parents, entry.name)
            yield Entry(place.path, place, entry)

    def _sorted(self, directory: int) -> Iterator[os.DirEntry[str]]:
        """What is in the directory, by name. Sorted in pieces: sorting all at once would hold up every thread."""
        pieces: list[list[os.DirEntry[str]]] = []
        with os.scandir(directory) as scan:
            while piece := list(islice(scan, min(PIECE, self._left))):
                self._look()
                piece.sort(key=_name, reverse=True)
                pieces.append(piece)
                self._left -= len(piece)
            self.is_whole = self.is_whole and next(scan, None) is None
        return heapq.merge(*map(_drained, pieces), key=_name)


def _drained(piece: list[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
    """The last first, each let go as it is given: letting go of them all at once would take as long as sorting them."""
    while piece:
        yield piece.pop()


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name
