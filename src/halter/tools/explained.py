"""What the operating system says about a path, in words that tell a model what to do."""

from __future__ import annotations

import difflib
import os
from itertools import islice

from halter.errors import ToolError
from halter.tools.root import Root

MOST_NAMES = 2000  # of a directory that are compared with a name that is not there


def explained(root: Root, path: str, error: OSError) -> ToolError:
    """The error for the model. `path`: as the model gave it."""
    match error:
        case FileNotFoundError():
            return ToolError(f"there is no {path}{_near(root, path)}")
        case NotADirectoryError():
            return ToolError(f"{path} goes through something that is no directory, or is itself a file")
        case PermissionError():
            return ToolError(f"{path} may not be used: {error.strerror}")
        case _:
            return ToolError(f"{path}: {error.strerror or error}")


def _near(root: Root, path: str) -> str:
    """Names that are there and look like the one that is not."""
    parent, _, name = path.rstrip("/").rpartition("/")
    try:
        with root.at(parent or ("/" if path.startswith("/") else ".")) as place:
            directory = place.open_directory()
            try:
                with os.scandir(directory) as scan:
                    there = [entry.name for entry in islice(scan, MOST_NAMES)]
            finally:
                os.close(directory)
    except (OSError, ToolError):
        return ""
    near = difflib.get_close_matches(name, there, 3)
    return f"; did you mean {' or '.join(f'{parent}/{one}' if parent else one for one in near)}?" if near else ""
