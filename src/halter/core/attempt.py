"""A run's context for one request that may come to nothing: what was begun for it can be forgotten."""

from __future__ import annotations

from halter.core.context import RunContext
from halter.core.metering import Allowance
from halter.core.reply import Reply


class Attempt(RunContext):
    """The context of `ctx`'s run, for one request to a model: it knows what that model has begun."""

    __slots__ = ("_begun", "_ctx", "_said")

    def __init__(self, ctx: RunContext) -> None:
        super().__init__(ctx._execution)
        self._ctx = ctx
        self._begun: list[Reply] = []
        self._said: Reply | None = None  # of a model that answers by `ctx.text`; the run closes it

    def reply(self, allowance: Allowance | None = None) -> Reply:
        reply = self._ctx.reply(allowance)  # which may be an attempt itself
        self._begun.append(reply)
        return reply

    def _open_reply(self) -> Reply:
        self._said = self._ctx._open_reply()
        return self._said

    def close_reply(self) -> None:
        self._ctx.close_reply()

    @property
    def has_shown(self) -> bool:
        """Whether somebody has seen anything of an answer."""
        return any(reply.shown for reply in (*self._begun, *(() if self._said is None else (self._said,))))

    def discard(self) -> None:
        """Forgets the messages of which nothing was shown."""
        for reply in self._begun:
            reply.discard()
