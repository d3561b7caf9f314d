"""Tools for the files under one directory: `read_file`, `glob`, `grep`, and where that is wanted `write_file`,
`edit_file` and `apply_patch`.

No path leads out of the root (`root.py`), no answer is larger than it should be, and each ends when its call does. What
changes a file asks first, with a diff, unless told otherwise.
"""

from __future__ import annotations

import asyncio
import os
from typing import Annotated, Any, TypeAlias

from halter.core.tool_context import ToolContext
from halter.errors import ToolError
from halter.tools import reading, searching
from halter.tools.approval import Approval
from halter.tools.changing import TIMEOUT, FileChange
from halter.tools.editing import edited, written
from halter.tools.explained import explained
from halter.tools.function import FunctionTool, tool
from halter.tools.isolated import call_in_process
from halter.tools.patching import PatchTool
from halter.tools.root import Root
from halter.tools.walking import SKIPPED

Where: TypeAlias = Root | str | os.PathLike[str]

MOST_LINES = 2000  # of one answer of `read_file`
MOST_NAMES = 200  # of one answer of `glob`
MOST_MATCHES = 500  # lines of one answer of `grep`
PATH = "The file's path, from the root on."


def files(
    root: Where,
    *,
    write: bool = False,
    approval: Approval | None = None,
    skip: tuple[str, ...] = SKIPPED,
) -> tuple[FunctionTool[..., Any], ...]:
    """The tools for the files under `root`: to read and to search, and with `write` to change.

    `approval`: for the tools that change something, as in `tool`; patterns are compared with the file's real path, from
    the root on. `skip`: names of directories that are not searched unless they are named. Raises `ConfigurationError`
    if the root is no directory.
    """
    place = _root(root)
    reads = (read_file(place), glob(place, skip=skip), grep(place, skip=skip))
    return (*reads, write_file(place, approval=approval), edit_file(place, approval=approval)) if write else reads


def _root(root: Where) -> Root:
    return root if isinstance(root, Root) else Root(root)


# --- reading ------------------------------------------------------------------------------------------------


def read_file(root: Where, *, timeout: float = TIMEOUT) -> FunctionTool[..., str]:
    """A tool that shows the lines of a text file, numbered. `timeout`: seconds for a call."""
    place = _root(root)

    def read_file(
        path: Annotated[str, PATH],
        ctx: ToolContext,
        offset: Annotated[int, "The number of the first line to show, from 1."] = 1,
        limit: Annotated[int, f"How many lines to show, {MOST_LINES} at most."] = MOST_LINES,
    ) -> str:
        """Shows the lines of a text file, each behind its number and a tab. A long file is read in parts: the answer
        says how to go on."""
        look = ctx.token.raise_if_cancelled
        try:
            return reading.numbered(place, path, offset, min(limit, MOST_LINES), look)
        except OSError as error:
            raise explained(place, path, error) from error

    return tool(read_file, timeout=timeout, risk="reads")


# --- searching ----------------------------------------------------------------------------------------------


def glob(root: Where, *, skip: tuple[str, ...] = SKIPPED, timeout: float = TIMEOUT) -> FunctionTool[..., str]:
    """A tool that finds files and directories by name, the newest first. `skip`: as for `files`."""
    place = _root(root)

    def glob(
        pattern: Annotated[str, "For example *.md, src/**/*.py or **/test_*.{js,ts}; ** stands for any directories."],
        ctx: ToolContext,
        path: Annotated[str, "The directory to look in, from the root on."] = ".",
    ) -> str:
        """Lists files and directories whose path matches a pattern, the newest first, directories with a slash. The
        pattern * lists one directory."""
        try:
            return searching.names(place, pattern, path, skip, MOST_NAMES, ctx.token.raise_if_cancelled)
        except OSError as error:
            raise explained(place, path, error) from error

    return tool(glob, timeout=timeout, risk="reads")


def grep(root: Where, *, skip: tuple[str, ...] = SKIPPED, timeout: float = TIMEOUT) -> FunctionTool[..., Any]:
    """A tool that finds lines by a regular expression, in a process of its own, which a stop ends. `skip`: as for
    `files`. `timeout`: seconds for a search; some expressions would take for ever."""
    place = _root(root)

    async def grep(
        pattern: Annotated[str, "A regular expression, as in Python; matched line by line."],
        ctx: ToolContext,
        path: Annotated[str, "The file or directory to search, from the root on."] = ".",
        glob: Annotated[str | None, "Only files of this name, as *.py, or of this path, as src/**/*.py."] = None,
        ignore_case: bool = False,
        context: Annotated[int, "Lines to show around each match, 20 at most."] = 0,
        files_only: Annotated[bool, "Show the paths of files that match, not the lines."] = False,
        limit: Annotated[int, f"How many matches to show, {MOST_MATCHES} at most."] = 100,
    ) -> str:
        """Finds the lines that match a regular expression, in all text files under a path. A match is shown as
        number:line under its file's path."""
        query = searching.Query(
            pattern=pattern,
            path=path,
            glob=glob,
            ignore_case=ignore_case,
            context=max(0, min(context, 20)),
            files_only=files_only,
            limit=max(1, min(limit, MOST_MATCHES)),
            skip=skip,
        )
        try:
            async with asyncio.timeout(timeout):
                return await call_in_process(searching.lines, (place.path, query), {}, ctx)
        except TimeoutError:
            raise ToolError(
                f"the search took longer than {timeout:g} s: use a simpler expression, without repetitions inside "
                "repetitions such as (a+)+, or a path further down"
            ) from None
        except OSError as error:
            raise explained(place, path, error) from error

    return tool(grep, risk="reads")


# --- changing -----------------------------------------------------------------------------------------------


def write_file(root: Where, *, approval: Approval | None = None, timeout: float = TIMEOUT) -> FunctionTool[..., str]:
    """A tool that makes or replaces a text file; whole or not at all. `approval`: as for `files`."""

    def write_file(path: Annotated[str, PATH], content: Annotated[str, "All of the file's new text."]) -> str:
        """Makes a file, with the directories it needs, or replaces all of one. To change a part, use edit_file."""
        return change.unasked(path=path, content=content)

    change = FileChange(_root(root), write_file, written, approval=approval, timeout=timeout, makes_parents=True)
    return change


def edit_file(root: Where, *, approval: Approval | None = None, timeout: float = TIMEOUT) -> FunctionTool[..., str]:
    """A tool that replaces exact text in a text file. `approval`: as for `files`."""

    def edit_file(
        path: Annotated[str, PATH],
        old: Annotated[str, "Text of the file, exactly, without line numbers; it must be there once."],
        new: Annotated[str, "The text to put in its place."],
        all: Annotated[bool, "Replace it wherever it is."] = False,
    ) -> str:
        """Replaces a piece of text in a file. Read the file first; the text must match exactly, white space too."""
        return change.unasked(path=path, old=old, new=new, all=all)

    change = FileChange(_root(root), edit_file, edited, approval=approval, timeout=timeout)
    return change


def apply_patch(root: Where, *, approval: Approval | None = None, timeout: float = TIMEOUT) -> FunctionTool[..., str]:
    """A tool that changes, adds, removes and renames text files by one patch: all of it is applied, or nothing.

    Args:
        root: The directory that no path leaves.
        approval: As for `files`; patterns must fit the path of each file, and a predicate gets `path` and `patch`.
        timeout: Seconds for a call.

    Raises:
        ConfigurationError: The root is no directory, or `approval` does not fit.
    """

    def apply_patch(patch: Annotated[str, "The patch, in the format of the description, or a unified diff."]) -> str:
        """Changes files by a patch: all of it is applied, or nothing. Read the files first. The format:

        *** Begin Patch
        *** Update File: path/from/root.py
        @@ class Name
         a line of context, up to three before and after a change
        -a line to remove
        +a line to add
        *** Add File: path/new.txt
        +each of its lines
        *** Delete File: path/old.txt
        *** End Patch

        "*** Move to: new/path" behind an Update line renames the file. "@@" may be followed by a line that stands
        before the change, such as that of its class or function; each further change of a file begins with "@@". The
        changes of a file stand in the order of its lines."""
        return change.unasked(patch)

    change = PatchTool(_root(root), apply_patch, approval=approval, timeout=timeout)
    return change
