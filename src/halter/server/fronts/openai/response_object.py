"""The response object: what a run is to clients of Responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from halter.messages import Usage
from halter.server.fronts.openai.bodies import ResponseBody
from halter.server.fronts.openai.finishing import response_usage
from halter.server.port import RunPlan

PREFIX = "resp_"


def response_id(run_id: str) -> str:
    """The response of a run."""
    return PREFIX + run_id


def run_id_in(response_id: str) -> str:
    """The run of a response."""
    return response_id.removeprefix(PREFIX)


def echo_of(body: ResponseBody, *, conversation: str | None) -> dict[str, Any]:
    """What the response repeats of its request."""
    return {
        "previous_response_id": body.previous_response_id,
        "conversation": {"id": conversation} if conversation else None,
        "instructions": body.instructions,
        "tools": [_tool(each) for each in body.tools or ()],
        "tool_choice": body.tool_choice or "auto",
        "truncation": body.truncation or "disabled",
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "text": {"format": {"type": "text"}, **(body.text or {})},
        "top_p": 1.0 if body.top_p is None else body.top_p,
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "presence_penalty": body.presence_penalty or 0,
        "frequency_penalty": body.frequency_penalty or 0,
        "reasoning": {"effort": body.reasoning.effort, "summary": None} if body.reasoning else None,
        "user": body.user,
        "max_output_tokens": body.max_output_tokens,
        "store": body.store is not False,
        "background": bool(body.background),
        "metadata": body.metadata or {},
        "safety_identifier": body.safety_identifier,
        "prompt_cache_key": body.prompt_cache_key,
    }


def _tool(given: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": None, "parameters": None, "strict": None, **given}


# Of a run that no request of this API has started.
_UNASKED: dict[str, Any] = echo_of(ResponseBody(model="-", input=""), conversation=None)


def response_object(
    plan: RunPlan,
    *,
    status: str,
    output: Sequence[Mapping[str, Any]] = (),
    usage: Usage | None = None,
    completed_at: float | None = None,
    incomplete: str | None = None,
    error: Mapping[str, Any] | None = None,
    halter: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The response. `incomplete`: why it is not whole. `halter`: what only Halter's clients read."""
    asked: Mapping[str, Any] = plan.metadata.get("openai", {})
    return {
        "id": response_id(plan.key.id),
        "object": "response",
        "created_at": int(plan.created_at),
        "completed_at": None if completed_at is None else int(completed_at),
        "status": status,
        "model": plan.agent,
        "output": list(output),
        "error": error,
        "incomplete_details": {"reason": incomplete} if incomplete else None,
        "usage": None if usage is None else response_usage(usage),
        **_UNASKED,
        **asked.get("echo", {}),
        "top_logprobs": 0,
        "max_tool_calls": None,
        "service_tier": "default",
        **({"halter": halter} if halter else {}),
    }
