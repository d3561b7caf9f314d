"""What fronts ask of a run beyond a `StartBody`: earlier messages, the client's own tools, settings of one request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from halter.agent import Agent
from halter.core.runnable import Runnable
from halter.errors import ConfigurationError
from halter.messages import Message
from halter.request import OutputSchema, Settings, ToolChoice, ToolSpec
from halter.server.problems import Problem


class Extras(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Nothing, by default.

    `history`: the conversation before the input, for runs without a session. `instructions`: told to the model after
    the agent's own. `tools`: answered by the client: a call of one ends the run, and the next request brings its
    result. `settings`: over the agent's own. `output`: the shape of the answer. `metadata`: kept with the run's plan,
    for the front that started it. `asked`: what the client sent, where the input is made of it and of what the session
    has by then: the request is the same if this is.
    """

    history: tuple[Message, ...] = ()
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice | None = None
    settings: Settings = Settings()
    output: OutputSchema | None = None
    metadata: Mapping[str, Any] = {}
    asked: Any = None

    def applied_to(self, runnable: Runnable[Any]) -> Runnable[Any]:
        """The runnable as this one request asks for it. Raises `Problem` 400 if it cannot be that."""
        asked = {name: value for name in _OF_AGENTS if (value := getattr(self, name)) != getattr(NOTHING, name)}
        if not asked:
            return runnable
        if not isinstance(runnable, Agent):
            names = ", ".join(_OF_AGENTS[name] for name in asked)
            detail = f"{runnable.name!r} is a {runnable.kind}, and only agents take {names} from a request"
            raise Problem(400, detail, code="unsupported")
        try:
            return runnable.for_request(**asked)
        except ConfigurationError as error:
            raise Problem(400, str(error), code="unsupported") from error


_OF_AGENTS = {
    "instructions": "instructions",
    "tools": "tools",
    "tool_choice": "a choice of tools",
    "settings": "settings",
    "output": "a schema for the answer",
}
NOTHING = Extras()
