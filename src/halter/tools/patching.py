"""`apply_patch`: a tool that changes, makes, removes and renames several files by one patch, all or none.

Somebody is asked with the diff of every file. What was shown, or what patterns fit, is what is done, as for tools that
change one file (`changing.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, NamedTuple

from halter.core.ports import Question
from halter.core.tool_context import ToolContext
from halter.errors import ToolError
from halter.tools.approval import Approval, Rule
from halter.tools.changing import MOST_TRIES, not_as_approved, text_of
from halter.tools.contents import Contents, Look, check_size, load
from halter.tools.diff import unified
from halter.tools.explained import explained
from halter.tools.function import FunctionTool
from halter.tools.patch_places import patched
from halter.tools.patch_text import FilePatch, read_patch
from halter.tools.replacing import Changed, Replacement, check, commit
from halter.tools.root import LinkFound, Place, Root
from halter.visible import visible_line

MOST_FILES = 50  # of one patch; each is held open while it is applied
LONGEST_PATCH = 2_000_000  # characters


class _Step(NamedTuple):
    """What a patch says about one file, and the real paths that it names."""

    patch: FilePatch
    path: str
    to: str | None


class _Outcome(NamedTuple):
    """What a file holds before and after; `like`: the file that it was before, if it was renamed."""

    seen: bytes | None
    data: bytes | None
    like: str | None


class Patch(dict[str, Any]):
    """A call's arguments. `steps`: what they say, once somebody was or might have been asked about it.

    `shown`: what the files held that somebody has seen in a diff; `None`: nobody has.
    """

    steps: list[_Step] | None = None
    shown: Mapping[str, bytes | None] | None = None


class PatchTool(FunctionTool[..., str]):
    """A tool whose function takes `patch`.

    `approval`: patterns are compared with the real path of each file that is changed, and all must fit; a predicate is
    called with `path` and `patch` for each.
    """

    def __init__(self, root: Root, fn: Callable[..., str], *, approval: Approval | None, timeout: float) -> None:
        super().__init__(fn, cancel="must_finish", timeout=timeout, risk=("changes", "destroys"))
        self._rule = Rule(approval, ("path", "patch"), risks=self.rules.risks)
        self._rule.check_names(self.name)
        self._root = root

    def unasked(self, patch: str) -> str:
        """Applies the patch at once; blocks. Returns what the model is told. Raises `ToolError`."""
        return self._change(Patch(patch=patch), lambda: None)

    def read(self, arguments: str) -> Patch:
        return Patch(super().read(arguments))

    async def question(self, arguments: dict[str, Any], ctx: ToolContext) -> Question | None:
        assert isinstance(arguments, Patch)  # `read` has made it
        if self._rule.never:
            return None
        steps = arguments.steps = await ctx.in_thread(self._steps, arguments["patch"])
        for path in dict.fromkeys(path for step in steps for path in (step.path, step.to) if path is not None):
            if await self._rule.asks({"path": path, "patch": arguments["patch"]}, ctx):
                preview = await ctx.in_thread(self._preview, arguments, steps, ctx.token.raise_if_cancelled)
                return Question(prompt=preview)  # a yes counts once: no pattern says what a patch does
        return None

    async def call(self, arguments: dict[str, Any], ctx: ToolContext) -> str:
        assert isinstance(arguments, Patch)
        return await ctx.blocking(self._change, arguments, ctx.token.raise_if_cancelled)

    def _steps(self, patch: str) -> list[_Step]:
        if len(patch) > LONGEST_PATCH:
            raise ToolError(f"the patch has {len(patch):,} characters: {LONGEST_PATCH:,} are the most")
        found = read_patch(patch)
        if len(found) > MOST_FILES:
            raise ToolError(f"the patch changes {len(found)} files: {MOST_FILES} are the most, give it in parts")
        return [_Step(one, self._real(one.path), None if one.to is None else self._real(one.to)) for one in found]

    def _real(self, path: str) -> str:
        try:
            return self._root.name_of(path)
        except OSError as error:
            raise explained(self._root, path, error) from error

    def _preview(self, arguments: Patch, steps: list[_Step], look: Look) -> str:
        """The diffs that somebody is asked about. Raises `ToolError` if the call cannot succeed: then nobody is."""
        outcomes = _worked_out(steps, partial(self._load, look), look)
        for path, outcome in outcomes.items():
            if outcome.data is not None:
                self._check(path)
        arguments.shown = {path: outcome.seen for path, outcome in outcomes.items()}
        shown = _with_renames(outcomes)
        files = "1 file" if len(shown) == 1 else f"{len(shown)} files"
        head = f"{self.name} wants to change {files} in {visible_line(self._root.path)}:"
        return "\n\n".join([head, *(_diff(path, outcome) for path, outcome in shown.items())])

    def _load(self, look: Look, path: str) -> bytes | None:
        try:
            with self._root.at(path, follow=False) as place:
                check(place, removed=True)
                return load(place, look)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise explained(self._root, path, error) from error

    def _check(self, path: str) -> None:
        with suppress(OSError), self._root.at(path, follow=False) as place:
            check(place)

    def _change(self, arguments: Patch, look: Look) -> str:
        for _ in range(MOST_TRIES):
            steps = arguments.steps or self._steps(arguments["patch"])
            try:
                return self._attempt(steps, arguments.shown, look)
            except LinkFound as error:
                if arguments.steps is not None:
                    raise not_as_approved("a file of the patch") from error
            except Changed:
                if arguments.shown is not None:
                    raise
            except OSError as error:
                raise explained(self._root, error.filename or "a file of the patch", error) from error
        raise Changed("the files keep changing: somebody else is writing them")

    def _attempt(self, steps: list[_Step], shown: Mapping[str, bytes | None] | None, look: Look) -> str:
        with ExitStack() as stack:
            places: dict[str, Place] = {}
            made = {path for step in steps for path in _made_by(step)}

            def seen(path: str) -> bytes | None:
                walk = self._root.at(path, make_parents=path in made, follow=False)
                try:
                    place = places[path] = stack.enter_context(walk)
                    return load(place, look)
                except FileNotFoundError as error:
                    if path in made:  # another call that failed has removed a directory that both had made
                        raise Changed(f"the directory of {path} has been removed meanwhile") from error
                    return None

            outcomes = _worked_out(steps, seen, look)
            for path, outcome in outcomes.items():
                if shown is not None and shown[path] != outcome.seen:
                    raise not_as_approved(path)
            commit(_replacements(outcomes, places), look)
        return "\n".join(_said(path, outcome) for path, outcome in _with_renames(outcomes).items())


def _made_by(step: _Step) -> Sequence[str]:
    if step.to is not None:
        return (step.to,)
    return (step.path,) if step.patch.kind == "add" else ()


# --- what a patch makes of the files ------------------------------------------------------------------------


def _worked_out(steps: list[_Step], load: Callable[[str], bytes | None], look: Look) -> dict[str, _Outcome]:
    """All files that are changed, by their real path. Raises `ToolError` if one step cannot be done."""
    files = _Files(load)
    for step in steps:
        look()
        _take(step, files, look)
    outcomes = {path: outcome for path, outcome in files.outcomes() if outcome.seen != outcome.data}
    if not outcomes:
        raise ToolError("the patch changes nothing: the files hold already what it makes of them")
    return outcomes


class _Files:
    """What the files hold, step by step."""

    def __init__(self, load: Callable[[str], bytes | None]) -> None:
        self._load = load
        self._seen: dict[str, bytes | None] = {}
        self._now: dict[str, bytes | None] = {}
        self._like: dict[str, str] = {}

    def held(self, path: str) -> bytes | None:
        if path not in self._now:
            self._now[path] = self._seen[path] = self._load(path)
        return self._now[path]

    def existing(self, path: str) -> bytes:
        held = self.held(path)
        if held is None:
            raise ToolError(f"there is no {path}")
        return held

    def put(self, path: str, data: bytes | None) -> None:
        if data is not None:
            check_size(len(data), path)
        self._now[path] = data

    def move(self, path: str, to: str, data: bytes) -> None:
        self.put(path, None)
        self.put(to, data)
        self._like[to] = self._like.pop(path, path)

    def outcomes(self) -> list[tuple[str, _Outcome]]:
        return [(path, _Outcome(self._seen[path], data, self._like.get(path))) for path, data in self._now.items()]


def _take(step: _Step, files: _Files, look: Look) -> None:
    path, to, patch = step.path, step.to, step.patch
    new = path if patch.kind == "add" else None if to == path else to
    if new is not None and files.held(new) is not None:
        raise ToolError(f"there is a file {new} already: update it, or delete it first")
    if patch.kind == "add":
        files.put(path, patch.content.encode())
        return
    data = files.existing(path)
    if patch.hunks:
        contents = Contents.of(data, path)
        data = contents.with_text(patched(contents.text, patch.hunks, path, look))
    if patch.kind == "delete":
        if patch.hunks and data:
            raise ToolError(f"{path} has more lines than the patch removes, which says that it deletes the file")
        files.put(path, None)
    elif to is None or to == path:
        files.put(path, data)
    else:
        files.move(path, to, data)


def _replacements(outcomes: Mapping[str, _Outcome], places: Mapping[str, Place]) -> list[Replacement]:
    """What is made before what is removed: a file that is renamed is never missing."""
    changes: list[Replacement] = []
    for path in sorted(outcomes, key=lambda path: outcomes[path].data is None):
        outcome = outcomes[path]
        like = None if outcome.like is None else places[outcome.like]
        changes.append(Replacement(places[path], outcome.seen, outcome.data, like))
    return changes


def _with_renames(outcomes: Mapping[str, _Outcome]) -> dict[str, _Outcome]:
    """As they are shown: a file that was renamed once, as the one that it was before."""
    shown = dict(outcomes)
    for path, outcome in outcomes.items():
        source = None if outcome.like is None else outcomes.get(outcome.like)
        if outcome.seen is None and source is not None and source.data is None and outcome.like in shown:
            shown[path] = _Outcome(source.seen, outcome.data, outcome.like)
            del shown[outcome.like]
        elif outcome.like is not None:
            shown[path] = _Outcome(outcome.seen, outcome.data, None)
    return shown


def _diff(path: str, outcome: _Outcome) -> str:
    old, new = (None if data is None else text_of(data, path) for data in (outcome.seen, outcome.data))
    renamed = "" if outcome.like is None else f"renamed from {visible_line(outcome.like)}\n"
    return f"{renamed}{unified(path, old, new)}"


def _said(path: str, outcome: _Outcome) -> str:
    if outcome.data is None:
        return f"Removed {path}."
    lines = outcome.data.count(b"\n") + (not outcome.data.endswith(b"\n") and bool(outcome.data))
    did = "Made" if outcome.seen is None else "Changed"
    if outcome.like is not None:
        did = f"Moved {outcome.like} to"
    return f"{did} {path}: it has {lines:,} lines, {len(outcome.data):,} bytes now."
