"""`Selector`: somebody chooses who is next: a model, or a function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, TypeAlias

from halter.agent import Agent
from halter.core.calling import call_function
from halter.core.context import RunContext
from halter.core.ports import Model
from halter.core.runnable import Runnable
from halter.errors import ConfigurationError, OutputInvalid, UsageError
from halter.messages import Message
from halter.teams import transcript
from halter.teams.team import Floor, Members, Team
from halter.terminations import Termination

Chosen: TypeAlias = str | None
Choice: TypeAlias = Callable[[tuple[Message, ...], tuple[str, ...]], Chosen | Awaitable[Chosen]]
"""Who is next, of the names in the second argument, after the conversation in the first; `None`: nobody."""

PROMPT = """You decide who speaks next in a conversation. You do not take part in it.
Those who may speak next:
{members}
Answer with the name of the one whose contribution the conversation needs now."""
RETRIES = 2


class Selector(Team):
    """After each turn somebody chooses who is next.

    `choose`: a model or its name, which is asked with a short prompt, and held to the names; or a function, plain or
    async, of the conversation and of the names that may be chosen, which returns one of them, or `None` to end the
    work. `allow_repeats`: whether the last speaker may be chosen again at once. Where only one is left to be chosen,
    nobody is asked. A model that names nobody of them, also when told so, is passed over: the next in order speaks, and
    a `custom` event `selector.fallback` says so. `prompt`: instructions of your own, where `{members}` stands for the
    names and descriptions.

    The rest as in `RoundRobin`; with a function `until` may be left out. Raises `ConfigurationError`.
    """

    kind = "selector"

    def __init__(
        self,
        members: Members,
        *,
        choose: str | Model | Choice,
        until: Termination | None = None,
        allow_repeats: bool = False,
        prompt: str = PROMPT,
        name: str = "",
        description: str = "",
    ) -> None:
        super().__init__(members, until, name, description)
        self.allow_repeats = bool(allow_repeats)
        self.choose: Choice | None = None
        self._choosers: dict[str | None, Agent[str]] = {}
        if isinstance(choose, str) or hasattr(choose, "respond"):
            if until is None:
                raise ConfigurationError("a model never says that it is enough: give until=, such as MaxMessages(10)")
            self._choosers = {last: self._chooser(choose, last, prompt) for last in (None, *self.members)}
        elif callable(choose):
            self.choose = choose
        else:
            raise ConfigurationError(f"choose must be a model, or a function of a conversation and names: {choose!r}")

    def check_price(self) -> None:
        super().check_price()
        for chooser in self._choosers.values():
            chooser.check_price()

    def _chooser(self, model: Any, last: str | None, prompt: str) -> Agent[str]:
        names = self._names_after(last)
        listed = "\n".join(f"- {name}: {self.members[name].description}".removesuffix(": ") for name in names)
        told = prompt.replace("{members}", listed)
        return Agent(model, instructions=told, name="selector", output=Literal[names], output_retries=RETRIES)

    def _names_after(self, last: str | None) -> tuple[str, ...]:
        others = tuple(name for name in self.members if self.allow_repeats or name != last)
        return others or tuple(self.members)

    # --- running --------------------------------------------------------------------------------------------

    async def due(self, floor: Floor) -> Sequence[str]:
        names = self._names_after(floor.state.last)
        if len(names) == 1 and self.choose is None:
            return names
        chosen = await (self._asked(floor, names) if self.choose is None else self._called(floor, names, self.choose))
        return () if chosen is None else (chosen,)

    async def _called(self, floor: Floor, names: tuple[str, ...], choose: Choice) -> Chosen:
        chosen = await floor.ask(_Answer(choose, floor.ctx.messages, names), None)
        if chosen is not None and chosen not in names:
            raise UsageError(f"{chosen!r} was chosen, and may not speak now; these may: {', '.join(names)}")
        return chosen

    async def _asked(self, floor: Floor, names: tuple[str, ...]) -> Chosen:
        heard = transcript.heard_by("", floor.ctx.messages, self.members, self.aside)
        told = "\n\n".join(message.text for message in heard if message.role == "user")
        try:
            return await floor.ask(self._choosers[floor.state.last], f"{told}\n\nWho speaks next?")
        except OutputInvalid as error:
            chosen = self._next_in_order(floor.state.last, names)
            floor.ctx.emit("selector.fallback", {"chosen": chosen, "why": str(error)})
            return chosen

    def _next_in_order(self, last: str | None, names: tuple[str, ...]) -> str:
        everybody = list(self.members)
        at = everybody.index(last) + 1 if last is not None else 0
        return next(name for name in everybody[at:] + everybody[:at] if name in names)

    def done(self, state: object) -> str:
        return "nobody was chosen"


class _Answer(Runnable[Chosen]):
    """What a function of the caller's takes its time for: a run, so that the team's end stops it."""

    def __init__(self, choose: Choice, *given: Any) -> None:
        self._choose = choose
        self._given = given

    @property
    def name(self) -> str:
        return "selector"

    async def execute(self, ctx: RunContext) -> Chosen:
        return await call_function(ctx, self._choose, *self._given)
