"""`python -m halter` and the `halter` command."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from halter.cli.main import run_command


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    return run_command(sys.argv[1:] if arguments is None else arguments)


if __name__ == "__main__":
    sys.exit(main())
