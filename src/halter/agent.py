"""`Agent`: a model with instructions. Immutable; all that changes lives in its runs."""

from __future__ import annotations

from typing import Any

from halter.core.context import RunContext
from halter.core.ports import Model
from halter.core.runnable import Runnable
from halter.errors import ConfigurationError
from halter.messages import Message, ModelRequest, as_messages
from halter.models.names import resolve


class Agent(Runnable):
    """One model and what it is told to be.

    `model`: a name such as `"openai:gpt-5.2"` or `"scripted:Hello"`, or a model object. `instructions`: the system
    text. `name`: how its events are marked. `max_turns`: how many answers one run may take at most.
    `max_output_tokens`: an upper bound for each answer. Raises `ConfigurationError` for an unknown model or a missing
    key, before anything runs.
    """

    kind = "agent"

    def __init__(
        self,
        model: str | Model,
        *,
        instructions: str = "",
        name: str = "agent",
        max_turns: int = 100,
        max_output_tokens: int | None = None,
    ) -> None:
        self._model = resolve(model) if isinstance(model, str) else model
        if not callable(getattr(self._model, "respond", None)):
            raise ConfigurationError(f"model must be a name or a model object, not {model!r}")
        self._instructions = instructions
        self._name = name
        self._max_turns = _at_least_one("max_turns", max_turns)
        self._max_output_tokens = (
            None if max_output_tokens is None else _at_least_one("max_output_tokens", max_output_tokens)
        )

    @property
    def name(self) -> str:
        return self._name

    @property
    def model(self) -> Model:
        return self._model

    @property
    def model_name(self) -> str | None:
        return self._model.name

    def check_input(self, input: Any) -> tuple[Message, ...]:
        if input is None:
            raise ConfigurationError("an agent needs an input: text, a Message or a list of Messages")
        return as_messages(input)

    async def execute(self, ctx: RunContext) -> str:
        """Turns until the model has answered and nobody has sent anything more; the last answer's text."""
        for message in ctx.input:
            ctx.say(message)
        while True:
            step = ctx.begin_step()
            answer = await self._model.respond(self._request(ctx), ctx)
            ctx.end_step()
            if not ctx.steered() or step >= self._max_turns:
                return answer.text or answer.refusal
            ctx.before_next_step()

    def _request(self, ctx: RunContext) -> ModelRequest:
        system = (Message.system(self._instructions),) if self._instructions else ()
        return ModelRequest(messages=(*system, *ctx.messages), max_output_tokens=self._max_output_tokens)

    def __repr__(self) -> str:
        return f"Agent({self._model.name!r}, name={self._name!r})"


def _at_least_one(name: str, value: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"{name} must be 1 or more, not {value!r}")
    return value
