"""What a sandbox would leave open: Unix sockets, which a read-only mount does not close; and repositories, in which git
and Mercurial find the names of programs that they run on this side.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterator
from pathlib import Path

REPOSITORIES = (".git", ".hg")
MOST_DIRECTORIES = 500  # that are looked into for repositories, the nearest first
SKIPPED = frozenset((*REPOSITORIES, "node_modules", "__pycache__", ".venv"))
# Of a git directory that is itself writable: what names programs, or other directories that do.
_SETTINGS = ("hooks", "config", "config.worktree", "modules", "worktrees")
_GIT = ("HEAD", "objects", "refs")  # by which git knows one


def repositories(top: str) -> tuple[str, ...]:
    """What is to stay as it is below a writable directory, as paths from there; the nearest first.

    Repositories below it as a whole; of a git directory that is itself writable, its hooks and settings. Looks into
    `MOST_DIRECTORIES` directories.
    """
    found: list[str] = []
    if all(os.path.exists(f"{top}/{name}") for name in _GIT):
        found += [name for name in _SETTINGS if os.path.lexists(f"{top}/{name}")]
    left = deque([""])
    for _ in range(MOST_DIRECTORIES):
        if not left:
            break
        below = left.popleft()
        try:
            with os.scandir(f"{top}/{below}") as entries:
                for entry in entries:
                    if entry.name in REPOSITORIES:
                        found.append(f"{below}{entry.name}")
                    elif entry.name not in SKIPPED and entry.is_dir(follow_symlinks=False):
                        left.append(f"{below}{entry.name}/")
        except OSError:
            continue  # gone, no directory, or not ours to read
    return tuple(found)


def unix_sockets(*, to_all: bool) -> Iterator[str]:
    """The real paths of the Unix sockets that are bound on this machine, in this network namespace (proc_net_unix(5)).

    `to_all`: those alone that every user can reach.
    """
    seen: set[str] = set()
    for line in _table():
        path = line.split(None, 7)[7] if line.count(" /") else ""
        if not path.startswith("/"):
            continue  # it has no name, or an abstract one
        path = os.path.realpath(path)
        if path not in seen and _is_socket(path) and not (to_all and not is_reachable(path)):
            seen.add(path)
            yield path


def _table() -> list[str]:
    try:
        return Path("/proc/net/unix").read_text(errors="surrogateescape").splitlines()[1:]
    except OSError:
        return []


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


def is_reachable(path: str) -> bool:
    """True if every user may go through the directories above it."""
    try:
        return all(os.stat(parent).st_mode & stat.S_IXOTH for parent in Path(path).parents)
    except OSError:
        return False
