"""One program, started: under a supervisor, or where there can be none as a child of this process."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from halter.children import supervised
from halter.children.leader import Leader
from halter.children.limits import TreeLimits
from halter.errors import SandboxUnavailable


def start(
    argv: Sequence[str],
    environment: Mapping[str, str],
    directory: str,
    descriptors: Sequence[int],
    limits: TreeLimits | None = None,
) -> Leader:
    """Starts a program in a session of its own; returns when it has been found and loaded.

    `descriptors`: its stdin, stdout and stderr. If there are more, the program inherits them as well, and their numbers
    there become its last arguments. Raises `OSError` if there is no such program or directory, `ValueError` for a NUL,
    and `SandboxUnavailable` for limits where there is no supervisor.
    """
    leader = supervised.start(argv, environment, directory, descriptors, limits)
    if leader is not None:
        return leader
    if limits is not None:
        raise SandboxUnavailable(
            "the sandbox cannot hold its limits here: they need a supervisor, which needs Linux, /proc, and a Python "
            "in sys.executable that this user may run; leave out memory=, processes=, cpu_seconds= and seconds="
        )
    return _start_child(argv, environment, directory, descriptors)


def _start_child(
    argv: Sequence[str], environment: Mapping[str, str], directory: str, descriptors: Sequence[int]
) -> Leader:
    stdin, stdout, stderr, *more = descriptors
    process = subprocess.Popen(
        [*argv, *map(str, more)],
        cwd=directory,
        env=environment,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=more,
        start_new_session=True,
    )
    process.returncode = 0  # it is waited for by its Leader; `Popen` must neither do that nor complain
    return Leader(process.pid)
