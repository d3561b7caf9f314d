"""`ContextTooLong`: what providers were seen to say of a prompt that is too long, and what is none of it.

The texts are theirs, from their documentation, their sources and what users have reported.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from halter import Agent, RunResult
from halter.core.ports import Model
from halter.errors import ContextTooLong, ModelNotFound, ProviderError, RateLimited, RequestRejected, ServerFailed
from halter.models import Anthropic, AzureOpenAI, Fallback, Gemini, OpenAIChat, OpenAIResponses
from halter.models.compatible import compatible
from halter.models.error_frames import error_from
from halter.models.too_long import Excess, excess
from halter.testing import Answer, MemorySource
from halter.testing.memory import chat_stream

SAID: list[tuple[str, str, int | None, int | None]] = [
    (
        "openai",
        "This model's maximum context length is 4097 tokens. However, you requested 4203 tokens (3703 in the messages, "
        "500 in the completion). Please reduce the length of the messages or completion.",
        4097,
        4203,
    ),
    (
        "openai-messages",
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 204308 tokens. "
        "Please reduce the length of the messages.",
        128000,
        204308,
    ),
    (
        "openai-tools",
        "This model's maximum context length is 16385 tokens. However, your messages resulted in 17234 tokens (16980 "
        "in the messages, 254 in the functions). Please reduce the length of the messages or functions.",
        16385,
        17234,
    ),
    (
        "responses",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        None,
        None,
    ),
    ("anthropic", "prompt is too long: 209353 tokens > 199999 maximum", 199999, 209353),
    (
        "anthropic-with-answer",
        "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input length or "
        "`max_tokens` and try again",
        200000,
        242959,
    ),
    (
        "gemini",
        "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).",
        1048576,
        1200293,
    ),
    (
        "vertex",
        "Unable to submit request because the input token count is 1054016 but model only supports up to 1048576. "
        "Reduce the input token count and try again.",
        1048576,
        1054016,
    ),
    (
        "deepseek",
        "This model's maximum context length is 131072 tokens. However, you requested 131134 tokens (122942 in the "
        "messages, 8192 in the completion). Please reduce the length of the messages or completion.",
        131072,
        131134,
    ),
    (
        "mistral",
        "Prompt contains 40207 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        32768,
        40207,
    ),
    ("groq", "Please reduce the length of the messages or completion.", None, None),
    (
        "cerebras",
        "Please reduce the length of the messages or completion. Current length is 9124 while limit is 8192",
        8192,
        9124,
    ),
    (
        "openrouter",
        "This endpoint's maximum context length is 32768 tokens. However, you requested about 42832 tokens (42832 of "
        'text input). Please reduce the length of either one, or use the "middle-out" transform to compress your '
        "prompt automatically.",
        32768,
        42832,
    ),
    (
        "xai",
        "This model's maximum prompt length is 131072 but the request contains 136973 tokens.",
        131072,
        136973,
    ),
    (
        "vllm",
        "This model's maximum context length is 262144 tokens. However, you requested 128000 output tokens and your "
        "prompt contains at least 134145 input tokens, for a total of at least 262145 tokens. Please reduce the "
        "length of the input prompt or the number of requested output tokens. (parameter=input_tokens, value=134145)",
        262144,
        262145,
    ),
    (
        "vllm-answer",
        "'max_tokens' or 'max_completion_tokens' is too large: 30000. This model's maximum context length is 32768 "
        "tokens and your request has 5000 input tokens (30000 > 32768 - 5000).",
        32768,
        None,
    ),
    (
        "llama.cpp",
        "request (14429 tokens) exceeds the available context size (8192 tokens), try increasing it",
        8192,
        14429,
    ),
    ("llama.cpp-before", "the request exceeds the available context size, try increasing it", None, None),
    ("llama-cpp-python", "Requested tokens (2285) exceed context window of 2048", 2048, 2285),
    (
        "lm-studio",
        "Trying to keep the first 10136 tokens when context the overflows. However, the model is loaded with context "
        "length of only 7866 tokens, which is not enough. Try to load the model with a larger context length, or "
        "provide a shorter input.",
        7866,
        10136,
    ),
    ("lm-studio-mlx", "Context size has been exceeded", None, None),
    ("ollama", "prompt too long; exceeded max context length by 4096 tokens", None, None),
    ("bedrock", "Input is too long for requested model.", None, None),
    ("moonshot", "Your request exceeded model token limit: 262144 (requested: 300000)", 262144, 300000),
    ("minimax", "invalid params, context window exceeds limit", None, None),
    ("dashscope", "Range of input length should be [1, 30720]", 30720, None),
    (
        "tgi",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and "
        "512 `max_new_tokens`",
        4096,
        5000,
    ),
    (
        "sglang",
        "The input (40012 tokens) is longer than the model's context length (32768 tokens).",
        32768,
        40012,
    ),
]

NOT_SAID = [
    "Invalid 'tools[0].function.name': string too long. Expected a string with maximum length 64.",
    "max_tokens is too large: 100000. This model supports at most 16384 completion tokens.",
    "messages: at least one message is required",
    "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
    "Unsupported parameter: 'max_tokens' is not supported with this model.",
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'.",
    "Request contains an invalid argument.",
    "You exceeded your current quota, please check your plan and billing details.",
    "scripted",
]


@pytest.mark.parametrize(("message", "limit", "tokens"), [row[1:] for row in SAID], ids=[row[0] for row in SAID])
def test_what_providers_say_of_a_prompt_that_is_too_long_is_understood(
    message: str, limit: int | None, tokens: int | None
) -> None:
    """With the model's limit and the prompt's length, where they are told; as an answer and as a frame."""
    assert excess(message, status=400) == Excess(limit, tokens)
    for found in ({"error": {"message": message}}, {"message": message, "code": "invalid_request_error"}):
        error = error_from(found, "m")
        assert type(error) is ContextTooLong
        assert (error.limit, error.tokens) == (limit, tokens)
        assert message in str(error)


@pytest.mark.parametrize("message", NOT_SAID)
def test_what_is_at_fault_otherwise_is_not_taken_for_it(message: str) -> None:
    assert excess(message, status=400) is None
    assert type(error_from({"message": message, "code": "invalid_request_error"}, "m")) is RequestRejected


@pytest.mark.parametrize(
    "code", ["context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded"]
)
def test_a_code_is_enough(code: str) -> None:
    """Whatever the words, and in whatever language."""
    assert excess("zu lang", status=400, code=code) == Excess()
    assert type(error_from({"error": {"message": "zu lang", "type": code}}, "m")) is ContextTooLong


def test_413_is_enough() -> None:
    """The request is larger than the server takes: the same remedy."""
    assert excess("Request Entity Too Large", status=413) == Excess()
    groq = (
        "Request too large for model `llama-3.3-70b-versatile` in organization `org_01jp8` service tier `on_demand` on "
        "tokens per minute (TPM): Limit 6000, Requested 14810, please reduce your message size and try again."
    )
    assert excess(groq, status=413, code="rate_limit_exceeded") == Excess(6000, 14810)


@pytest.mark.parametrize(
    ("status", "kind"), [(429, RateLimited), (404, ModelNotFound)], ids=["rate limit", "no such model"]
)
def test_a_status_that_says_something_else_counts_more_than_words(status: int, kind: type[ProviderError]) -> None:
    """A pause helps against a limit per minute; another model where there is none of this name."""
    assert excess(SAID[0][1], status=status) is None
    assert type(error_from({"error": {"message": SAID[0][1], "code": status}}, "m")) is kind


@pytest.mark.parametrize(
    "piece", ["9", "1,", "12, ", "1 + ", "input token count ", "exceeds ", "requested ", "(1 tokens "]
)
def test_an_error_that_repeats_what_was_sent_is_read_in_time_in_proportion(piece: str) -> None:
    """A list of numbers above all: each of them may begin a count. It took two minutes, on the event loop."""
    began = time.process_time()
    repeated = piece * (64 * 1024 // len(piece))
    assert isinstance(error_from({"error": {"message": repeated * 10, "code": 400}}, "m"), ProviderError)
    assert excess(f"prompt is too long: 209353 tokens > 199999 maximum: {repeated}") == Excess(199999, 209353)
    assert excess(f"{repeated}: prompt is too long: 209353 tokens > 199999 maximum") == Excess(199999, 209353)
    assert time.process_time() - began < 1.0


def test_a_number_that_is_none_of_tokens_is_no_count() -> None:
    """Python reads no text of more than 4,300 digits as a number."""
    assert excess(f"This model's maximum context length is {'9' * 5000} tokens.") == Excess()


def test_a_rate_limit_in_a_frame_stays_one() -> None:
    found = {"error": {"message": "Please reduce the length of the messages.", "code": "rate_limit_exceeded"}}
    assert type(error_from(found, "m")) is RateLimited


def test_an_error_of_the_server_s_own_stays_one() -> None:
    assert type(error_from({"error": {"message": "boom", "type": "server_error"}}, "m")) is ServerFailed


# --- as each provider sends it --------------------------------------------------------------------------------


def _chat(source: MemorySource) -> Model:
    return OpenAIChat("m", base_url="https://p.test/v1", api_key="sk-1234", source=source)


def _azure(source: MemorySource) -> Model:
    return AzureOpenAI("m", base_url="https://p.test", api_key="sk-1234", source=source)


def _responses(source: MemorySource) -> Model:
    return OpenAIResponses("m", base_url="https://p.test/v1", api_key="sk-1234", source=source)


def _anthropic(source: MemorySource) -> Model:
    return Anthropic("m", base_url="https://p.test", api_key="sk-1234", source=source)


def _gemini(source: MemorySource) -> Model:
    return Gemini("m", base_url="https://p.test", api_key="sk-1234", source=source)


def _vllm(source: MemorySource) -> Model:
    return compatible("vllm", "m", source=source)


def _openrouter(source: MemorySource) -> Model:
    return compatible("openrouter", "m", api_key="sk-1234", source=source)


OF_OPENAI = {
    "error": {"message": SAID[1][1], "type": "invalid_request_error", "param": "messages"}
    | {"code": "context_length_exceeded"}
}
OF_RESPONSES = {
    "error": {"message": SAID[3][1], "type": "invalid_request_error", "param": "input"}
    | {"code": "context_length_exceeded"}
}
OF_ANTHROPIC = {
    "type": "error",
    "error": {"type": "invalid_request_error", "message": SAID[4][1]},
    "request_id": "req_011CUB2XUHWkFnQzxcKBbjpF",
}
OF_GEMINI = {"error": {"code": 400, "message": SAID[6][1], "status": "INVALID_ARGUMENT"}}
OF_VLLM = {"object": "error", "message": SAID[0][1], "type": "BadRequestError", "param": None, "code": 400}
OF_LLAMA = {
    "error": {
        "code": 500,
        "message": "the request exceeds the available context size. try increasing the context size or enable context "
        "shift",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 1407,
        "n_ctx": 256,
    }
}
OF_OPENROUTER = {
    "error": {
        "message": "Provider returned error",
        "code": 502,
        "metadata": {"provider_name": "DeepInfra", "raw": json.dumps({"object": "error", "message": SAID[8][1]})},
    }
}

ASKED: list[tuple[str, Callable[[MemorySource], Model], int, dict[str, Any], int | None, int | None]] = [
    ("openai", _chat, 400, OF_OPENAI, 128000, 204308),
    ("azure", _azure, 400, OF_OPENAI, 128000, 204308),
    ("responses", _responses, 400, OF_RESPONSES, None, None),
    ("anthropic", _anthropic, 400, OF_ANTHROPIC, 199999, 209353),
    ("gemini", _gemini, 400, OF_GEMINI, 1048576, 1200293),
    ("vllm", _vllm, 400, OF_VLLM, 4097, 4203),
    ("llama.cpp", _chat, 500, OF_LLAMA, 256, 1407),
    ("openrouter", _openrouter, 502, OF_OPENROUTER, 131072, 131134),
]


async def failed(model: Model) -> ContextTooLong:
    result: RunResult[Any] = await Agent(model).run("hi").finished()
    assert type(result.error) is ContextTooLong, result.why()
    assert not result.error.retryable
    return result.error


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("model", "status", "body", "limit", "tokens"), [row[1:] for row in ASKED], ids=[row[0] for row in ASKED]
)
async def test_every_adapter_raises_it(
    model: Callable[[MemorySource], Model], status: int, body: dict[str, Any], limit: int | None, tokens: int | None
) -> None:
    """Asked once: repeating cannot help."""
    source = MemorySource(
        Answer(status=status, headers={"content-type": "application/json"}, body=((0.0, json.dumps(body).encode()),))
    )
    error = await failed(model(source))
    assert (error.status, error.limit, error.tokens) == (status, limit, tokens)
    assert len(source.requests) == 1


FRAMES: list[tuple[str, Callable[[MemorySource], Model], dict[str, Any]]] = [
    ("openai", _chat, OF_OPENAI),
    ("vllm", _vllm, OF_VLLM),
    ("llama.cpp", _chat, OF_LLAMA),
    ("openrouter", _openrouter, OF_OPENROUTER),
    ("responses", _responses, {"type": "error", **OF_RESPONSES}),
    (
        "responses-failed",
        _responses,
        {"type": "response.failed", "response": {"status": "failed", "error": OF_RESPONSES["error"]}},
    ),
    ("anthropic", _anthropic, OF_ANTHROPIC),
    ("gemini", _gemini, OF_GEMINI),
]


@pytest.mark.virtual_time
@pytest.mark.parametrize(("model", "frame"), [row[1:] for row in FRAMES], ids=[row[0] for row in FRAMES])
async def test_so_it_is_as_a_frame_after_200(model: Callable[[MemorySource], Model], frame: dict[str, Any]) -> None:
    source = MemorySource(Answer(body=((0.0, b"data: " + json.dumps(frame).encode() + b"\n\n"),)))
    await failed(model(source))
    assert len(source.requests) == 1


@pytest.mark.virtual_time
async def test_the_next_model_of_a_fallback_is_not_asked() -> None:
    """The request itself is at fault; that a next model's window may be larger is nobody's decision but the user's."""
    refusal = Answer(
        status=400, headers={"content-type": "application/json"}, body=((0.0, json.dumps(OF_OPENAI).encode()),)
    )
    other = MemorySource(chat_stream(3))
    await failed(Fallback(_chat(MemorySource(refusal)), _chat(other)))
    assert other.requests == []
