"""Request bodies: which fields are used, which are passed over, and which are refused.

A field that would change the answer and that Halter cannot honour is refused with 400, unless its value is the one that
changes nothing. A field that changes only how OpenAI stores, bills or caches is passed over.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request

from halter.server.bodies import ID
from halter.server.fronts.openai.errors import refusal
from halter.server.problems import Problem

T = TypeVar("T", bound="RequestBody")
NOTHING: tuple[Any, ...] = (None,)


class RequestBody(BaseModel):
    """What the bodies have in common. `passed_over`: without effect. `refused`: with the values that change nothing."""

    model_config = ConfigDict(extra="allow", strict=True)
    passed_over: ClassVar[frozenset[str]] = frozenset()
    refused: ClassVar[dict[str, tuple[Any, ...]]] = {}

    def check_further(self) -> None:
        """Raises `Problem` 400 for a field that is refused, or that nobody knows."""
        for name, value in (self.model_extra or {}).items():
            if name in self.refused:
                if value not in self.refused[name]:
                    raise refusal(f"{name!r} is not supported here: leave it out", name, "unsupported_parameter")
            elif name not in self.passed_over:
                raise refusal(f"Unknown parameter: {name!r}", name, "unknown_parameter")


class StreamOptions(BaseModel):
    """How to stream."""

    model_config = ConfigDict(extra="ignore", strict=True)

    include_usage: bool | None = None


class SamplingBody(RequestBody):
    """The settings that both APIs have."""

    model: str = Field(min_length=1, max_length=256)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    parallel_tool_calls: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    metadata: dict[str, str] | None = None
    user: str | None = None

    passed_over = frozenset(
        (
            "service_tier",
            "prompt_cache_key",
            "prompt_cache_retention",
            "prompt_cache_options",
            "safety_identifier",
        )
    )


class ChatBody(SamplingBody):
    """`POST /v1/chat/completions`."""

    messages: list[dict[str, Any]] = Field(min_length=1)
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    reasoning_effort: str | None = None
    response_format: dict[str, Any] | None = None

    passed_over = SamplingBody.passed_over | {"store", "prediction"}
    refused: ClassVar[dict[str, tuple[Any, ...]]] = {
        "n": (None, 1),
        "logprobs": (None, False),
        "top_logprobs": (None, 0),
        "logit_bias": (None, {}),
        "modalities": (None, ["text"]),
        "verbosity": (None, "medium"),
        "audio": NOTHING,
        "functions": (None, []),
        "function_call": NOTHING,
        "web_search_options": NOTHING,
        "moderation": NOTHING,
    }


class Reasoning(BaseModel):
    """How long the model may think. `summary`: passed over, reasoning is shown as far as the model shows it."""

    model_config = ConfigDict(extra="ignore", strict=True)

    effort: str | None = None


class ResponseBody(SamplingBody):
    """`POST /v1/responses`."""

    input: str | list[dict[str, Any]]
    instructions: str | None = None
    max_output_tokens: int | None = None
    reasoning: Reasoning | None = None
    text: dict[str, Any] | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    background: bool | None = None
    store: bool | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    service_tier: str | None = None
    truncation: Literal["auto", "disabled"] | None = None

    passed_over = SamplingBody.passed_over | {"include"}
    refused: ClassVar[dict[str, tuple[Any, ...]]] = {
        "max_tool_calls": NOTHING,
        "top_logprobs": (None, 0),
        "prompt": NOTHING,
        "moderation": NOTHING,
        "context_management": (None, []),
        "access_programs": NOTHING,
        "image": NOTHING,
    }


class ConversationBody(RequestBody):
    """`POST /v1/conversations`, and changes of one."""

    items: list[dict[str, Any]] | None = Field(None, max_length=20)
    metadata: dict[str, str] | None = None


async def read_body(request: Request, kind: type[T]) -> T:
    """The request's JSON body. Raises `Problem` 400."""
    try:
        fields: Any = await request.json() if await request.body() else {}
    except ValueError as error:
        raise refusal(f"the body is not JSON: {error}", None) from error
    if not isinstance(fields, dict):
        raise refusal("the body must be a JSON object", None)
    try:
        body = kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = str(first["loc"][0])  # what follows names the members of unions
        raise refusal(f"{where}: {first['msg']}", where) from error
    body.check_further()
    return body


def run_id_of(request: Request) -> str | None:
    """The client's own id for the run, from `Halter-Run-Id`. Raises `Problem` 400."""
    id = request.headers.get("halter-run-id")
    if id is not None and re.search(ID, id) is None:
        raise refusal("Halter-Run-Id must be 1 to 128 letters, digits and . _ ~ -", "Halter-Run-Id")
    return id


def linger_of(request: Request) -> float:
    """Seconds that a client has to come back, from `Halter-Linger`. Raises `Problem` 400."""
    given = request.headers.get("halter-linger")
    try:
        linger = float(given or 0)
    except ValueError:
        linger = -1.0
    if not 0 <= linger <= 3600:
        raise Problem(400, f"Halter-Linger must be seconds, from 0 to 3600, not {given!r}", code="invalid")
    return linger
