"""How Claude is told to think, and which settings go with that, by model (`limits.py`).

https://platform.claude.com/docs/en/build-with-claude/thinking. Other servers of the format have bounds of their own for
`temperature` and the like: those of Claude hold for Claude.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from halter.errors import ConfigurationError
from halter.models.anthropic.turns import Turn, goes_on_without_thinking
from halter.models.limits import Limits, limits_of
from halter.request import Effort, ModelRequest, OnlyTool, Settings, ToolChoice

FAMILY = "anthropic"
LEAST_THINKING = 1_024
LEAST_TOP_P = 0.95  # beside thinking
_BUDGETS: dict[Effort, int] = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 24_576}


def thinking(request: ModelRequest, turns: Sequence[Turn], model: str, max_tokens: int) -> dict[str, Any]:
    """The field `thinking`. An answer that began without it, as another provider's, goes on without it."""
    way = _way_to_think(request.settings, limits_of(FAMILY, model), max_tokens)
    if way.get("type") == "enabled":
        if goes_on_without_thinking(turns):
            return {}
        if request.tools:
            check_choice(request.settings, model, request.tool_choice)
    return {"thinking": way} if way else {}


def _way_to_think(settings: Settings, limits: Limits, max_tokens: int) -> dict[str, Any]:
    """By a budget, given or, for models that know no effort, taken from a table; else as they see fit."""
    effort, budget = settings.reasoning_effort, settings.reasoning_tokens
    if budget is None and effort == "none":
        return {} if limits.no_thinking == "leave out" else {"type": limits.no_thinking}
    if budget is None and effort is not None:
        if limits.thinking != "budget":
            return {"type": "adaptive"}
        budget = _BUDGETS[effort]
    # It must be less than `max_tokens`; where a `Budget` of the run leaves too little, the answer goes without.
    budget = min(budget or 0, max_tokens - 1)
    return {"type": "enabled", "budget_tokens": budget} if budget >= LEAST_THINKING else {}


# --- what is refused ----------------------------------------------------------------------------------------


def check_settings(settings: Settings, model: str) -> None:
    """Raises `ConfigurationError` for values that the API refuses, alone or together."""
    limits = limits_of(FAMILY, model)
    _check_thinking(settings, model, limits)
    for text in settings.stop or ():
        if not text.strip():
            raise ConfigurationError(f"stop holds {text!r}: Anthropic takes no text of white space alone; leave it out")
    if "claude" in model:
        _check_sampling(settings, model, limits)


def _check_thinking(settings: Settings, model: str, limits: Limits) -> None:
    budget, most = settings.reasoning_tokens, settings.max_output_tokens
    if budget is not None and limits.thinking == "adaptive":
        raise ConfigurationError(
            f"{model} decides itself how long to think, and takes no reasoning_tokens: set reasoning_effort instead"
        )
    if budget is not None and budget < LEAST_THINKING:
        raise ConfigurationError(f"reasoning_tokens must be {LEAST_THINKING} or more for Anthropic, not {budget}")
    if settings.reasoning_effort == "none" and limits.no_thinking == "impossible":
        raise ConfigurationError(f"{model} always thinks: leave reasoning_effort out, or set it to 'low'")
    if most is not None and most <= (least := _least_thinking(settings, limits)):
        raise ConfigurationError(
            f"{model} thinks within max_output_tokens, and with these settings for {least} tokens or more: set "
            f"max_output_tokens to more than that, not to {most}, or leave reasoning_effort and reasoning_tokens out"
        )


def _least_thinking(settings: Settings, limits: Limits) -> int:
    """The tokens that are set aside for thinking, at least."""
    if settings.reasoning_tokens is not None:
        return settings.reasoning_tokens
    return LEAST_THINKING if thinks_by_budget(settings, limits) else 0


def _is_to_think(settings: Settings) -> bool:
    return settings.reasoning_tokens is not None or settings.reasoning_effort not in (None, "none")


def _check_sampling(settings: Settings, model: str, limits: Limits) -> None:
    if settings.temperature is not None and settings.temperature > 1:
        raise ConfigurationError(f"temperature must be a number from 0 to 1 for {model}, not {settings.temperature}")
    if not limits.sampling:
        changed = settings.temperature not in (None, 1), settings.top_k is not None, settings.top_p not in (None, 1)
        _refuse(changed, f"{model} takes no {{name}}: leave it out")
    if _is_to_think(settings):
        least = (settings.top_p or 1) < LEAST_TOP_P
        changed = settings.temperature not in (None, 1), settings.top_k is not None, least
        _refuse(changed, f"{model} thinks without a {{name}} of your own: leave it out, or the thinking")
    if not limits.temperature_with_top_p and None not in (settings.temperature, settings.top_p):
        raise ConfigurationError(f"{model} takes temperature or top_p, not both: leave one out")


def _refuse(changed: Sequence[bool], why: str) -> None:
    for name, is_it in zip(("temperature", "top_k", "top_p"), changed, strict=True):
        if is_it:
            raise ConfigurationError(why.format(name=name))


def check_choice(settings: Settings, model: str, choice: ToolChoice | None) -> None:
    """Raises `ConfigurationError` if the model cannot be told to call a tool, ever or with these settings."""
    if choice != "required" and not isinstance(choice, OnlyTool):
        return
    limits = limits_of(FAMILY, model)
    if not limits.forced_tools:
        raise ConfigurationError(f"{model} cannot be told which tool to call: leave tool_choice out, and ask for it")
    if thinks_by_budget(settings, limits):
        raise ConfigurationError(
            f"{model} cannot think and be told which tool to call: leave tool_choice, or the reasoning, out"
        )


def thinks_by_budget(settings: Settings, limits: Limits) -> bool:
    """Whether a budget of tokens is set aside for thinking."""
    if settings.reasoning_tokens is not None:
        return True
    return settings.reasoning_effort not in (None, "none") and limits.thinking == "budget"
