"""`Facts`: an agent's memory: how it learns, what it recalls. Immutable; what is known lies with the sessions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from halter import checked
from halter.core.context import RunContext
from halter.core.ports import Model
from halter.errors import ConfigurationError
from halter.facts.asking import TEMPLATE
from halter.models.names import as_model
from halter.sessions.records import FactScope

Embed: TypeAlias = Callable[[list[str]], Awaitable[Sequence[Sequence[float]]]]
Scope: TypeAlias = Callable[[RunContext], str | FactScope | None]


class Facts:
    """What an agent knows of its users, over all their conversations: `Agent(…, memory=Facts())`.

    After each completed run on a session, a model looks at what was said, in the background, and adds, merges or
    forgets facts. At the beginning of a run, those that fit its input are told to the agent's model. A run without a
    session neither recalls nor learns.

    `model`: who learns, a name or a model object; the agent's own, if it is left out. `scope`: of whom something is
    known, a plain function of the run's context; by default the session's user, and the session itself where that has
    none. A text that it returns is a name of its own kind, which no user and no session shares; it may also return a
    `FactScope`; `None`: nothing is recalled or learned. `recall`: how many facts are told to the
    model at most. `most`: how many are kept of one scope; beyond it, those are forgotten which have not been learned,
    changed or recalled for longest. `embed`: an async function that turns a list of texts into one vector each; with
    it, facts are found by their meaning, and else by their words. `template`: the instructions of the model that
    learns, over Halter's own; the facts and the conversation are added to it, and the form of the answer.

    Raises `ConfigurationError`.
    """

    def __init__(
        self,
        model: str | Model | None = None,
        *,
        scope: Scope | None = None,
        recall: int = 10,
        most: int = 500,
        embed: Embed | None = None,
        template: str = TEMPLATE,
    ) -> None:
        self.model = None if model is None else as_model(model, "the model that learns")
        self.scope: Scope | None = None if scope is None else checked.plain_function("scope", scope)
        self.recall = checked.whole("recall", recall, at_least=0)
        self.most = checked.whole("most", most, at_least=1)
        self.embed = _embed(embed)
        self.template = _template(template)

    def __repr__(self) -> str:
        by = "" if self.model is None else repr(self.model.name)
        return f"Facts({by})"


def _embed(given: Any) -> Any:
    if given is not None and not callable(given):
        raise ConfigurationError(f"embed must be an async function of a list of texts, not {given!r}")
    return given


def _template(given: Any) -> str:
    if not checked.text("template", given).strip():
        raise ConfigurationError("template must say what is worth knowing: leave it out for Halter's own")
    return given
