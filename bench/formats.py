"""What a token costs in each wire format: Halter, and the provider's official SDK, on the same bytes."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from statistics import median
from typing import Any

from bench.child import in_child, on_loop
from bench.cost import _check, _cpu
from bench.peers import MODEL, PROMPT
from bench.rounds import Options, interleaved
from bench.table import Line, Table, ratios, spread
from halter.proof.wire import Wire

TOKENS = 10_000
AT_LEAST = 10  # times cheaper than the official SDK

Texts = AsyncIterator[str]
Ask = Callable[[], Texts]
Close = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Row:
    """One format. `model`: Halter's class, by module and name. `sdk`: (URL ending in `/v1`) → how to ask, and close."""

    model: tuple[str, str]
    sdk: Callable[[str], tuple[Ask, Close]]


# --- the official SDKs, each as its documentation streams ---------------------------------------------------


def _openai(url: str) -> Any:
    import openai

    return openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=None)


def _chat(url: str) -> tuple[Ask, Close]:
    client = _openai(url)

    async def ask() -> Texts:
        messages = [{"role": "user", "content": PROMPT}]
        async with await client.chat.completions.create(model=MODEL, messages=messages, stream=True) as stream:
            async for chunk in stream:
                if chunk.choices and (text := chunk.choices[0].delta.content):
                    yield text

    return ask, client.close


def _responses(url: str) -> tuple[Ask, Close]:
    client = _openai(url)

    async def ask() -> Texts:
        async with await client.responses.create(model=MODEL, input=PROMPT, stream=True) as stream:
            async for event in stream:
                if event.type == "response.output_text.delta":
                    yield event.delta

    return ask, client.close


def _anthropic(url: str) -> tuple[Ask, Close]:
    import anthropic

    base = url.removesuffix("/v1")
    client: Any = anthropic.AsyncAnthropic(base_url=base, api_key="none", max_retries=0, timeout=None)

    async def ask() -> Texts:
        messages = [{"role": "user", "content": PROMPT}]
        async with client.messages.stream(model=MODEL, max_tokens=100_000, messages=messages) as stream:
            async for text in stream.text_stream:
                yield text

    return ask, client.close


def _gemini(url: str) -> tuple[Ask, Close]:
    from google import genai
    from google.genai.types import HttpOptions

    place = HttpOptions(base_url=url.removesuffix("/v1"), api_version="v1")
    client = genai.Client(api_key="none", http_options=place).aio

    async def ask() -> Texts:
        async for chunk in await client.models.generate_content_stream(model=MODEL, contents=PROMPT):
            if chunk.text:
                yield chunk.text

    return ask, client.aclose


ROWS = {
    "chat": Row(("halter.models.openai", "OpenAIChat"), _chat),
    "responses": Row(("halter.models.responses.model", "OpenAIResponses"), _responses),
    "anthropic": Row(("halter.models.anthropic.model", "Anthropic"), _anthropic),
    "gemini": Row(("halter.models.gemini.model", "Gemini"), _gemini),
}


# --- in a process of its own --------------------------------------------------------------------------------


def flood(format: str, who: str, url: str, tokens: int, loop: str) -> float:
    """Microseconds of CPU a token, one stream read as fast as it comes; the second answer of the process."""
    return on_loop(_second_of_two(format, who, url, tokens), loop)


async def _second_of_two(format: str, who: str, url: str, tokens: int) -> float:
    row = ROWS[format]
    ask, close = _halter(row, url) if who == "halter" else row.sdk(url)
    spent = 0.0
    for _ in range(2):
        texts: list[str] = []
        gc.collect()
        before = _cpu()
        async for text in ask():
            texts.append(text)
        spent = _cpu() - before
        _check(texts, tokens)
    await close()
    return spent / tokens * 1e6


def _halter(row: Row, url: str) -> tuple[Ask, Close]:
    """A whole run, read by its events, as in the other tables."""
    from halter import Agent
    from halter.events import TextDelta

    module, name = row.model
    agent = Agent(getattr(import_module(module), name)(MODEL, base_url=url, api_key="none"))

    async def ask() -> Texts:
        async for event in agent.run(PROMPT):
            if isinstance(event, TextDelta):
                yield event.text

    async def close() -> None:
        """Pools are closed with the loop."""

    return ask, close


# --- the rounds ---------------------------------------------------------------------------------------------


def measure_formats(options: Options) -> Table:
    """A row for each format whose adapter there is."""
    formats = [name for name, row in ROWS.items() if find_spec(row.model[0]) is not None]
    with Wire.start() as wire:
        url = wire.url(f"steady({TOKENS},0)", tag="formats")

        def measure(candidate: str) -> float:
            format, who = candidate.split()
            return in_child(flood, format=format, who=who, url=url, tokens=TOKENS, loop=options.loop)

        candidates = [f"{name} {who}" for name in formats for who in ("halter", "SDK")]
        found = interleaved("formats", options.rounds, candidates, measure)
    times = {name: ratios(found[f"{name} SDK"], found[f"{name} halter"]) for name in formats}
    return Table(
        title="CPU per token, by wire format",
        about=f"One stream of {TOKENS:,} tokens as fast as they are read, by Halter and by the provider's official "
        "Python SDK; the second answer of a fresh process.",
        columns=("", "Halter, µs per token (min–max)", "official SDK", "SDK / Halter, by round"),
        rows=tuple(
            (name, spread(found[f"{name} halter"]), spread(found[f"{name} SDK"]), spread(times[name]))
            for name in formats
        ),
        lines=tuple(
            Line(f"{name}: SDK / halter", median(times[name]), AT_LEAST, " ×", at_least=True) for name in formats
        ),
    )
