"""Which API a name takes: Responses where the model needs it, chat completions everywhere else."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from halter import Agent
from halter.core.ports import Model
from halter.errors import ConfigurationError
from halter.models import AzureOpenAI, AzureOpenAIResponses, OpenAIChat, OpenAIResponses
from halter.models.limits import TABLE, limits_of
from halter.models.names import resolve
from halter.models.prices import price_of
from halter.models.routes import azure_model, openai_model
from halter.request import Settings
from halter.testing import MemorySource
from halter.testing.memory import chat_stream

from .test_openai import asked
from .test_openai_responses import ANSWER

ENDPOINT = "https://mine.openai.azure.com"
VARIABLES = (
    *("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_API_VERSION"),
    *("AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN"),
)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "azure-test")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", ENDPOINT)


NEED_RESPONSES = (
    *("gpt-5", "gpt-5-mini", "gpt-5-2025-08-07", "gpt-5-codex", "gpt-5-pro", "gpt-5.1", "gpt-5.2", "gpt-5.3-codex"),
    *("gpt-5.4-mini", "gpt-5.6-sol", "gpt-6-astra", "gpt-6.1-terra", "o1-pro", "o3-pro", "o4-mini-deep-research"),
)
CHAT = (
    *("gpt-4o", "gpt-4.1-mini", "gpt-3.5-turbo", "o3", "o4-mini", "chatgpt-4o-latest", "gpt-5-chat-latest"),
    *("gpt-5-search-api", "gpt-oss-120b", "ft:gpt-4o:me::1", "my-own-model", "llama3"),
)


@pytest.mark.parametrize("name", NEED_RESPONSES)
def test_a_model_that_refuses_tools_on_chat_completions_is_asked_by_responses(name: str) -> None:
    """The model has the name that was asked for, in events and in prices."""
    model = resolve(f"openai:{name}")
    assert isinstance(model, OpenAIResponses)
    assert model.name == f"openai:{name}"
    assert repr(model) == f"OpenAIResponses({name!r})"
    assert model.price == price_of(f"openai:{name}")


@pytest.mark.parametrize("name", CHAT)
def test_other_models_and_unknown_names_are_asked_by_chat_completions(name: str) -> None:
    model = resolve(f"openai:{name}")
    assert isinstance(model, OpenAIChat)
    assert model.name == f"openai:{name}"


@pytest.mark.parametrize(
    "place", ["http://localhost:11434/v1", "https://gateway.example/v1", "https://xapi.openai.com"]
)
def test_another_server_is_asked_by_chat_completions(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given, or from `OPENAI_BASE_URL`: it may not have any other API."""
    assert isinstance(openai_model("gpt-5.2", base_url=place), OpenAIChat)
    monkeypatch.setenv("OPENAI_BASE_URL", place)
    assert isinstance(resolve("openai:gpt-5.2"), OpenAIChat)
    assert isinstance(openai_model("gpt-5.2", base_url="https://api.openai.com/v1"), OpenAIResponses)


def test_openais_regions_are_openais() -> None:
    assert isinstance(openai_model("gpt-5.2", base_url="https://eu.api.openai.com/v1"), OpenAIResponses)


def test_a_prefix_forces_an_api() -> None:
    """`openai-chat:` and `openai-responses:`, whichever model it is; prices are those of the model."""
    chat, responses = resolve("openai-chat:gpt-5.2"), resolve("openai-responses:gpt-4o")
    assert isinstance(chat, OpenAIChat)
    assert isinstance(responses, OpenAIResponses)
    assert (chat.name, responses.name) == ("openai-chat:gpt-5.2", "openai-responses:gpt-4o")
    assert chat.price == price_of("openai:gpt-5.2") is not None
    for name in ("openai:gpt-5.2", "openai-chat:gpt-5.2", "azure-responses:mine", "azure-chat:gpt-5"):
        assert resolve(name).name == resolve(resolve(name).name).name == name


def test_a_setting_that_responses_lacks_names_the_way_to_chat() -> None:
    with pytest.raises(ConfigurationError, match=r"no setting 'seed'.*openai-chat:gpt-5\.2"):
        Agent("openai:gpt-5.2", settings=Settings(seed=7))
    Agent("openai-chat:gpt-5.2", settings=Settings(seed=7))


def test_a_deployment_by_the_name_of_such_a_model_is_asked_by_azures_responses() -> None:
    """At its v1 route; a deployment may have any name, and a date as version has chat completions alone."""
    model = resolve("azure:gpt-5.2")
    assert isinstance(model, AzureOpenAIResponses)
    assert model.name == "azure:gpt-5.2"
    assert model._url() == f"{ENDPOINT}/openai/v1/responses"
    assert azure_model("gpt-5.2", api_version="preview")._url() == f"{ENDPOINT}/openai/v1/responses?api-version=preview"
    for chat in (
        resolve("azure:mine"),
        azure_model("gpt-5.2", api_version="2024-10-21"),
        resolve("azure-chat:gpt-5.2"),
    ):
        assert isinstance(chat, AzureOpenAI)
    forced = resolve("azure-responses:mine")
    assert isinstance(forced, AzureOpenAIResponses)
    with pytest.raises(ConfigurationError, match="deployments route"):
        AzureOpenAIResponses("gpt-5.2", api_version="2024-10-21")


def sent_by(model: Model, source: MemorySource) -> Any:
    asked(model, source)
    return source.requests[-1]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("kind", [AzureOpenAI, AzureOpenAIResponses])
def test_a_token_provider_lets_both_apis_in_without_stopping_the_loop(kind: Any, *, is_async: bool) -> None:
    """A plain one may wait for the network: it is called in a thread."""
    threads: list[threading.Thread] = []

    def plain() -> str:
        threads.append(threading.current_thread())
        return "token-1"

    async def later() -> str:
        return plain()

    source = MemorySource(ANSWER if kind is AzureOpenAIResponses else chat_stream(1))
    model = kind("dep", base_url=ENDPOINT, token_provider=later if is_async else plain, source=source)
    request = sent_by(model, source)
    assert request.headers["Authorization"] == "Bearer token-1"
    assert "api-key" not in request.headers
    assert (threads[0] is threading.main_thread()) is is_async


def test_each_row_of_the_table_says_who_says_so_and_when() -> None:
    for provider, rows in TABLE.items():
        for row in rows:
            assert row.source, (provider, row.models)
            assert row.checked.year >= 2026, (provider, row.models)
            if row.source.startswith("none"):
                assert row.unverified, (provider, row.models)
    assert limits_of("vllm", "gpt-5").route == "chat"
