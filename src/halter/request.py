"""What a model is asked: the conversation, the tools, the shape of the answer, the usual knobs.

One vocabulary for all providers; each adapter puts it into its provider's words. What a provider has no word for is a
`ConfigurationError` when the model or the agent is made (`features.py`), never silently dropped.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, cast

import msgspec

from halter.errors import ConfigurationError
from halter.messages import Message

Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")


def _whole(name: str, value: object, *, at_least: int | None) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or (at_least is not None and value < at_least):
        bound = "" if at_least is None else f", {at_least} or more"
        raise ConfigurationError(f"{name} must be a whole number{bound}, not {value!r}")


def _within(name: str, value: object, low: float, high: float) -> None:
    if value is None:
        return
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigurationError(f"{name} must be a number from {low:g} to {high:g}, not {value!r}")


def _check_stop(stop: object) -> None:
    if stop is None:
        return
    texts = cast("tuple[object, ...]", stop) if isinstance(stop, tuple) else ()
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise ConfigurationError(f"stop must be a tuple of texts, not {stop!r}")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The usual knobs; what is `None` is left to the provider.

    `max_output_tokens`: an upper bound for each answer, reasoning included. `stop`: texts at which the answer ends.
    `reasoning_effort` and `reasoning_tokens` (a budget): how long it may think. `parallel_tool_calls`: `False` asks
    for one call at a time. `cache_prompt`: mark the prompt for the provider's cache, where that has to be asked for.
    Raises `ConfigurationError` for a value that no provider takes.
    """

    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    reasoning_effort: Effort | None = None
    reasoning_tokens: int | None = None
    parallel_tool_calls: bool | None = None
    cache_prompt: bool | None = None

    def __post_init__(self) -> None:
        for name in ("max_output_tokens", "top_k", "reasoning_tokens"):
            _whole(name, getattr(self, name), at_least=1)
        _whole("seed", self.seed, at_least=None)
        _within("temperature", self.temperature, 0.0, 2.0)
        _within("top_p", self.top_p, 0.0, 1.0)
        _within("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _within("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        if self.reasoning_effort is not None and self.reasoning_effort not in EFFORTS:
            raise ConfigurationError(f"reasoning_effort must be one of {', '.join(EFFORTS)}")
        for name in ("parallel_tool_calls", "cache_prompt"):
            if getattr(self, name) not in (None, True, False):
                raise ConfigurationError(f"{name} must be True, False or None, not {getattr(self, name)!r}")
        _check_stop(self.stop)

    def over(self, others: Settings) -> Settings:
        """These, and where they leave something open, the others'."""
        return msgspec.structs.replace(others, **self.given())

    def given(self) -> dict[str, Any]:
        """What is not left open, by name."""
        fields = msgspec.structs.asdict(self)
        return {name: value for name, value in fields.items() if value is not None}


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as the model sees it. `parameters`: the JSON schema of its arguments, an object.

    `strict`: the provider holds the arguments to the schema, where it can; `None` leaves it to the provider.
    """

    name: str
    description: str = ""
    parameters: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool | None = None


class OnlyTool(msgspec.Struct, frozen=True):
    """A choice of tools: this one, and no other answer."""

    name: str


ToolChoice: TypeAlias = Literal["auto", "none", "required"] | OnlyTool


class OutputSchema(msgspec.Struct, frozen=True, kw_only=True):
    """The shape that an answer must have: a JSON schema, by its name."""

    name: str
    schema: dict[str, Any]
    description: str = ""
    strict: bool = True


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request to a model. `messages`: the whole conversation, oldest first.

    `settings`: over the model's own. `tool_choice`: `None` leaves it to the provider.
    """

    messages: tuple[Message, ...]
    settings: Settings = Settings()
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice | None = None
    output: OutputSchema | None = None
