"""What each family of models takes and refuses, as data: the one table that all adapters look into.

Each row says where its facts come from and on which day they were true. Where a fact could not be verified, the row
says so in `unverified`, and holds the safe value: the one with which no request is refused.
"""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache
from typing import Final, Literal, TypeAlias

import msgspec

Thinking: TypeAlias = Literal["budget", "adaptive", "both"]
NoThinking: TypeAlias = Literal["leave out", "disabled", "between_tools", "impossible"]

AS_OF: Final = date(2026, 11, 22)
"""The day on which the whole table was last looked through."""


class SchemaLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Which JSON schemas a provider can hold an answer to.

    `recursion`: schemas that contain themselves. `open_objects`: objects with free keys, as of a `dict`. `unions`: the
    most values that may be one of several types, `None` for no limit. `not_held`: keywords that are refused or ignored,
    and are said in descriptions instead.
    """

    recursion: bool = True
    open_objects: bool = True
    unions: int | None = None
    not_held: frozenset[str] = frozenset()


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one family of models takes. The defaults refuse nothing.

    OpenAI: `route`: the API that takes all that the model can do. `reasons`: it gives encrypted reasoning and takes it
    back. `reasons_unasked`: it reasons where no effort is given. `can_stop_reasoning`: it takes the effort `none`.

    All: `sampling`: it takes `temperature`, `top_p` and `top_k`; OpenAI's models, only while they do not reason.
    `temperature_with_top_p`: both at once. `forced_tools`: it can be told to call a tool.

    Claude: `thinking`: by a budget, as it sees fit, or both. `no_thinking`: how it is told not to think. `efforts`: our
    efforts in its words, for models that think as they see fit.

    Gemini: `levels`: our efforts in its words; empty for models that think by a budget. `can_stop_reasoning`: as above.

    `schema`: it can hold an answer to a schema; `schema_with_tools`, `schema_streamed`: also with tools, and in a
    stream. `schemas`: to which ones. `tool_schemas`: the arguments of a tool may have schemas that `schemas` excludes.
    """

    route: Literal["chat", "responses"] = "chat"
    reasons: bool = True
    reasons_unasked: bool = False
    can_stop_reasoning: bool = True
    sampling: bool = True
    temperature_with_top_p: bool = True
    forced_tools: bool = True
    thinking: Thinking = "adaptive"
    no_thinking: NoThinking = "disabled"
    efforts: dict[str, str] = {}
    levels: dict[str, str] = {}
    schema: bool = True
    schema_with_tools: bool = True
    schema_streamed: bool = True
    schemas: SchemaLimits = SchemaLimits()
    tool_schemas: bool = True


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One family. `models`: a pattern that its names match somewhere. `source`, `checked`: who says so, and when.

    `unverified`: what the source leaves open, and is assumed here.
    """

    models: str
    limits: Limits
    source: str
    checked: date
    unverified: str = ""


@lru_cache(maxsize=1024)
def limits_of(provider: str, model: str) -> Limits:
    """What the model takes: the first row of the provider's that fits its name; unknown models are refused nothing."""
    found = (row.limits for row in TABLE.get(provider, ()) if re.search(row.models, model))
    return next(found, Limits())


# --- OpenAI -------------------------------------------------------------------------------------------------

_PYDANTIC_AI = "https://github.com/pydantic/pydantic-ai, profiles/openai.py: tried against the API, 2026-07"
_TOOLS_AND_REASONING = (
    "400 'Function tools with reasoning_effort are not supported for gpt-5.6-sol in /v1/chat/completions', also where "
    "no effort is given (https://github.com/BerriAI/litellm/pull/34569, https://github.com/openai/openai-openapi/issues/541)"
)
_CHAT_ONLY = Limits(reasons=False)
_OPT_IN = Limits(route="responses")
_ON = Limits(route="responses", reasons_unasked=True)
_ALWAYS_ON = Limits(route="responses", reasons_unasked=True, can_stop_reasoning=False)
_OPENAI = (
    Row(
        models=r"^gpt-5(\.\d+)?-(chat|search)",
        limits=_CHAT_ONLY,
        source=_PYDANTIC_AI,
        checked=date(2026, 8, 22),
        unverified="whether chat variants after gpt-5 take encrypted reasoning back: they are not asked for it",
    ),
    Row(
        models=r"^gpt-(6-astra|6\.1-sol)",
        limits=_ALWAYS_ON,
        source="https://docs.laozhang.ai/en/announcements/gpt-6-chat-tools-2026-11: no effort 'none'",
        checked=date(2026, 11, 4),
    ),
    Row(
        models=r"^gpt-([6-9]|[1-9]\d)",
        limits=_ON,
        source="https://docs.litellm.ai/blog/gpt_6_sol_luna: efforts from none to max, medium by default",
        checked=date(2026, 10, 13),
        unverified="models after gpt-6.1: as their predecessors",
    ),
    Row(models=r"^gpt-5\.[45]-pro", limits=_ALWAYS_ON, source=_PYDANTIC_AI, checked=date(2026, 8, 22)),
    Row(models=r"^gpt-5\.[5-9]", limits=_ON, source=_TOOLS_AND_REASONING, checked=date(2026, 8, 22)),
    Row(models=r"^gpt-5\.(2-pro|1-codex)", limits=_ALWAYS_ON, source=_PYDANTIC_AI, checked=date(2026, 8, 22)),
    Row(models=r"^gpt-5\.\d", limits=_OPT_IN, source=_PYDANTIC_AI, checked=date(2026, 8, 22)),
    Row(models=r"^gpt-5", limits=_ALWAYS_ON, source=_PYDANTIC_AI, checked=date(2026, 8, 22)),
    Row(
        models=r"^(o[13]-pro|o[34](-mini)?-deep-research|codex-mini|computer-use-preview)",
        limits=_ALWAYS_ON,
        source="https://platform.openai.com/docs/models: served by Responses alone",
        checked=date(2026, 8, 22),
    ),
    Row(
        models=r"^o\d",
        limits=Limits(reasons_unasked=True, can_stop_reasoning=False),
        source=_PYDANTIC_AI,
        checked=date(2026, 8, 22),
    ),
    Row(
        models=r"^(ft:)?(gpt-3\.5|gpt-4|chatgpt-)",
        limits=_CHAT_ONLY,
        source="400 'Encrypted content is not supported with this model'",
        checked=date(2026, 8, 22),
    ),
)

# --- Claude -------------------------------------------------------------------------------------------------

_THINKING_TABLE = "https://platform.claude.com/docs/en/build-with-claude/thinking-troubleshooting#supported-models"
_STRUCTURED = "https://platform.claude.com/docs/en/build-with-claude/structured-outputs#json-schema-limitations"
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh"}
_EFFORTS_4_6 = _EFFORTS | {"xhigh": "max"}
# `_STRUCTURED`, 2026-08-22. A pattern with `\b`, a look-around or a reference back is never sent (see `schemas.py`).
_CLAUDE_SCHEMAS = SchemaLimits(
    recursion=False,
    open_objects=False,
    unions=16,
    not_held=frozenset(
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems")
    ),
)
_CLAUDE_5 = Limits(thinking="adaptive", efforts=_EFFORTS, sampling=False, schemas=_CLAUDE_SCHEMAS)
_UNFORCED = msgspec.structs.replace(_CLAUDE_5, forced_tools=False)
_ALWAYS_THINKS = msgspec.structs.replace(_UNFORCED, no_thinking="impossible")
_CLAUDE_4_5 = Limits(thinking="budget", temperature_with_top_p=False, schemas=_CLAUDE_SCHEMAS)
_ANTHROPIC = (
    Row(
        models=r"claude-((fable|mythos)-5|opus-5[-.]5)",
        limits=_ALWAYS_THINKS,
        source="https://platform.claude.com/docs/en/models/opus-5-5/whats-new-opus-5-5, and " + _THINKING_TABLE,
        checked=date(2026, 9, 22),
        unverified="whether Fable 5 and Mythos 5 (not 5.1) can be forced to call a tool: sources disagree",
    ),
    Row(
        models=r"claude-sonnet-5[-.]5",
        limits=msgspec.structs.replace(_UNFORCED, no_thinking="between_tools"),
        source="https://platform.claude.com/docs/en/models/sonnet-5-5/whats-new-sonnet-5-5",
        checked=date(2026, 10, 13),
    ),
    Row(
        models=r"claude-haiku-5[-.]5",
        limits=_UNFORCED,
        source="https://platform.claude.com/docs/en/models/haiku-5-5/whats-new-haiku-5-5",
        checked=date(2026, 10, 13),
        unverified="whether it can be forced to call a tool: no, as its sisters",
    ),
    Row(
        models=r"claude-mythos-preview",
        limits=msgspec.structs.replace(_ALWAYS_THINKS, thinking="both"),
        source=_THINKING_TABLE,
        checked=date(2026, 8, 22),
        unverified="whether it takes temperature, top_p and top_k: no",
    ),
    Row(models=r"claude-(opus|sonnet)-5", limits=_CLAUDE_5, source=_THINKING_TABLE, checked=date(2026, 8, 22)),
    Row(
        models=r"claude-opus-4[-.][78]",
        limits=msgspec.structs.replace(_CLAUDE_5, no_thinking="leave out"),
        source="https://platform.claude.com/docs/en/about-claude/models/migration-guide, and " + _THINKING_TABLE,
        checked=date(2026, 8, 22),
        unverified="whether thinking may be 'disabled': sources disagree, and it is off where nothing is said",
    ),
    Row(
        models=r"claude-(opus|sonnet)-4[-.]6",
        limits=Limits(thinking="both", efforts=_EFFORTS_4_6, temperature_with_top_p=False, schemas=_CLAUDE_SCHEMAS),
        source="https://platform.claude.com/docs/en/build-with-claude/effort, and " + _THINKING_TABLE,
        checked=date(2026, 8, 22),
    ),
    Row(
        models=r"claude-((opus|sonnet|haiku)-4[-.]5|opus-4[-.]1)",
        limits=_CLAUDE_4_5,
        source="https://platform.claude.com/docs/models/haiku-4-5/migration-guide, and " + _STRUCTURED,
        checked=date(2026, 8, 22),
    ),
    Row(
        models=r"claude-((opus|sonnet|haiku)-4|[23]|instant)",
        limits=Limits(thinking="budget", schema=False),
        source=_STRUCTURED + ": generally available since Claude 4.5 and Opus 4.1",
        checked=date(2026, 8, 22),
    ),
    Row(
        models=r"claude",
        limits=_ALWAYS_THINKS,
        source="none: a model that is newer than this table",
        checked=AS_OF,
        unverified="everything: as the strictest that is known",
    ),
    Row(
        models=r"",
        limits=Limits(thinking="both", efforts=_EFFORTS, schemas=_CLAUDE_SCHEMAS),
        source="none: other servers of the format have bounds of their own",
        checked=AS_OF,
        unverified="everything: the format's own limits for schemas, and no others",
    ),
)

# --- Gemini -------------------------------------------------------------------------------------------------

_GEMINI_THINKING = "https://docs.cloud.google.com/gemini-enterprise-agent-platform/models/thinking"
_LEVELS = {"minimal": "MINIMAL", "low": "LOW", "medium": "MEDIUM", "high": "HIGH", "xhigh": "HIGH"}
_LEVELS_FROM_LOW = _LEVELS | {"minimal": "LOW"}
# The API reference of `responseJsonSchema`, 2026-11-21: keywords that it does not list are said in words; "cyclic
# references … may only be used within non-required properties", and in the strict subset all are required.
_GEMINI_SCHEMAS = SchemaLimits(
    recursion=False,
    open_objects=False,
    not_held=frozenset(("pattern", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
)
_GEMINI_UNVERIFIED = "objects with free keys (listed, but reported to arrive empty), recursive arguments: not used"
_GEMINI_2 = Limits(schema_with_tools=False, schemas=_GEMINI_SCHEMAS, tool_schemas=False)
_GEMINI_3 = Limits(levels=_LEVELS, schemas=_GEMINI_SCHEMAS, tool_schemas=False)
_GEMINI = (
    Row(
        models=r"gemini-2\.5-pro",
        limits=msgspec.structs.replace(_GEMINI_2, can_stop_reasoning=False),
        source="https://ai.google.dev/gemini-api/docs/thinking: 128 tokens or more",
        checked=date(2026, 8, 22),
        unverified=_GEMINI_UNVERIFIED,
    ),
    Row(
        models=r"gemini-[12]\b|gemma|learnlm",
        limits=_GEMINI_2,
        source="400 'Function calling with a response mime type: application/json is unsupported'; "
        "https://ai.google.dev/gemini-api/docs/structured-output: with tools since Gemini 3",
        checked=date(2026, 8, 22),
        unverified=_GEMINI_UNVERIFIED,
    ),
    Row(
        models=r"gemini-3(\.\d+)?-pro",
        limits=msgspec.structs.replace(_GEMINI_3, levels=_LEVELS_FROM_LOW, can_stop_reasoning=False),
        source=_GEMINI_THINKING,
        checked=date(2026, 11, 21),
        unverified=_GEMINI_UNVERIFIED,
    ),
    Row(
        models=r"gemini-3\.[7-9]",
        limits=msgspec.structs.replace(_GEMINI_3, levels=_LEVELS_FROM_LOW),
        source=_GEMINI_THINKING,
        checked=date(2026, 11, 21),
        unverified=_GEMINI_UNVERIFIED,
    ),
    Row(
        models=r"gemini-3",
        limits=_GEMINI_3,
        source=_GEMINI_THINKING,
        checked=date(2026, 11, 21),
        unverified=_GEMINI_UNVERIFIED,
    ),
    Row(
        models=r"",
        limits=msgspec.structs.replace(_GEMINI_3, levels=_LEVELS_FROM_LOW),
        source="none: a model that is newer than this table",
        checked=AS_OF,
        unverified="everything: as Gemini 3.8 Flash",
    ),
)

# --- Groq ---------------------------------------------------------------------------------------------------

_GROQ_SOURCE = (
    "https://console.groq.com/docs/structured-outputs: 'Streaming and tool use are not currently supported with "
    "Structured Outputs', and the list of its models"
)
_GROQ_SCHEMA = Limits(schema_with_tools=False, schema_streamed=False)
_GROQ = (
    Row(
        models=r"gpt-oss-|kimi-k2-instruct-0905|llama-4-(maverick|scout)",
        limits=_GROQ_SCHEMA,
        source=_GROQ_SOURCE,
        checked=date(2026, 10, 7),
    ),
    Row(
        models=r"",
        limits=msgspec.structs.replace(_GROQ_SCHEMA, schema=False),
        source=_GROQ_SOURCE,
        checked=date(2026, 10, 7),
    ),
)

TABLE: Final[dict[str, tuple[Row, ...]]] = {
    "openai": _OPENAI,
    "anthropic": _ANTHROPIC,
    "gemini": _GEMINI,
    "groq": _GROQ,
}
