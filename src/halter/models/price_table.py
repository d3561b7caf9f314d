"""What well-known models hold and cost, as it was on one day: data, without a rule.

Only list prices on which two public tables, both kept from the providers' own pages, agreed on that day: those of
LiteLLM 1.109.1 and genai-prices 0.2.3. (The long-context prices of xAI and of Claude Sonnet 4.5 stand in the second
alone.) What they disagreed on is left out: DeepSeek's prices change with the hour.
"""

from __future__ import annotations

from datetime import date
from typing import Final, NamedTuple

AS_OF: Final = date(2026, 11, 21)
"""The day on which the table was true, as far as is known."""


class Row(NamedTuple):
    """One model. `window`: tokens of input and output together. `longest`: the most output tokens; `None`: no limit.

    `price`: US dollars for a million tokens: input, output, and input that was read from the provider's cache (`None`:
    no rebate). `over`: so many input tokens or more, and the three prices that hold then for the whole request.
    """

    window: int
    longest: int | None
    price: tuple[float, float, float | None]
    over: tuple[int, float, float, float | None] | None = None


MODELS: Final[dict[str, Row]] = {
    # https://www.anthropic.com/pricing#api
    "anthropic:claude-haiku-4-5": Row(200_000, 64_000, (1, 5, 0.1)),
    "anthropic:claude-haiku-5-5": Row(1_000_000, 128_000, (0.1, 0.5, 0.01), over=(100_000, 0.5, 2.5, 0.05)),
    "anthropic:claude-opus-4-5": Row(200_000, 64_000, (5, 25, 0.5)),
    "anthropic:claude-opus-4-6": Row(1_000_000, 128_000, (5, 25, 0.5)),
    "anthropic:claude-opus-4-7": Row(1_000_000, 128_000, (5, 25, 0.5)),
    "anthropic:claude-opus-4-8": Row(1_000_000, 128_000, (5, 25, 0.5)),
    "anthropic:claude-opus-5": Row(1_000_000, 128_000, (5, 25, 0.5)),
    "anthropic:claude-opus-5-5": Row(1_000_000, 128_000, (4, 20, 0.2)),
    "anthropic:claude-sonnet-4-5": Row(200_000, 64_000, (3, 15, 0.3), over=(200_000, 6, 22.5, 0.6)),
    "anthropic:claude-sonnet-4-6": Row(1_000_000, 128_000, (3, 15, 0.3)),
    "anthropic:claude-sonnet-5": Row(1_000_000, 128_000, (2, 10, 0.2)),
    "anthropic:claude-sonnet-5-5": Row(1_000_000, 128_000, (2, 10, 0.1)),
    # https://ai.google.dev/gemini-api/docs/pricing
    "gemini:gemini-2.5-flash": Row(1_048_576, 65_536, (0.3, 2.5, 0.03)),
    "gemini:gemini-2.5-flash-lite": Row(1_048_576, 65_536, (0.1, 0.4, 0.01)),
    "gemini:gemini-2.5-pro": Row(1_048_576, 65_536, (1.25, 10, 0.125), over=(200_000, 2.5, 15, 0.25)),
    "gemini:gemini-3-flash-preview": Row(1_048_576, 65_536, (0.5, 3, 0.05)),
    "gemini:gemini-3.1-flash-lite": Row(1_048_576, 65_536, (0.25, 1.5, 0.025)),
    "gemini:gemini-3.1-pro-preview": Row(1_048_576, 65_536, (2, 12, 0.2), over=(200_000, 4, 18, 0.4)),
    "gemini:gemini-3.5-flash": Row(1_048_576, 65_536, (1.5, 9, 0.15)),
    "gemini:gemini-3.5-flash-lite": Row(1_048_576, 65_536, (0.3, 2.5, 0.03)),
    "gemini:gemini-3.6-flash": Row(1_048_576, 65_536, (0.75, 3.75, 0.075)),
    "gemini:gemini-3.7-flash": Row(1_048_576, 65_536, (0.75, 3.75, 0.075)),
    "gemini:gemini-3.8-flash": Row(1_048_576, 65_536, (0.75, 3.75, 0.075)),
    "gemini:gemini-4-argon": Row(1_048_576, None, (2, 10, 0.1)),
    # https://console.groq.com/docs/models
    "groq:openai/gpt-oss-120b": Row(131_072, 65_536, (0.15, 0.6, 0.075)),
    "groq:openai/gpt-oss-20b": Row(131_072, 65_536, (0.075, 0.3, 0.0375)),
    # https://mistral.ai/pricing/api
    "mistral:codestral-2508": Row(256_000, 128_000, (0.3, 0.9, 0.03)),
    "mistral:ministral-14b-2512": Row(262_144, None, (0.2, 0.2, 0.02)),
    "mistral:ministral-3b-2512": Row(131_072, None, (0.1, 0.1, 0.01)),
    "mistral:ministral-8b-2512": Row(262_144, None, (0.15, 0.15, 0.015)),
    "mistral:ministral-8b-latest": Row(262_144, None, (0.15, 0.15, 0.015)),
    "mistral:mistral-large-2512": Row(262_144, None, (0.5, 1.5, 0.05)),
    "mistral:mistral-medium-3-5": Row(262_144, None, (1.5, 7.5, 0.15)),
    "mistral:mistral-medium-latest": Row(262_144, None, (1.5, 7.5, 0.15)),
    "mistral:mistral-small-2603": Row(262_144, None, (0.15, 0.6, 0.015)),
    "mistral:mistral-small-latest": Row(262_144, None, (0.15, 0.6, 0.015)),
    # https://developers.openai.com/api/docs/pricing
    "openai:gpt-3.5-turbo": Row(16_385, 4_096, (0.5, 1.5, None)),
    "openai:gpt-4": Row(8_192, 4_096, (30, 60, None)),
    "openai:gpt-4-turbo": Row(128_000, 4_096, (10, 30, None)),
    "openai:gpt-4.1": Row(1_047_576, 32_768, (2, 8, 0.5)),
    "openai:gpt-4.1-mini": Row(1_047_576, 32_768, (0.4, 1.6, 0.1)),
    "openai:gpt-4.1-nano": Row(1_047_576, 32_768, (0.1, 0.4, 0.025)),
    "openai:gpt-4o": Row(128_000, 16_384, (2.5, 10, 1.25)),
    "openai:gpt-4o-2024-05-13": Row(128_000, 4_096, (5, 15, None)),
    "openai:gpt-4o-mini": Row(128_000, 16_384, (0.15, 0.6, 0.075)),
    "openai:gpt-5": Row(400_000, 128_000, (1.25, 10, 0.125)),
    "openai:gpt-5-mini": Row(400_000, 128_000, (0.25, 2, 0.025)),
    "openai:gpt-5-nano": Row(400_000, 128_000, (0.05, 0.4, 0.005)),
    "openai:gpt-5-pro": Row(400_000, 272_000, (15, 120, None)),
    "openai:gpt-5.1": Row(400_000, 128_000, (1.25, 10, 0.125)),
    "openai:gpt-5.1-codex-mini": Row(400_000, 128_000, (0.25, 2, 0.025)),
    "openai:gpt-5.2": Row(400_000, 128_000, (1.75, 14, 0.175)),
    "openai:gpt-5.2-pro": Row(400_000, 128_000, (21, 168, None)),
    "openai:gpt-5.3-codex": Row(400_000, 128_000, (1.75, 14, 0.175)),
    "openai:gpt-5.4": Row(1_050_000, 128_000, (2.5, 15, 0.25), over=(272_000, 5, 22.5, 0.5)),
    "openai:gpt-5.4-mini": Row(400_000, 128_000, (0.75, 4.5, 0.075)),
    "openai:gpt-5.4-nano": Row(400_000, 128_000, (0.2, 1.25, 0.02)),
    "openai:gpt-5.4-pro": Row(1_050_000, 128_000, (30, 180, None), over=(272_000, 60, 270, None)),
    "openai:gpt-5.5": Row(1_050_000, 128_000, (5, 30, 0.5), over=(272_000, 10, 45, 1)),
    "openai:gpt-5.5-pro": Row(1_050_000, 128_000, (30, 180, None), over=(272_000, 60, 270, None)),
    "openai:gpt-5.6-luna": Row(1_050_000, 128_000, (0.2, 1.2, 0.02), over=(272_000, 0.4, 1.8, 0.04)),
    "openai:gpt-5.6-sol": Row(1_050_000, 128_000, (4, 20, 0.4), over=(272_000, 8, 30, 0.8)),
    "openai:gpt-5.6-terra": Row(1_050_000, 128_000, (2, 12, 0.2), over=(272_000, 4, 18, 0.4)),
    "openai:gpt-6-astra": Row(1_050_000, 128_000, (10, 50, 1), over=(272_000, 20, 75, 2)),
    "openai:gpt-6-luna": Row(1_050_000, 128_000, (0.1, 0.5, 0.01), over=(272_000, 0.2, 0.75, 0.02)),
    "openai:gpt-6-sol": Row(1_050_000, 128_000, (2, 10, 0.2), over=(272_000, 4, 15, 0.4)),
    "openai:gpt-6.1-sol": Row(1_050_000, 128_000, (2, 10, 0.1), over=(272_000, 4, 15, 0.2)),
    "openai:gpt-6.1-terra": Row(1_050_000, 128_000, (1, 5, 0.05), over=(272_000, 2, 7.5, 0.1)),
    "openai:o1": Row(200_000, 100_000, (15, 60, 7.5)),
    "openai:o1-pro": Row(200_000, 100_000, (150, 600, None)),
    "openai:o3": Row(200_000, 100_000, (2, 8, 0.5)),
    "openai:o3-mini": Row(200_000, 100_000, (1.1, 4.4, 0.55)),
    "openai:o3-pro": Row(200_000, 100_000, (20, 80, None)),
    "openai:o4-mini": Row(200_000, 100_000, (1.1, 4.4, 0.275)),
    # https://docs.x.ai/docs/models
    "xai:grok-4.20": Row(1_000_000, None, (1.25, 2.5, 0.2), over=(200_000, 2.5, 5, 0.4)),
    "xai:grok-4.3": Row(1_000_000, None, (1.25, 2.5, 0.2), over=(200_000, 2.5, 5, 0.4)),
    "xai:grok-4.5": Row(500_000, None, (2, 6, 0.3), over=(200_000, 4, 12, 0.6)),
    "xai:grok-4.6": Row(500_000, None, (2, 6, 0.5), over=(200_000, 4, 12, 1)),
    "xai:grok-4.7": Row(500_000, None, (2, 6, 0.5), over=(200_000, 4, 12, 1)),
    "xai:grok-build-0.1": Row(256_000, None, (1, 2, 0.2), over=(200_000, 2, 4, 0.4)),
}
