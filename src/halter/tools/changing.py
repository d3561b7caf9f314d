"""A tool that changes one file: what it would do is shown as a diff, and what was approved is what is done.

1. What was compared or shown is kept with the call's arguments: the file that its path led to, and what that held. If
the path leads to another file when the call runs, or the file holds something else, nothing is changed. 2. Without a
question, a change that somebody else was faster than is made anew. 3. A stop lets a change that has begun finish: it
takes milliseconds, and the model is told the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from halter.core.ports import Question
from halter.core.tool_context import ToolContext
from halter.errors import ToolError
from halter.tools.approval import Approval
from halter.tools.contents import Contents, Look, load
from halter.tools.diff import unified
from halter.tools.explained import explained
from halter.tools.function import FunctionTool
from halter.tools.replacing import Changed, check, replace
from halter.tools.root import LinkFound, Root
from halter.visible import visible_line

Plan: TypeAlias = Callable[..., bytes]  # (seen, path, **arguments but the path) → what the file should hold
MOST_TRIES = 20
TIMEOUT = 30.0  # seconds for a call


class Seen(dict[str, Any]):
    """A call's arguments. `path`: the real path that was approved; `None` where nothing has to be.

    `was_shown`: somebody has seen the change, and `held`, what the file held then (`None`: there was no file).
    """

    path: str | None = None
    was_shown: bool = False
    held: bytes | None = None


class FileChange(FunctionTool[..., str]):
    """A tool whose function takes `path` and more; `plan`, called with the same, says what it makes of the file.

    `makes_parents`: makes the directories that are missing.

    `approval`: patterns are compared with the file's real path, links followed, from the root on; a predicate gets it.
    """

    def __init__(
        self,
        root: Root,
        fn: Callable[..., str],
        plan: Plan,
        *,
        approval: Approval | None,
        timeout: float,
        makes_parents: bool = False,
    ) -> None:
        super().__init__(
            fn, approval=approval, cancel="must_finish", timeout=timeout, risk="changes", does=self._changed_file
        )
        self._root = root
        self._plan = plan
        self._makes_parents = makes_parents

    def unasked(self, **arguments: Any) -> str:
        """Makes the change at once; blocks. Returns what the model is told. Raises `ToolError`."""
        return self._change(Seen(arguments), lambda: None)

    def read(self, arguments: str) -> Seen:
        return Seen(super().read(arguments))

    def _changed_file(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """A yes that is remembered holds for the file, whatever is changed in it."""
        return {"path": f"{self._root.path}/{arguments['path']}"}

    async def question(self, arguments: dict[str, Any], ctx: ToolContext) -> Question | None:
        assert isinstance(arguments, Seen)  # `read` has made it
        if self._rule.never:
            return None
        arguments.path = await ctx.in_thread(self._resolved, arguments["path"])
        whole = self._arguments.completed({**arguments, "path": arguments.path})
        need = await self._rule.need(self.name, whole, ctx)
        if need is None:
            return None
        return need.question(
            await ctx.in_thread(self._preview, arguments, arguments.path, ctx.token.raise_if_cancelled)
        )

    async def call(self, arguments: dict[str, Any], ctx: ToolContext) -> str:
        assert isinstance(arguments, Seen)
        return await ctx.blocking(self._change, arguments, ctx.token.raise_if_cancelled)

    def _resolved(self, given: str) -> str:
        """The real path. Raises `ToolError` if there is none: then nothing can be approved."""
        try:
            return self._root.name_of(given)
        except OSError as error:
            raise explained(self._root, given, error) from error

    def _preview(self, arguments: Seen, path: str, look: Look) -> str:
        """The diff that somebody is asked about. Raises `ToolError` if the call cannot succeed: then nobody is."""
        try:
            held = self._load(path, look)
        except OSError as error:
            raise explained(self._root, arguments["path"], error) from error
        planned = self._planned(held, path, arguments)
        arguments.was_shown, arguments.held = True, held
        return (
            f"{self.name} wants to change {visible_line(f'{self._root.path}/{path}')}:\n\n{_diff(path, held, planned)}"
        )

    def _load(self, path: str, look: Look) -> bytes | None:
        try:
            with self._root.at(path, follow=False) as place:
                check(place)
                return load(place, look)
        except FileNotFoundError:
            return None  # its directory is made with it

    def _planned(self, seen: bytes | None, path: str, arguments: Mapping[str, Any]) -> bytes:
        return self._plan(seen, path, **{name: value for name, value in arguments.items() if name != "path"})

    def _change(self, arguments: Seen, look: Look) -> str:
        try:
            return self._attempted(arguments, look)
        except OSError as error:
            raise explained(self._root, arguments["path"], error) from error

    def _attempted(self, arguments: Seen, look: Look) -> str:
        path, is_bound = arguments.path or arguments["path"], arguments.path is not None
        gone: FileNotFoundError | None = None
        for _ in range(MOST_TRIES):
            try:
                with self._root.at(path, make_parents=self._makes_parents, follow=not is_bound) as place:
                    held = load(place, look)
                    if arguments.was_shown and arguments.held != held:
                        raise not_as_approved(place.path)
                    data = self._planned(held, place.path, arguments)
                    replace(place, held, data, look)
                    return _said(place.path, held, data)
            except LinkFound:
                raise not_as_approved(path) from None
            except Changed:
                if arguments.was_shown:
                    raise
            except FileNotFoundError as error:
                if not self._makes_parents:
                    raise
                gone = error  # another call, which has failed, has removed a directory that both had made
        if gone is not None:
            raise gone
        raise Changed(f"{arguments['path']} keeps changing: somebody else is writing it")


def not_as_approved(path: str) -> Changed:
    """The error for a file that is not any more what somebody, or a pattern, said yes to."""
    return Changed(f"{path} has changed since the change was approved: read it, and ask again")


def _diff(path: str, seen: bytes | None, planned: bytes) -> str:
    return unified(path, None if seen is None else text_of(seen, path), text_of(planned, path))


def text_of(data: bytes, path: str) -> str:
    """What a file holds, for a diff; what is no text is named as such."""
    try:
        return Contents.of(data, path).text
    except ToolError as error:
        return f"({error})\n"


def _said(path: str, seen: bytes | None, data: bytes) -> str:
    lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    did = "Made" if seen is None else "Changed"
    return f"{did} {path}: it has {lines:,} lines, {len(data):,} bytes now."
