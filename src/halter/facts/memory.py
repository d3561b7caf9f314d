"""An agent's memory in one run: what it recalls at the beginning, and what is learned from it afterwards."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from halter.core.context import RunContext
from halter.core.ports import Model
from halter.facts.facts import Facts
from halter.facts.learning import Learning
from halter.facts.recalled import Recalled
from halter.facts.recalling import fitting
from halter.facts.whose import Whose, whose
from halter.messages import Message
from halter.sessions.records import FactScope

PATIENCE = 5.0  # seconds for recalling: an answer that knows less is better than none
LONGEST_QUESTION = 4_000  # characters of the input by which facts are looked for
TAGS = ("memory",)
_logger = logging.getLogger("halter")


class Memory:
    """One run's use of an agent's `facts`; `model`: the agent's own, which learns if they name no other."""

    def __init__(self, facts: Facts, model: Model, ctx: RunContext) -> None:
        self._facts = facts
        self._model = facts.model or model
        self._ctx = ctx
        self._whose: Whose | None = None
        self._recalled = Recalled((), None)

    async def recall(self) -> None:
        """Looks for what fits the run's input. What goes wrong there fails no run: it goes on without, and says so.

        Events: `custom` `memory.recalled` or `memory.unavailable`.
        """
        about, ctx = await whose(self._ctx, self._facts.scope), self._ctx
        self._whose = about
        if about is None or not self._facts.recall:
            return
        asked = [message for message in ctx.input if message.role == "user"]
        text = "\n".join(message.text for message in asked)[:LONGEST_QUESTION]
        try:
            async with asyncio.timeout(PATIENCE):
                found = await fitting(self._facts, about.store, about.scope, text, ctx)
        except Exception as error:
            why = str(error) or type(error).__name__
            _logger.warning("run %s goes on without what is known of %s: %s", ctx.run_id, about.scope.name, why)
            ctx.emit("memory.unavailable", {**_as_data(about.scope), "why": why})
            return
        self._recalled = Recalled(tuple(found), asked[-1] if asked else None)
        if found:
            ctx.emit("memory.recalled", {**_as_data(about.scope), "facts": [fact.text for fact in found]})

    def told_with(self, told: Sequence[Message]) -> Sequence[Message]:
        """The conversation as the model gets it, with what was recalled."""
        return self._recalled.told_with(told)

    def learn(self) -> None:
        """Has it learned from, in the background, once the run that has the session's turn has completed.

        Event: `custom` `memory.learning`, with the id of the run that does it.
        """
        if self._whose is not None:
            recalled = [fact.id for fact in self._recalled.facts]
            learning = Learning(self._facts, self._model, self._whose, recalled)
            run_id = self._ctx.start_in_background(learning, tags=TAGS)
            self._ctx.emit("memory.learning", {"run_id": run_id})


def _as_data(scope: FactScope) -> dict[str, str]:
    """In an event."""
    return {"kind": scope.kind, "scope": scope.name}
