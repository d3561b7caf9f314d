"""`Agent`: a model with instructions. Immutable; all that changes lives in its runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from halter.core.context import RunContext
from halter.core.metering import NO_PRICE
from halter.core.ports import Model
from halter.core.runnable import Runnable
from halter.errors import ConfigurationError
from halter.features import Features
from halter.messages import Message, as_messages
from halter.models.names import resolve
from halter.outputs import AnswerType, Unfit
from halter.request import ModelRequest, OutputSchema, Settings

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # of Python 3.13: with a default, so that `Agent` alone is a type too

    T = TypeVar("T", default=Any)
else:
    T = TypeVar("T")


class Agent(Runnable[T]):
    """One model and what it is told to be.

    `model`: a name such as `"openai:gpt-5.2"` or `"scripted:Hello"`, or a model object. `instructions`: the system
    text. `name`: how its events are marked. `max_turns`: how many answers one run may take at most.
    `settings`: temperature, length, reasoning and the like, over the model's own. `output`: the type of the answer, if
    it is not text: a msgspec Struct, a dataclass, a TypedDict, a pydantic model, or any type that JSON can be read
    into; `result.output` is one of it. `output_retries`: how often in one run the model is told what is wrong with an
    answer that does not fit, and answers again, before the run fails with `OutputInvalid`.

    Raises `ConfigurationError` for an unknown model, a missing key or what the model's provider cannot do, before
    anything runs.
    """

    kind = "agent"

    @overload
    def __init__(
        self: Agent[str],
        model: str | Model,
        *,
        instructions: str = ...,
        name: str = ...,
        max_turns: int = ...,
        settings: Settings = ...,
        output: None = None,
        output_retries: int = ...,
    ) -> None: ...

    @overload
    def __init__(
        self,
        model: str | Model,
        *,
        instructions: str = ...,
        name: str = ...,
        max_turns: int = ...,
        settings: Settings = ...,
        output: type[T],
        output_retries: int = ...,
    ) -> None: ...

    @overload  # a union or a Literal is no `type` to a type checker
    def __init__(
        self: Agent[Any],
        model: str | Model,
        *,
        instructions: str = ...,
        name: str = ...,
        max_turns: int = ...,
        settings: Settings = ...,
        output: Any,
        output_retries: int = ...,
    ) -> None: ...

    def __init__(
        self,
        model: str | Model,
        *,
        instructions: str = "",
        name: str = "agent",
        max_turns: int = 100,
        settings: Settings = Settings(),  # noqa: B008 - frozen
        output: Any = None,
        output_retries: int = 1,
    ) -> None:
        self._model = resolve(model) if isinstance(model, str) else model
        if not callable(getattr(self._model, "respond", None)):
            raise ConfigurationError(f"model must be a name or a model object, not {model!r}")
        if not isinstance(getattr(self._model, "name", None), str):
            raise ConfigurationError(f"a model object has a name, a text by which events and errors call it: {model!r}")
        self._instructions = _text("instructions", instructions)
        self._name = _text("name", name)
        self._max_turns = _at_least("max_turns", max_turns, 1)
        self._settings = _checked(settings)
        self._answer: AnswerType[T] | None = None if output is None else AnswerType(output)
        self._output_retries = _at_least("output_retries", output_retries, 0)
        features = getattr(self._model, "features", None)
        if isinstance(features, Features):
            features.check(self._model.name, settings, output=self._schema)

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

    @property
    def _schema(self) -> OutputSchema | None:
        return self._answer.schema if self._answer is not None else None

    def check_price(self) -> None:
        if getattr(self._model, "price", None) is None:
            raise ConfigurationError(NO_PRICE.format(self._model.name))

    async def execute(self, ctx: RunContext) -> Any:
        """Turns until the model has answered, as it should, and nobody has sent anything more; the last answer."""
        for message in ctx.input:
            ctx.say(message)
        repairs = self._output_retries
        while True:
            correction: Message | None = None
            step = ctx.begin_step()
            answer = await self._model.respond(self._request(ctx), ctx)
            ctx.end_step()
            if not ctx.steered() or step >= self._max_turns:
                if self._answer is None:
                    return answer.text or answer.refusal
                try:
                    return self._answer.read(answer)
                except Unfit as unfit:
                    if repairs == 0 or step >= self._max_turns:
                        raise self._answer.error(answer, unfit) from unfit
                    repairs -= 1
                    correction = self._answer.repair(unfit)
            ctx.before_next_step()
            if correction is not None:
                ctx.say(correction)

    def _request(self, ctx: RunContext) -> ModelRequest:
        system = (Message.system(self._instructions),) if self._instructions else ()
        return ModelRequest(messages=(*system, *ctx.messages), settings=self._settings, output=self._schema)

    def __repr__(self) -> str:
        return f"Agent({self._model.name!r}, name={self._name!r})"


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(f"{name} must be text, not {type(value).__name__}")
    return value


def _checked(settings: Any) -> Settings:
    if not isinstance(settings, Settings):
        raise ConfigurationError(
            f"settings must be Settings, as in Settings(temperature=0.5), not {type(settings).__name__}"
        )
    return settings


def _at_least(name: str, value: int, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigurationError(f"{name} must be {least} or more, not {value!r}")
    return value
