"""One program, started: under a supervisor, or where there can be none as a child of this process."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from halter.children import supervised
from halter.children.leader import Leader


def start(argv: Sequence[str], environment: Mapping[str, str], directory: str, descriptors: Sequence[int]) -> Leader:
    """Starts a program in a session of its own; returns when it has been found and loaded.

    `descriptors`: its stdin, stdout and stderr. If there is a fourth, the program inherits it as well, and its number
    there becomes the last argument. Raises `OSError` if there is no such program or directory, `ValueError` for a NUL.
    """
    leader = supervised.start(argv, environment, directory, descriptors)
    return leader if leader is not None else _start_child(argv, environment, directory, descriptors)


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
