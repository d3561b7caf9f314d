"""Patches as models write them: the format of Codex (`*** Begin Patch`) and unified diffs, as git makes them.

Read leniently where nothing can be misunderstood: white space around markers, a here-document or a code fence around
it all, wrong counts of lines in a hunk's head.

Sources: https://github.com/openai/codex/tree/main/codex-rs/apply-patch, https://git-scm.com/docs/diff-format
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

import msgspec

from halter.errors import ToolError

MOST_HUNKS = 500  # of one patch; each is looked for in all of its file
BEGIN, END = "*** Begin Patch", "*** End Patch"
_ADD, _DELETE, _UPDATE, _MOVE = "*** Add File:", "*** Delete File:", "*** Update File:", "*** Move to:"
_END_OF_FILE = "*** End of File"
_SPANS = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_REFUSED = {
    "GIT binary patch": "changes a binary file",
    "Binary files ": "changes a binary file",
    "old mode ": "changes the mode of a file",
    "copy from ": "copies a file",
    "new file mode 12": "makes a link",
    "new file mode 16": "makes a submodule",
}

Sign: TypeAlias = Literal[" ", "+", "-"]
Kind: TypeAlias = Literal["add", "delete", "update"]


class Hunk(msgspec.Struct, frozen=True, kw_only=True):
    """Lines that are replaced together. `lines`: with their sign.

    `headers`: lines that stand somewhere before it, in this order. `start`: the number of its first line, from 1, as
    far as the model knows. `is_at_end`: it ends with the file. `ends_line`: False if its new last line has no line end.
    """

    lines: tuple[tuple[Sign, str], ...]
    headers: tuple[str, ...] = ()
    start: int | None = None
    is_at_end: bool = False
    ends_line: bool | None = None

    @property
    def old(self) -> list[str]:
        return [text for sign, text in self.lines if sign != "+"]

    @property
    def new(self) -> list[str]:
        return [text for sign, text in self.lines if sign != "-"]


class FilePatch(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to one file. `to`: where it is moved. `content`: of a file that is added."""

    kind: Kind
    path: str
    hunks: tuple[Hunk, ...] = ()
    to: str | None = None
    content: str = ""


def read_patch(text: str) -> list[FilePatch]:
    """The changes, in their order. Raises `ToolError` that says in which line what is wrong."""
    lines = text.replace("\r\n", "\n").split("\n")
    begins = next((number for number, line in enumerate(lines) if line.strip() == BEGIN), None)
    if begins is not None and not any(_is_unified_head(lines, number) for number in range(begins)):
        found = _Codex(lines, begins).read()
    elif any(_is_unified_head(lines, number) for number in range(len(lines))):
        found = _Unified(lines).read()
    else:
        raise ToolError(
            f"this is no patch: it begins with {BEGIN!r} and ends with {END!r}, or it is a unified diff with "
            "'--- a/path' and '+++ b/path'"
        )
    if not found:
        raise ToolError("the patch changes no file")
    if sum(len(one.hunks) for one in found) > MOST_HUNKS:
        raise ToolError(f"the patch has more than {MOST_HUNKS} changes: give it in parts")
    return found


def _wrong(number: int, what: str) -> ToolError:
    """`number`: the line's, from 0."""
    return ToolError(f"line {number + 1} of the patch: {what}")


# --- the format of Codex ------------------------------------------------------------------------------------


class _Codex:
    def __init__(self, lines: list[str], begins: int) -> None:
        self._lines = lines
        self._at = begins + 1
        self._end = next((n for n in range(len(lines) - 1, begins, -1) if lines[n].strip() == END), -1)
        if self._end < 0:
            raise ToolError(f"the patch does not end with {END!r}: it may have been cut off")

    def read(self) -> list[FilePatch]:
        found: list[FilePatch] = []
        while self._at < self._end:
            line = self._lines[self._at].strip()
            if line:
                found.append(self._file(line))
            else:
                self._at += 1
        return found

    def _file(self, head: str) -> FilePatch:
        begun = self._at
        self._at += 1
        if head.startswith(_ADD):
            return FilePatch(kind="add", path=self._path(head, _ADD, begun), content=self._content())
        if head.startswith(_DELETE):
            return FilePatch(kind="delete", path=self._path(head, _DELETE, begun))
        if not head.startswith(_UPDATE):
            raise _wrong(begun, f"{head[:80]!r} is none of '{_ADD} …', '{_DELETE} …' and '{_UPDATE} …'")
        path, to = self._path(head, _UPDATE, begun), None
        if self._at < self._end and self._lines[self._at].strip().startswith(_MOVE):
            to = self._path(self._lines[self._at].strip(), _MOVE, self._at)
            self._at += 1
        hunks = self._hunks()
        if not hunks and to is None:
            raise _wrong(begun, f"nothing follows that changes {path}")
        return FilePatch(kind="update", path=path, hunks=hunks, to=to)

    def _path(self, line: str, marker: str, number: int) -> str:
        path = line.removeprefix(marker).strip()
        if not path:
            raise _wrong(number, f"{marker!r} is followed by no path")
        return path

    def _content(self) -> str:
        added: list[str] = []
        while self._at < self._end and self._lines[self._at].startswith("+"):
            added.append(f"{self._lines[self._at][1:]}\n")
            self._at += 1
        return "".join(added)

    def _hunks(self) -> tuple[Hunk, ...]:
        hunks: list[Hunk] = []
        while self._at < self._end and not self._lines[self._at].startswith("***"):
            if self._lines[self._at].strip() or not hunks:
                hunks.append(self._hunk(is_first=not hunks))
            else:
                self._at += 1
        return tuple(hunks)

    def _hunk(self, *, is_first: bool) -> Hunk:
        begun, headers, start = self._at, list[str](), None
        while self._at < self._end and self._lines[self._at].startswith("@@"):
            head = self._lines[self._at]
            if spans := _SPANS.match(head):
                start = int(spans[1])
            elif header := head[2:].removeprefix(" ").removesuffix(" @@"):
                headers.append(header)
            self._at += 1
        if self._at == begun and not is_first:
            raise _wrong(begun, f"a further change of the file begins with @@, not with {self._lines[begun][:80]!r}")
        lines: list[tuple[Sign, str]] = []
        while self._at < self._end and (signed := _signed(self._lines[self._at])) is not None:
            lines.append(signed)
            self._at += 1
        if not lines:
            raise _wrong(min(self._at, self._end), "a line of a change begins with a space, + or -")
        is_at_end = self._at < self._end and self._lines[self._at].strip() == _END_OF_FILE
        self._at += is_at_end
        return Hunk(lines=tuple(lines), headers=tuple(headers), start=start, is_at_end=is_at_end)


def _signed(line: str) -> tuple[Sign, str] | None:
    """A line of a hunk; an empty one stands for an empty line of context."""
    if not line:
        return " ", ""
    match line[0]:
        case " " | "+" | "-" as sign:
            return sign, line[1:]
        case _:
            return None


# --- unified diffs ------------------------------------------------------------------------------------------


def _is_unified_head(lines: list[str], number: int) -> bool:
    line = lines[number]
    if line.startswith("diff --git "):
        return True
    return line.startswith("--- ") and number + 1 < len(lines) and lines[number + 1].startswith("+++ ")


class _Unified:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0

    def read(self) -> list[FilePatch]:
        found: list[FilePatch] = []
        while self._at < len(self._lines):
            if _is_unified_head(self._lines, self._at):
                found.append(self._file())
            elif found and self._lines[self._at].startswith("@@"):
                raise _wrong(self._at, "this hunk belongs to no file: '--- a/path' and '+++ b/path' stand before it")
            else:
                self._at += 1  # what mails and shells put around a diff
        return found

    def _file(self) -> FilePatch:
        begun, names, extended = self._at, None, dict[str, str]()
        if self._lines[self._at].startswith("diff --git "):
            names = _names_of_git(self._lines[self._at].removeprefix("diff --git "))
            self._at += 1
            extended = self._extended()
        if self._at + 1 < len(self._lines) and self._lines[self._at].startswith("--- "):
            names = _path_of(self._lines[self._at][4:]), _path_of(self._lines[self._at + 1][4:])
            self._at += 2
        hunks = self._hunks()
        if "rename from" in extended and "rename to" in extended:
            before, after = _unquoted(extended["rename from"]), _unquoted(extended["rename to"])
            return FilePatch(kind="update", path=before, to=after, hunks=hunks)
        if names is None:
            raise _wrong(begun, "the names of the files cannot be read: write '--- a/path' and '+++ b/path'")
        return self._of(begun, _without_prefixes(*names), extended, hunks)

    def _of(
        self, begun: int, names: tuple[str | None, str | None], extended: dict[str, str], hunks: tuple[Hunk, ...]
    ) -> FilePatch:
        before, after = names
        if after is None or "deleted file mode" in extended:
            if before is None:
                raise _wrong(begun, "it names no file")
            return FilePatch(kind="delete", path=before, hunks=hunks)
        if before is None or "new file mode" in extended:
            return FilePatch(kind="add", path=after, content=self._content(begun, hunks))
        if not hunks:
            raise _wrong(begun, f"nothing follows that changes {after}")
        return FilePatch(kind="update", path=before, to=after if after != before else None, hunks=hunks)

    def _content(self, begun: int, hunks: tuple[Hunk, ...]) -> str:
        if any(hunk.old for hunk in hunks):
            raise _wrong(begun, "a file that is added has lines with + only")
        added = [line for hunk in hunks for line in hunk.new]
        ends_line = not hunks or hunks[-1].ends_line is not False
        return "\n".join(added) + ("\n" if added and ends_line else "")

    def _extended(self) -> dict[str, str]:
        """Git's lines between the names and the hunks."""
        found: dict[str, str] = {}
        while self._at < len(self._lines) and not self._lines[self._at].startswith(("--- ", "@@", "diff --git ")):
            line = self._lines[self._at]
            for begin, what in _REFUSED.items():
                if line.startswith(begin):
                    raise _wrong(self._at, f"it {what}, which this tool does not do")
            for name in ("rename from", "rename to", "new file mode", "deleted file mode"):
                if line.startswith(f"{name} "):
                    found[name] = line[len(name) + 1 :]
            self._at += 1
        return found

    def _hunks(self) -> tuple[Hunk, ...]:
        hunks: list[Hunk] = []
        while (at := self._past_empty()) < len(self._lines) and self._lines[at].startswith("@@"):
            self._at = at
            hunks.append(self._hunk())
        return tuple(hunks)

    def _past_empty(self) -> int:
        at = self._at
        while at < len(self._lines) and not self._lines[at]:
            at += 1
        return at

    def _hunk(self) -> Hunk:
        head, begun = _SPANS.match(self._lines[self._at]), self._at
        self._at += 1
        end = None if head is None else self._end_by_counts(int(head[2] or 1), int(head[4] or 1))
        lines: list[tuple[Sign, str]] = []
        ends_line: bool | None = None
        for line in self._lines[self._at : self._end_by_sight() if end is None else end]:
            signed = _signed(line)
            if signed is not None:
                lines.append(signed)
            elif lines and lines[-1][0] != "-":  # "\ No newline at end of file"
                ends_line = False
            self._at += 1
        if ends_line is None and head is not None:
            ends_line = True
        if not lines:
            raise _wrong(begun, "no line follows that begins with a space, + or -")
        header = () if head is not None else _header(self._lines[begun])
        start = None if head is None else max(1, int(head[1]))
        return Hunk(lines=tuple(lines), headers=header, start=start, ends_line=ends_line)

    def _end_by_counts(self, old: int, new: int) -> int | None:
        """Behind the hunk's last line, by the counts of its head; `None` if they do not fit what follows."""
        at = self._at
        while (old > 0 or new > 0) and at < len(self._lines):
            signed = _signed(self._lines[at])
            if signed is None and not self._lines[at].startswith("\\"):
                return None
            if signed is not None:
                old -= signed[0] != "+"
                new -= signed[0] != "-"
            at += 1
        if at < len(self._lines) and self._lines[at].startswith("\\"):
            at += 1
        is_whole = (old, new) == (0, 0) and (at == len(self._lines) or not self._goes_on(at))
        return at if is_whole else None

    def _goes_on(self, at: int) -> bool:
        """Whether more lines of the hunk follow than its head has counted."""
        line = self._lines[at]
        return line.startswith((" ", "+", "-")) and not _is_unified_head(self._lines, at) and line.strip() != "--"

    def _end_by_sight(self) -> int:
        """Behind the last line that looks like one of the hunk. Empty lines at its end are not the file's."""
        at = self._at
        while at < len(self._lines) and not _is_unified_head(self._lines, at):
            if _signed(self._lines[at]) is None and not self._lines[at].startswith("\\"):
                break
            at += 1
        while at > self._at and not self._lines[at - 1]:
            at -= 1
        return at


def _header(line: str) -> tuple[str, ...]:
    header = line[2:].strip().removesuffix("@@").strip()
    return (header,) if header and header != "..." else ()


def _path_of(name: str) -> str | None:
    """A name as `---` and `+++` give it; `None` for no file."""
    name = name.split("\t", 1)[0].rstrip()
    return None if name == "/dev/null" else _unquoted(name)


def _without_prefixes(before: str | None, after: str | None) -> tuple[str | None, str | None]:
    """Git's `a/` and `b/` are taken off where both have them."""
    if (before is None or before.startswith("a/")) and (after is None or after.startswith("b/")):
        return before and before[2:], after and after[2:]
    return before, after


def _names_of_git(names: str) -> tuple[str, str] | None:
    """The names behind `diff --git`, where both are the same but for their prefix, as they are without a rename."""
    half = len(names) // 2
    before, after = names[:half], names[half + 1 :]
    if names[half : half + 1] != " ":
        return None
    before, after = _unquoted(before), _unquoted(after)
    return (before, after) if before[2:] == after[2:] else None


def _unquoted(name: str) -> str:
    """A name that git has put into quotes, for what is no plain ASCII, as C writes it."""
    if len(name) < 2 or not (name.startswith('"') and name.endswith('"')):
        return name
    octal = re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8) & 255]), name[1:-1].encode())
    plain = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}
    return re.sub(rb"\\(.)", lambda match: plain.get(match[1], match[1]), octal).decode("utf-8", "surrogateescape")
