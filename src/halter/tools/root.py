"""A directory that no path leaves: not by `..`, not by an absolute path, not by a link, not by one swapped in just now.

1. Each component is opened by itself, from its parent's descriptor and never through a link: what was looked at is what
is used. 2. A link is read, and its target walked in the same way. `..` goes back to a descriptor that we came by, never
to what the kernel calls the parent. 3. Only plain files are opened, and never so that opening could wait. 4. The
kernel's own directories are not entered, unless the root lies in them.

The kernel's own word for this is `openat2` with `RESOLVE_BENEATH`, which Python does not have.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path

from halter.errors import ConfigurationError, ToolError

MOST_LINKS = 40  # as many as Linux follows in one path
LONGEST_PATH = 4096  # characters; Linux takes no longer ones
DEEPEST = 128  # directories of a path inside each other; each is a descriptor that is held
MOST_TRIES = 20  # how often a file is looked for that somebody keeps swapping for a link
_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | getattr(os, "O_PATH", os.O_RDONLY)
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_KERNEL = ("/proc", "/sys", "/dev")  # their files hold other processes' keys and memory, and may wait for ever
_KERNELS_TYPES = (
    *("autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs"),
    *("fusectl", "hugetlbfs", "mqueue", "nfsd", "nsfs", "proc", "pstore", "resctrl", "rpc_pipefs", "securityfs"),
    *("selinuxfs", "smackfs", "sysfs", "tracefs"),
)
_SWAPPED = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)  # what the systems say where a link has come in between


class LinkFound(ToolError):
    """A path that had no link on its way has one now."""


class Place:
    """A name in a directory that is held open. `path`: from the root on, without links; `.` for the root itself.

    No link when it was looked at; `open` finds out if it has become one.
    """

    __slots__ = ("directory", "name", "path", "root")

    def __init__(self, root: Root, directory: int, parents: Iterable[str], name: str) -> None:
        self.root = root
        self.directory = directory
        self.name = name
        self.path = "/".join(part for part in (*parents, name) if part != ".") or "."

    def status(self) -> os.stat_result | None:
        """What is there now; `None` if nothing is. Raises `OSError`."""
        try:
            return os.stat(self.name, dir_fd=self.directory, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def open(self) -> int:
        """A descriptor of the plain file here, for reading. Raises `ToolError` for anything else, and `OSError`.

        `OSError` with `ELOOP`: it has become a link.
        """
        self._check(os.stat(self.name, dir_fd=self.directory, follow_symlinks=False))
        number = os.open(self.name, _PLAIN, dir_fd=self.directory)
        try:
            self._check(os.fstat(number))
        except BaseException:
            os.close(number)
            raise
        return number

    def open_directory(self) -> int:
        """A descriptor of the directory here, to be listed. Raises `OSError`: `ENOTDIR`, `ELOOP` where it is none."""
        return os.open(self.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=self.directory)

    def _check(self, status: os.stat_result) -> None:
        if stat.S_ISLNK(status.st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), self.path)
        if stat.S_ISDIR(status.st_mode):
            raise ToolError(f"{self.path} is a directory, not a file")
        if not stat.S_ISREG(status.st_mode):
            raise ToolError(f"{self.path} is no plain file, but {kind_of(status.st_mode)}: it is not opened")
        if status.st_dev in self.root.kernels_devices:
            raise self.root._kernels(self.path)

    def __repr__(self) -> str:
        return f"<Place {self.path} under {self.root.path}>"


class Root:
    """A directory, as the place that tools are kept to. Raises `ConfigurationError` if there is none at `path`.

    What cannot be told apart is let through: a hard link to a file elsewhere, and another file system mounted inside.
    """

    __slots__ = ("_given", "_kernels_names", "kernels_devices", "path")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._given: str = os.path.abspath(os.path.expanduser(path))
        self.path: str = os.path.realpath(self._given)
        if not os.path.isdir(self.path):
            raise ConfigurationError(f"the root {os.fspath(path)!r} is no directory")
        self.kernels_devices = _kernels_devices() - {os.stat(self.path).st_dev}
        base = self.path.rstrip("/") + "/"
        self._kernels_names = frozenset(name[len(base) :] for name in _KERNEL if name.startswith(base))

    def is_kernels(self, path: str) -> bool:
        """Whether a directory, by its path from the root on, is the kernel's: `/proc`, `/sys` or `/dev`."""
        return path in self._kernels_names

    def _kernels(self, path: str) -> ToolError:
        return ToolError(f"{path} is no file on a disk, but a view into the kernel: it is not opened")

    @contextmanager
    def at(self, path: str, *, make_parents: bool = False, follow: bool = True) -> Generator[Place]:
        """The place that `path` means, links followed; nothing need be there yet. Blocks for as long as the disk does.

        `path`: relative to the root, or absolute and under it. `make_parents`: makes the directories that are missing;
        if the block raises, they are removed again, unless somebody has put something into them.
        `follow`: False raises `LinkFound` where a link is on the way. Raises `ToolError` for a path that leads out, and
        `OSError`.
        """
        walk = _Walk(self, path, make_parents, follow)
        try:
            yield walk.go(self.parts(path))
        except BaseException:
            walk.remove_made()
            raise
        finally:
            walk.close()

    @contextmanager
    def open(self, path: str) -> Generator[tuple[int, Place]]:
        """A descriptor of the plain file that `path` means, and its place. Raises as `at`, and as `Place.open`."""
        for _ in range(MOST_TRIES):
            with self.at(path) as place:
                try:
                    number = place.open()
                except OSError as error:
                    if error.errno in _SWAPPED:
                        continue  # it has become a link since it was looked at: the walk begins anew
                    raise
                try:
                    yield number, place
                finally:
                    os.close(number)
                return
        raise ToolError(f"{path} keeps changing into a link: it is not opened")

    def name_of(self, path: str) -> str:
        """The path from the root on, without links, also of what is not there yet. Raises `ToolError`, `OSError`."""
        walk = _Walk(self, path, make_parents=False, follow=True)
        try:
            return walk.go(self.parts(path)).path
        except FileNotFoundError:
            return walk.name()
        finally:
            walk.close()

    def parts(self, path: str) -> list[str]:
        """The components of a path as a model gives it. Raises `ToolError`."""
        if "\0" in path:
            raise ToolError("a path cannot hold a NUL character")
        if len(path) > LONGEST_PATH:
            raise ToolError(f"the path is longer than {LONGEST_PATH:,} characters")
        if not path.startswith("/"):
            return _split(path)
        for base in (self._given, self.path):
            if path == base or path.startswith(base.rstrip("/") + "/"):
                return _split(path[len(base) :])
        raise self._outside(path)

    def _outside(self, path: str) -> ToolError:
        return ToolError(f"{path} is outside of {self.path}: use a path inside, relative to it")

    def __repr__(self) -> str:
        return f"Root({self.path!r})"


class _Walk:
    """One path walked: the descriptors of the directories come by, the root's first."""

    def __init__(self, root: Root, path: str, make_parents: bool, follow: bool) -> None:
        self._root = root
        self._path = path
        self._make_parents = make_parents
        self._may_follow = follow
        self._links = 0
        self._names: list[str] = []
        self._pending: deque[str] = deque()
        self._made: list[tuple[int, str]] = []  # a directory's descriptor, and the name of what was made in it
        self._opened = [os.open(root.path, _DIRECTORY)]

    def go(self, parts: list[str]) -> Place:
        pending = self._pending = deque(parts)
        while pending:
            name = pending.popleft()
            if name == "..":
                self._back()
            elif (target := self._link(name)) is not None:
                pending.extendleft(reversed(self._follow(target)))
            elif not pending:
                return Place(self._root, self._opened[-1], self._names, name)
            elif not self._enter(name):
                pending.appendleft(name)  # a link has been swapped in: it is read, as all are
                self._count()
        return Place(self._root, self._opened[-1], self._names, ".")

    def _back(self) -> None:
        if not self._names:
            raise self._root._outside(self._path)
        self._names.pop()
        left = self._opened.pop()
        self._remove_made_in(left)
        os.close(left)

    def _link(self, name: str) -> str | None:
        try:
            return os.readlink(name, dir_fd=self._opened[-1])
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.EINVAL:
                return None  # no link
            raise

    def _follow(self, target: str) -> list[str]:
        if not self._may_follow:
            raise LinkFound(f"{self._path} leads by a link to {target}")
        self._count()
        if not target.startswith("/"):
            return _split(target)
        try:
            parts = self._root.parts(target)
        except ToolError:
            raise ToolError(
                f"{self._path} leads by a link to {target}, which is outside of {self._root.path}"
            ) from None
        while self._names:
            self._back()
        return parts

    def _count(self) -> None:
        self._links += 1
        if self._links > MOST_LINKS:
            raise ToolError(f"{self._path} leads through too many links")

    def _enter(self, name: str) -> bool:
        """Goes into a directory; `False` where a link is now."""
        if len(self._names) == DEEPEST:
            raise self._too_deep()
        if self._root.is_kernels("/".join((*self._names, name))):
            raise self._root._kernels(self._path)
        if self._make_parents:
            self._make(name)
        try:
            self._opened.append(os.open(name, _DIRECTORY, dir_fd=self._opened[-1]))
        except FileNotFoundError:
            self._pending.appendleft(name)
            raise
        except OSError as error:
            if error.errno in _SWAPPED and self._link(name) is not None:
                return False
            raise
        self._names.append(name)
        return True

    def _make(self, name: str) -> None:
        try:
            os.mkdir(name, dir_fd=self._opened[-1])
        except FileExistsError:
            return  # as it should be; what it is, `open` finds out
        self._made.append((self._opened[-1], name))

    def name(self) -> str:
        """The path from the root on, where a walk has ended because something was not there. Raises `OSError`."""
        if ".." in self._pending:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._path)
        if len(self._names) + len(self._pending) > DEEPEST + 1:
            raise self._too_deep()
        return "/".join((*self._names, *self._pending))

    def _too_deep(self) -> ToolError:
        return ToolError(f"{self._path} goes through more than {DEEPEST} directories")

    def remove_made(self) -> None:
        """Removes the directories that were made on the way, as far as they are empty."""
        for directory in reversed(self._opened):
            self._remove_made_in(directory)

    def _remove_made_in(self, directory: int) -> None:
        """Those made in this directory; before its descriptor is closed."""
        for made in [each for each in self._made if each[0] == directory]:
            self._made.remove(made)
            with suppress(OSError):
                os.rmdir(made[1], dir_fd=directory)

    def close(self) -> None:
        while self._opened:
            os.close(self._opened.pop())


def _split(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _kernels_devices() -> frozenset[int]:
    """The devices of the kernel's own file systems, wherever they are mounted.

    Source: https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html
    """
    found = {os.stat(path).st_dev for path in ("/proc", "/sys") if Path(path).is_dir()}
    try:
        mounts = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return frozenset(found)
    for mount in mounts:
        before, _, after = mount.partition(" - ")
        if after.split(" ", 1)[0] in _KERNELS_TYPES:
            major, minor = before.split(" ")[2].split(":")
            found.add(os.makedev(int(major), int(minor)))
    return frozenset(found)


def kind_of(mode: int) -> str:
    """What a file of this mode is, in words."""
    kinds = (
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISLNK, "a link"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )
    return next((words for is_it, words in kinds if is_it(mode)), "a plain file")
