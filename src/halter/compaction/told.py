"""The conversation of a run as its model is told it."""

from __future__ import annotations

from halter.core.context import RunContext
from halter.core.history import for_model
from halter.core.settings import settings
from halter.messages import Message


class Told:
    """What came before the run, or what a compaction has put in its place, is repaired once; what is new is whole."""

    def __init__(self, ctx: RunContext) -> None:
        self._ctx = ctx
        self._messages: list[Message] = []
        self._known = 0  # messages of the run's conversation that are in it
        self._compaction: tuple[int, tuple[Message, ...]] | None = None

    def messages(self) -> list[Message]:
        """As any provider accepts it. It grows with the conversation; after a compaction it is another list."""
        messages, compaction = self._ctx.messages, self._ctx.compaction
        if compaction is not self._compaction:
            self._compaction, self._known, self._messages = compaction, 0, []
        if self._known:
            self._messages.extend(messages[self._known :])
        else:
            self._messages.extend(for_model(self.view(), marker=settings().stop_marker))
        self._known = len(messages)
        return self._messages

    def view(self) -> tuple[Message, ...]:
        """What the model is told, as it was said: with what stands for older messages in their place."""
        messages, compaction = self._ctx.messages, self._ctx.compaction
        if compaction is None:
            return messages
        upto, instead = compaction
        return (*instead, *messages[upto:])

    def begun(self) -> int | None:
        """Where in the view the run's own messages begin; `None`: something stands for the first of them, too."""
        base = self._ctx._execution.base
        upto, instead = self._ctx.compaction or (0, ())
        if upto <= base:
            return len(instead) + base - upto
        first = self._ctx.messages[base]  # inside of it, what the run was given was kept
        return next((at for at, message in enumerate(instead) if message is first), None)

    def place(self, upto: int, instead: tuple[Message, ...]) -> tuple[int, tuple[Message, ...]]:
        """That `instead` stands for the first `upto` of the view, in terms of the conversation: for `ctx.compact`."""
        compaction = self._ctx.compaction
        if compaction is None:
            return upto, instead
        known, before = compaction
        if upto >= len(before):
            return known + upto - len(before), instead
        return known, (*instead, *before[upto:])
