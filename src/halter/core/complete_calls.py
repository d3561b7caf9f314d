"""Which tool calls of an answer may run: those whose arguments are complete.

A provider that cuts an answer off (its length, a filter, a refusal) may do so in the middle of a call. 1. Arguments
that are a JSON object are complete: no part of an object is one. 2. Without any arguments, a call is complete only if
the answer is: `""` stands for `{}` there, and for arguments that never came where the answer was cut off.
"""

from __future__ import annotations

import msgspec

# The finish reasons of answers that came to their own end, in lower case. With any other one the answer was cut off:
# `length`, `max_tokens`, `content_filter`, `refusal`, `model_context_window_exceeded`, `SAFETY`, `incomplete`, …
_WHOLE = frozenset(
    (
        "stop",
        "tool_calls",
        "tool_call",
        "function_call",
        "tool_use",
        "end_turn",
        "pause_turn",
        "completed",
        "complete",
        "eos",
        "eos_token",
        "end",
    )
)
_UNFIT = (msgspec.MsgspecError, UnicodeError, RecursionError)


def was_cut_off(finish_reason: str | None) -> bool:
    """Whether a provider that ends its answer with this word has cut it off."""
    return bool(finish_reason) and str(finish_reason).lower() not in _WHOLE


def is_object(arguments: str) -> bool:
    """Whether the text is a JSON object, as strict parsers read it."""
    try:
        return isinstance(msgspec.json.decode(arguments), dict)
    except _UNFIT:
        return False
