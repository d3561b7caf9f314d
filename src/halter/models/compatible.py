"""Other servers of the chat completions format, by name: one table of where they are and what they do otherwise.

Each deviation has its source beside it. What a server has no word for is missing from its features, so that asking
for it is an error before anything is sent.
"""

from __future__ import annotations

from typing import Any

import msgspec

from halter.errors import ConfigurationError
from halter.features import Features
from halter.models.chat.dialect import Dialect
from halter.models.chat.model import CHAT_FEATURES, ChatModel
from halter.models.endpoint import Server


class CompatibleServer(msgspec.Struct, frozen=True, kw_only=True):
    """One server. `title`: its name; `docs`: its own description of the format."""

    title: str
    docs: str
    server: Server
    features: Features
    dialect: Dialect


def compatible(prefix: str, model: str, **options: Any) -> CompatibleChat:
    """The model `model` of the server `prefix`, such as `compatible("groq", "openai/gpt-oss-120b")`.

    `options`: as for `HttpModel`; a server with the same ways elsewhere is another `base_url`. For one that is not in
    the table give `CompatibleChat` a row of your own. Raises `ConfigurationError`.
    """
    if prefix not in COMPATIBLE:
        raise ConfigurationError(f"no server {prefix!r}: there are {', '.join(COMPATIBLE)}")
    return CompatibleChat(COMPATIBLE[prefix], model, **options)


class CompatibleChat(ChatModel):
    """A model of such a server: of the table, by `compatible`, or of a row of your own."""

    def __init__(self, kind: CompatibleServer, model: str, **options: Any) -> None:
        self.server = kind.server
        self.family = kind.server.prefix
        self.features = kind.features
        self.dialect = kind.dialect
        super().__init__(model, **options)

    def __repr__(self) -> str:
        return super().__repr__().replace(f"{type(self).__name__}(", f"compatible({self.server.prefix!r}, ", 1)


# --- the table ----------------------------------------------------------------------------------------------

_MAX_TOKENS = {"max_output_tokens": "max_tokens"}
_NO_FILES = msgspec.structs.replace(CHAT_FEATURES, files=False)  # `file` parts are OpenAI's, and OpenRouter's
_PENALTIES = ("presence_penalty", "frequency_penalty")

_GROQ = CompatibleServer(
    title="Groq",
    docs="https://console.groq.com/docs/openai",
    # GROQ_BASE_URL is read by Groq's own SDK, but as an address without /openai/v1.
    server=Server(prefix="groq", base_url="https://api.groq.com/openai/v1", key_variables=("GROQ_API_KEY",)),
    # "not yet supported by any of our models" (https://console.groq.com/docs/api-reference)
    features=_NO_FILES.without(*_PENALTIES),
    # "messages[].name" gets 400 (https://console.groq.com/docs/openai)
    dialect=Dialect(developer_role="system", takes_names=False, takes_refusals=False),
)
_OLLAMA = CompatibleServer(
    title="Ollama",
    docs="https://docs.ollama.com/api/openai-compatibility",
    server=Server(
        prefix="ollama",
        base_url="http://localhost:11434/v1",
        base_url_variable="OLLAMA_BASE_URL",
        key_variables=("OLLAMA_API_KEY",),
        needs_key=False,
    ),
    # `tool_choice` and image URLs are unticked in the docs; parallel_tool_calls is no field of its request.
    features=msgspec.structs.replace(_NO_FILES.without("parallel_tool_calls"), tool_choice=False),
    # `reasoning` is a field of its messages, out and in (openai/openai.go of its source)
    dialect=Dialect(
        fields=_MAX_TOKENS,
        developer_role="system",
        takes_names=False,
        takes_refusals=False,
        image_urls=False,
        reasoning="reasoning",
    ),
)
_OPENROUTER = CompatibleServer(
    title="OpenRouter",
    docs="https://openrouter.ai/docs/api-reference/chat/send-chat-completion-request",
    server=Server(
        prefix="openrouter",
        base_url="https://openrouter.ai/api/v1",
        base_url_variable="OPENROUTER_BASE_URL",
        key_variables=("OPENROUTER_API_KEY",),
    ),
    features=CHAT_FEATURES.adding("top_k", "reasoning_tokens"),
    dialect=Dialect(
        # One `reasoning` object for all models (https://openrouter.ai/docs/use-cases/reasoning-tokens)
        fields={
            "max_output_tokens": "max_tokens",
            "reasoning_effort": "reasoning.effort",
            "reasoning_tokens": "reasoning.max_tokens",
        },
        # "preserving reasoning", same page: what has no `reasoning_details` goes back as text.
        reasoning="reasoning",
        # `file_data` is a data: URL, or one to fetch (https://openrouter.ai/docs/features/multimodal/pdfs)
        file_urls=True,
        takes_refusals=False,
    ),
)
_DEEPSEEK = CompatibleServer(
    title="DeepSeek",
    docs="https://api-docs.deepseek.com/api/create-chat-completion",
    server=Server(prefix="deepseek", base_url="https://api.deepseek.com", key_variables=("DEEPSEEK_API_KEY",)),
    # Content is text; response_format is `text` or `json_object`; neither seed nor parallel_tool_calls exists.
    features=msgspec.structs.replace(_NO_FILES.without("seed", "parallel_tool_calls"), images=False, output=False),
    # Once a tool was called, thinking has to come back, or 400 (https://api-docs.deepseek.com/guides/thinking_mode)
    dialect=Dialect(
        fields=_MAX_TOKENS,
        developer_role="system",
        takes_refusals=False,
        reasoning="reasoning_content",
        needs_reasoning=True,
    ),
)
_MISTRAL = CompatibleServer(
    title="Mistral",
    docs="https://docs.mistral.ai/api/endpoint/chat",
    server=Server(prefix="mistral", base_url="https://api.mistral.ai/v1", key_variables=("MISTRAL_API_KEY",)),
    features=_NO_FILES,
    # A field too many gets 422, "Extra inputs are not permitted": stream_options (usage comes unasked),
    # max_completion_tokens, a message's name. A call's id "must be a-z, A-Z, 0-9, with a length of 9", and "Unexpected
    # role 'user' after role 'tool'" (its 400, code 3230).
    dialect=Dialect(
        fields=_MAX_TOKENS | {"seed": "random_seed"},
        developer_role="system",
        has_stream_options=False,
        takes_names=False,
        takes_refusals=False,
        must_call="any",
        call_id_length=9,
        after_results="OK.",
    ),
)
_TOGETHER = CompatibleServer(
    title="Together AI",
    docs="https://docs.together.ai/reference/chat-completions",
    server=Server(
        prefix="together",
        base_url="https://api.together.xyz/v1",
        base_url_variable="TOGETHER_BASE_URL",
        key_variables=("TOGETHER_API_KEY",),
    ),
    # parallel_tool_calls is no field of its request.
    features=_NO_FILES.adding("top_k").without("parallel_tool_calls"),
    dialect=Dialect(fields=_MAX_TOKENS, developer_role="system", takes_refusals=False),
)
_FIREWORKS = CompatibleServer(
    title="Fireworks AI",
    docs="https://docs.fireworks.ai/api-reference/post-chatcompletions",
    # FIREWORKS_BASE_URL is read by its own SDK, but as an address without /inference/v1.
    server=Server(
        prefix="fireworks", base_url="https://api.fireworks.ai/inference/v1", key_variables=("FIREWORKS_API_KEY",)
    ),
    features=_NO_FILES.adding("top_k"),
    # "You must include the reasoning_content from previous assistant turns" (https://docs.fireworks.ai/guides/reasoning)
    dialect=Dialect(
        fields=_MAX_TOKENS,
        developer_role="system",
        takes_names=False,
        takes_refusals=False,
        reasoning="reasoning_content",
    ),
)
_XAI = CompatibleServer(
    title="xAI",
    docs="https://docs.x.ai/docs/api-reference",
    server=Server(prefix="xai", base_url="https://api.x.ai/v1", key_variables=("XAI_API_KEY",)),
    # Its reasoning models refuse both penalties (https://docs.x.ai/docs/guides/reasoning)
    features=_NO_FILES.without(*_PENALTIES),
    dialect=Dialect(developer_role="system", takes_refusals=False),
)
_HUGGINGFACE = CompatibleServer(
    title="Hugging Face",
    docs="https://huggingface.co/docs/inference-providers/tasks/chat-completion",
    server=Server(prefix="huggingface", base_url="https://router.huggingface.co/v1", key_variables=("HF_TOKEN",)),
    # parallel_tool_calls is no field of its request.
    features=_NO_FILES.without("parallel_tool_calls"),
    dialect=Dialect(fields=_MAX_TOKENS, developer_role="system", takes_refusals=False),
)
_VLLM = CompatibleServer(
    title="vLLM",
    docs="https://docs.vllm.ai/en/stable/serving/openai_compatible_server.html",
    server=Server(prefix="vllm", base_url="http://localhost:8000/v1", key_variables=("VLLM_API_KEY",), needs_key=False),
    features=_NO_FILES.adding("top_k"),
    # Roles go to the model's chat template as they are, and few know `developer`. `reasoning` is read back
    # (https://docs.vllm.ai/en/stable/features/reasoning_outputs.html)
    dialect=Dialect(developer_role="system", takes_refusals=False, reasoning="reasoning"),
)
_LMSTUDIO = CompatibleServer(
    title="LM Studio",
    docs="https://lmstudio.ai/docs/developer/openai-compat/chat-completions",
    server=Server(
        prefix="lmstudio", base_url="http://localhost:1234/v1", key_variables=("LM_API_TOKEN",), needs_key=False
    ),
    # Neither reasoning_effort nor parallel_tool_calls is among the "supported payload parameters".
    features=_NO_FILES.adding("top_k").without("reasoning_effort", "parallel_tool_calls"),
    # "Invalid tool_choice type: 'object'", and "'url' field must be a base64 encoded image" (its error messages)
    dialect=Dialect(
        fields=_MAX_TOKENS,
        developer_role="system",
        takes_names=False,
        takes_refusals=False,
        image_urls=False,
        names_choice=False,
    ),
)

COMPATIBLE: dict[str, CompatibleServer] = {
    each.server.prefix: each
    for each in (
        _GROQ,
        _OLLAMA,
        _OPENROUTER,
        _DEEPSEEK,
        _MISTRAL,
        _TOGETHER,
        _FIREWORKS,
        _XAI,
        _HUGGINGFACE,
        _VLLM,
        _LMSTUDIO,
    )
}
