"""Files replaced, made and removed: all of a change or nothing of it.

1. New contents are written beside the file and renamed over it: any reader finds the old file or the new one, even if
this process is killed. 2. Comparing with what was seen, and renaming, are one step among all that use this module,
other processes too. 3. A file keeps its owner, mode and extended attributes; what could not be kept is refused. 4. Of
several files, either all are changed or, if one fails, none.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

from halter.errors import ToolError
from halter.tools.contents import PIECE, Look, load
from halter.tools.directory_locks import locked
from halter.tools.leftovers import TemporaryFile
from halter.tools.root import Place, kind_of

_RENEWED = ("security.ima", "security.evm")  # hashes of the contents: the kernel makes them anew
_logger = logging.getLogger("halter")


class Changed(ToolError):
    """Somebody else has written the file meanwhile."""


class Replacement(NamedTuple):
    """One file's change. `seen`, `data`: its bytes before and after; `None` where there is no file.

    `like`: the file whose owner, mode and attributes a new file gets; `None`: the usual ones.
    """

    place: Place
    seen: bytes | None
    data: bytes | None
    like: Place | None = None


def replace(place: Place, seen: bytes | None, data: bytes, look: Look) -> None:
    """Puts `data` in place of what is there, or makes the file; its owner, mode and attributes stay.

    `seen`: what must be there still, `None` for nothing. `look`: called between pieces, and a last time before the
    file appears. Raises `Changed` if something else is there now, `ToolError`, `OSError`, and what `look` does; then
    nothing has been changed.
    """
    commit((Replacement(place, seen, data),), look)


def commit(changes: Sequence[Replacement], look: Look) -> None:
    """Makes all the changes, in their order, or none. Raises as `replace` does."""
    with ExitStack() as stack:
        staged = [stack.enter_context(_staged(change, look)) for change in changes]
        with locked([change.place.directory for change in changes], look):
            look()
            for one in staged:
                one.compare(look)
            _put_in_place(staged)


def check(place: Place, *, removed: bool = False) -> os.stat_result | None:
    """Looks whether the file may be replaced or `removed`; returns its status, `None` if there is none.

    Raises `ToolError` that says why not.
    """
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=place.directory, effective_ids=True):
        raise ToolError(f"{place.path} cannot be changed: its directory may not be written by this process")
    status = place.status()
    if status is None:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"{place.path} is {kind_of(status.st_mode)}: it is not replaced by a file")
    if not status.st_mode & 0o222:
        raise ToolError(f"{place.path} is protected from being written (mode {stat.S_IMODE(status.st_mode):o})")
    if not os.access(place.name, os.W_OK, dir_fd=place.directory, effective_ids=True):
        raise ToolError(
            f"{place.path} may not be written by this process: it belongs to user {status.st_uid} "
            f"(mode {stat.S_IMODE(status.st_mode):o})"
        )
    if status.st_nlink > 1 and not removed:
        raise ToolError(
            f"{place.path} has {status.st_nlink} names (hard links), and a change would separate it from the others: "
            "it is not changed"
        )
    return status


# --- one file -----------------------------------------------------------------------------------------------


class _Staged:
    """A change that is ready: its new contents lie beside the file."""

    def __init__(self, change: Replacement, status: os.stat_result | None, old: int | None) -> None:
        self.change = change
        self._status = status
        self._old = old  # a descriptor of what is replaced: its attributes, should it have to be put back
        self._new: TemporaryFile | None = None

    def write(self, look: Look) -> None:
        change = self.change
        if change.data is None:
            return
        self._new = TemporaryFile(
            change.place.directory, change.place.name, is_private=self._status is not None or change.like is not None
        )
        with _opened(change.like) as like:
            _fill(self._new, change.data, self._old if like is None else like, change.place.path, look)

    def compare(self, look: Look) -> None:
        """Raises `Changed` unless all is as it was."""
        place, before = self.change.place, self._status
        now = place.status()
        same = (now is None) == (before is None) and (now is None or before is None or _facts(now) == _facts(before))
        if not same or load(place, look) != self.change.seen:
            raise Changed(f"{place.path} has changed since it was read: read it again, then decide anew")

    def put(self) -> None:
        place = self.change.place
        if self._new is None:
            os.unlink(place.name, dir_fd=place.directory)
        else:
            self._new.rename(place.name)

    def undo(self) -> None:
        place, seen = self.change.place, self.change.seen
        if seen is None:
            os.unlink(place.name, dir_fd=place.directory)
            return
        old = TemporaryFile(place.directory, place.name, is_private=True)
        try:
            _fill(old, seen, self._old, place.path, lambda: None)
            old.rename(place.name)
        finally:
            old.close()

    def close(self) -> None:
        if self._new is not None:
            self._new.close()


@contextmanager
def _staged(change: Replacement, look: Look) -> Generator[_Staged]:
    status = check(change.place, removed=change.data is None)
    with _opened(None if status is None else change.place) as old:
        staged = _Staged(change, status, old)
        try:
            staged.write(look)
            yield staged
        finally:
            staged.close()


@contextmanager
def _opened(place: Place | None) -> Generator[int | None]:
    if place is None:
        yield None
        return
    try:
        number = place.open()
    except FileNotFoundError:
        raise Changed(f"{place.path} has been removed meanwhile") from None
    try:
        yield number
    finally:
        os.close(number)


def _facts(status: os.stat_result) -> tuple[int, ...]:
    return status.st_mode, status.st_uid, status.st_gid, status.st_nlink


def _put_in_place(staged: list[_Staged]) -> None:
    done: list[_Staged] = []
    try:
        for one in staged:
            one.put()
            done.append(one)
    except OSError as error:
        if lost := _undone(done):
            said = f"{staged[len(done)].change.place.path}: {error.strerror}"
            raise ToolError(f"{said}; these could not be changed back: {', '.join(lost)}") from error
        raise


def _undone(done: list[_Staged]) -> list[str]:
    """Puts the old files back, the last first; the paths of those for which that has failed."""
    lost: list[str] = []
    for one in reversed(done):
        try:
            one.undo()
        except (OSError, ToolError):
            _logger.exception("a change of %s could not be taken back", one.change.place.path)
            lost.append(one.change.place.path)
    return lost


# --- what a file keeps --------------------------------------------------------------------------------------


def _fill(new: TemporaryFile, data: bytes, like: int | None, path: str, look: Look) -> None:
    """Writes the contents, then what writing would take away: owner, mode, attributes."""
    view = memoryview(data)
    while view:
        look()
        view = view[os.write(new.number, view[:PIECE]) :]
    if like is not None:
        _keep_owner_and_mode(new.number, os.fstat(like), path)
        _keep_attributes(new.number, like, path)


def _keep_owner_and_mode(number: int, status: os.stat_result, path: str) -> None:
    """The owner before the mode: a new owner takes bits from it. Raises `ToolError` if we may not give it away."""
    new = os.fstat(number)
    if (new.st_uid, new.st_gid) != (status.st_uid, status.st_gid):
        try:
            os.fchown(number, status.st_uid, status.st_gid)
        except PermissionError:
            raise ToolError(
                f"{path} belongs to user {status.st_uid} and group {status.st_gid}, and this process cannot keep that: "
                "it is not changed"
            ) from None
    os.fchmod(number, stat.S_IMODE(status.st_mode))


def _keep_attributes(number: int, like: int, path: str) -> None:
    """The new file has the extended attributes of the old one, access lists too, and no others."""
    if not hasattr(os, "listxattr"):
        return
    wanted, there = _attributes(like), _attributes(number)
    try:
        for name in there.keys() - wanted.keys():
            os.removexattr(number, name)
        for name, value in wanted.items():
            if there.get(name) != value:
                os.setxattr(number, name, value)
    except OSError as error:
        raise ToolError(
            f"{path} has extended attributes that cannot be kept ({error.strerror}): it is not changed"
        ) from None


def _attributes(number: int) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    try:
        names = os.listxattr(number)
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.ENOSYS, errno.EPERM):
            return found  # this file system has none
        raise
    for name in names:
        if name not in _RENEWED:
            with suppress(OSError):  # removed meanwhile, or not ours to see
                found[name] = os.getxattr(number, name)
    return found
