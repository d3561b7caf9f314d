"""`Fallback`: several models, of which the next is asked where one refuses to serve.

1. Never after something was shown: a second answer must not be glued to the first. 2. Never after a stop:
`raise_if_cancelled` stands before each model, and first in the `except` that goes on. 3. Not for what is the request's
own fault: the next model would refuse it too, or worse, would not.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce

import msgspec

from halter import events
from halter.core.attempt import Attempt
from halter.core.context import RunContext
from halter.core.ports import Model, Price
from halter.errors import ConfigurationError, ProviderError, RequestRejected
from halter.features import Features
from halter.messages import Message
from halter.models.names import as_model
from halter.request import ModelRequest, Settings, ToolChoice, ToolSpec

FLAGS = tuple(field.name for field in msgspec.structs.fields(Features) if field.type is bool)
PAYMENT_REQUIRED = 402  # the account's fault, not the request's


class Fallback:
    """Asks the first of `models`; if it refuses to serve, after its own retries, the next one, and so on.

    Each is a name such as `"openai:gpt-5.2"` or a model object, also another `Fallback`. Refusals to serve: no
    connection, time-outs, 401, 402, 403, 404, 408, 409, 429, 5xx, an answer that breaks before anything of it was
    shown. Any other 4xx says that the request itself is at fault, or its content: it is raised.

    Immutable; serves any number of runs at once. Raises `ConfigurationError` if there is no model, or what is none.
    """

    def __init__(self, *models: str | Model) -> None:
        if not models:
            raise ConfigurationError('a Fallback needs models, as in Fallback("openai:gpt-5.2", "gemini:gemini-3-pro")')
        self._models = tuple(as_model(model, "a Fallback's model") for model in models)

    @property
    def models(self) -> tuple[Model, ...]:
        """In the order in which they are asked."""
        return self._models

    @property
    def name(self) -> str:
        """All of them, in order; each request's events have the name of the one that is asked."""
        return f"fallback({', '.join(model.name for model in self._models)})"

    @property
    def features(self) -> Features | None:
        """What all of them can do, as far as they say."""
        known = [found for model in self._models if isinstance(found := getattr(model, "features", None), Features)]
        return reduce(_common, known) if known else None

    @property
    def price(self) -> Price | None:
        """The first one's, if all are known; each request is charged by the price of the model that is asked."""
        prices = [getattr(model, "price", None) for model in self._models]
        return None if None in prices else prices[0]

    def check_definition(
        self, settings: Settings, *, tools: Collection[ToolSpec] = (), tool_choice: ToolChoice | None = None
    ) -> None:
        """Checks what an agent wants, with each model in turn. Raises `ConfigurationError`."""
        for model in self._models:
            check = getattr(model, "check_definition", None)
            if callable(check):
                check(settings, tools=tools, tool_choice=tool_choice)

    async def respond(self, request: ModelRequest, ctx: RunContext) -> Message:
        """One answer, of the first model that serves.

        Raises the last one's `ProviderError`, with a note on each before. Cancellation-safe: nobody else is asked.
        """
        refusals: list[tuple[Model, ProviderError]] = []
        for place, model in enumerate(self._models, 1):
            ctx.token.raise_if_cancelled()
            attempt = Attempt(ctx)
            try:
                return await model.respond(request, attempt)
            except ProviderError as error:
                ctx.token.raise_if_cancelled()
                if place == len(self._models) or attempt.has_shown or not _refuses_to_serve(error):
                    _note(error, refusals)
                    raise
                refusals.append((model, error))
                attempt.discard()
                ctx.write(events.ModelRetry, attempt=place, delay=0.0, cause=events.failure_of(error))
        raise AssertionError("a Fallback has models")

    def __repr__(self) -> str:
        return f"Fallback({', '.join(map(repr, self._models))})"


def _refuses_to_serve(error: ProviderError) -> bool:
    return not isinstance(error, RequestRejected) or error.status == PAYMENT_REQUIRED


def _note(error: ProviderError, refusals: list[tuple[Model, ProviderError]]) -> None:
    for model, refusal in refusals:
        error.add_note(f"before it, {model.name} refused to serve: {type(refusal).__name__}: {refusal}")


def _common(one: Features, other: Features) -> Features:
    """What both can do."""
    both = {name: getattr(one, name) and getattr(other, name) for name in FLAGS}
    return msgspec.structs.replace(one, settings=one.settings & other.settings, **both)
