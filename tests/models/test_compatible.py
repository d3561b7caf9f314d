"""The servers known by name: each row of the table is a model that says what the server's documentation wants."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from halter import Agent, RunFailed
from halter.errors import ConfigurationError
from halter.messages import File, Image, Message, Reasoning, Text, ToolCall, ToolResult
from halter.models.chat.dialect import Dialect
from halter.models.chat.model import CHAT_FEATURES
from halter.models.compatible import COMPATIBLE, CompatibleChat, CompatibleServer, compatible
from halter.models.endpoint import Server, is_header_value
from halter.models.names import COMPATIBLE_PREFIXES, PREFIXES, resolve
from halter.request import OnlyTool, OutputSchema, Settings, ToolSpec
from halter.testing import MemorySource
from halter.testing.memory import chat_stream

from .test_openai import asked

KEY = "key-of-mine"
TOOLS = (ToolSpec(name="now"), ToolSpec(name="then"))
TURN = (
    Message("developer", (Text("Be brief."),)),
    Message.user("Time?", name="Anna"),
    Message("assistant", (Reasoning("I look."), ToolCall("call_0123456789", "now", "{}"))),
    Message("tool", (ToolResult("call_0123456789", "noon"),)),
)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for row in COMPATIBLE.values():
        for name in (*row.server.key_variables, row.server.base_url_variable or "OPENAI_BASE_URL"):
            monkeypatch.delenv(name, raising=False)


def sent(prefix: str, *messages: Message, model: dict[str, Any] | None = None, **request: Any) -> Any:
    """The one request that such a model makes; `model`: its options."""
    source = MemorySource(chat_stream(1))
    asked(compatible(prefix, "m", **({"api_key": KEY} | (model or {})), source=source), source, *messages, **request)
    return source.requests[0]


# --- the table ----------------------------------------------------------------------------------------------


def test_the_names_are_those_of_the_table() -> None:
    """`names.py` does not import the table, and says the same; no prefix is there twice."""
    assert tuple(COMPATIBLE) == COMPATIBLE_PREFIXES
    assert not set(COMPATIBLE) & set(PREFIXES)
    assert [row.server.prefix for row in COMPATIBLE.values()] == list(COMPATIBLE)


@pytest.mark.parametrize("prefix", COMPATIBLE)
def test_each_server_answers_by_its_name(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`"prefix:model"`: its own address, its own key, and no account headers of OpenAI."""
    row = COMPATIBLE[prefix]
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-another")
    monkeypatch.setenv(row.server.key_variables[0], KEY + "\n")
    model = resolve(f"{prefix}:some/model:free")
    assert isinstance(model, CompatibleChat)
    assert model.name == f"{prefix}:some/model:free"
    assert repr(model) == f"compatible('{prefix}', 'some/model:free')"
    request = sent(prefix, model={"api_key": None})
    assert request.url == f"{row.server.base_url}/chat/completions"
    assert request.headers["Authorization"] == f"Bearer {KEY}"
    assert not [name for name in request.headers if name.startswith("OpenAI")]


@pytest.mark.parametrize("prefix", COMPATIBLE)
def test_a_missing_key_is_named_where_one_is_needed(prefix: str) -> None:
    """Servers on this machine need none."""
    row = COMPATIBLE[prefix]
    if row.server.needs_key:
        with pytest.raises(ConfigurationError, match=row.server.key_variables[0]):
            resolve(f"{prefix}:m")
    else:
        assert "Authorization" not in sent(prefix, model={"api_key": None}).headers
    assert "Authorization" not in sent(prefix, model={"api_key": None, "base_url": "http://127.0.0.1:9/v1"}).headers


@pytest.mark.parametrize("prefix", [prefix for prefix, row in COMPATIBLE.items() if row.server.base_url_variable])
def test_an_address_from_the_environment_counts(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where such a variable is customary."""
    monkeypatch.setenv(COMPATIBLE[prefix].server.base_url_variable or "", "http://10.0.0.1:1/v1/")
    assert sent(prefix).url == "http://10.0.0.1:1/v1/chat/completions"


@pytest.mark.parametrize("prefix", COMPATIBLE)
def test_what_a_server_has_no_word_for_is_refused_at_once(prefix: str) -> None:
    """Each setting is either sent or an error; never dropped."""
    features = COMPATIBLE[prefix].features
    for name, value in EVERYTHING.given().items():
        if name in features.settings:
            compatible(prefix, "m", api_key=KEY, settings=Settings(**{name: value}))
        else:
            with pytest.raises(ConfigurationError, match=name):
                compatible(prefix, "m", api_key=KEY, settings=Settings(**{name: value}))


EVERYTHING = Settings(
    max_output_tokens=9,
    temperature=0.5,
    top_p=0.9,
    top_k=5,
    stop=("END",),
    seed=7,
    presence_penalty=1.0,
    frequency_penalty=1.0,
    reasoning_effort="low",
    reasoning_tokens=100,
    parallel_tool_calls=False,
    cache_prompt=True,
)


@pytest.mark.parametrize("prefix", COMPATIBLE)
def test_all_that_a_server_can_do_is_in_one_request(prefix: str) -> None:
    """Every feature at once: no field is lost on the way, and each has one place."""
    features = COMPATIBLE[prefix].features
    kept = {name: value for name, value in EVERYTHING.given().items() if name in features.settings}
    shape = OutputSchema(name="a", schema={"type": "object"}) if features.output else None
    choice = "required" if features.tool_choice else None
    seen = [Message.user("see", Image(data=b"\x89PNG"))] if features.images else []
    body = sent(prefix, *TURN, *seen, settings=Settings(**kept), tools=TOOLS, tool_choice=choice, output=shape).json
    dialect = COMPATIBLE[prefix].dialect
    for name, value in kept.items():
        found: Any = body
        for field in dialect.field(name).split("."):
            found = found[field]
        assert found == (list(value) if isinstance(value, tuple) else value)
    is_held = features.output and prefix != "groq"  # which takes no schema beside tools
    assert ("response_format" in body) == is_held
    assert ("tool_choice" in body) == features.tool_choice
    assert len(body["tools"]) == 2


# --- deviations ---------------------------------------------------------------------------------------------


def test_mistral_gets_its_own_words_and_nothing_more() -> None:
    """It answers 422 to a field that it does not know, and 400 to an id of another form."""
    asked_for = Settings(max_output_tokens=9, seed=7)
    body = sent("mistral", *TURN, settings=asked_for, tools=TOOLS, tool_choice="required").json
    assert set(body) == {"model", "messages", "stream", "max_tokens", "random_seed", "tools", "tool_choice"}
    assert (body["max_tokens"], body["random_seed"], body["tool_choice"]) == (9, 7, "any")
    system, user, assistant, tool = body["messages"]
    assert (system["role"], user) == ("system", {"role": "user", "content": "Time?"})
    assert set(assistant) == {"role", "content", "tool_calls"}
    assert len(tool["tool_call_id"]) == 9
    assert tool["tool_call_id"] == assistant["tool_calls"][0]["id"]
    stopped = sent("mistral", *TURN, Message.user("Well?")).json["messages"]
    assert [message["role"] for message in stopped[3:]] == ["tool", "assistant", "user"]


def test_deepseek_gets_its_thinking_back_and_no_picture() -> None:
    """`reasoning_content` in a turn with tools; text alone as content, and no schema."""
    assert sent("deepseek", *TURN).json["messages"][2]["reasoning_content"] == "I look."
    with pytest.raises(RunFailed, match="takes no images"):
        sent("deepseek", Message.user(Image(data=b"\x89PNG")))
    with pytest.raises(ConfigurationError, match="schema"):
        COMPATIBLE["deepseek"].features.check("deepseek:m", Settings(), output=OutputSchema(name="a", schema={}))


def test_openrouter_reads_files_thinks_by_budget_and_knows_developers() -> None:
    """Its `reasoning` object, its `file` parts by URL, and thinking that has no signature as text."""
    settings = Settings(reasoning_tokens=1000, max_output_tokens=9)
    body = sent("openrouter", *TURN, Message.user(File(url="https://a.test/b.pdf")), settings=settings).json
    assert (body["reasoning"], body["max_tokens"]) == ({"max_tokens": 1000}, 9)
    assert body["messages"][0]["role"] == "developer"
    assert body["messages"][2]["reasoning"] == "I look."
    assert body["messages"][4]["content"][0]["file"]["file_data"] == "https://a.test/b.pdf"


def test_lm_studio_gets_the_one_tool_that_was_named() -> None:
    """It takes words as a choice, and no object."""
    body = sent("lmstudio", *TURN, tools=TOOLS, tool_choice=OnlyTool("then")).json
    assert ([tool["function"]["name"] for tool in body["tools"]], body["tool_choice"]) == (["then"], "required")


@pytest.mark.parametrize("prefix", ["ollama", "lmstudio"])
def test_servers_on_this_machine_fetch_no_pictures(prefix: str) -> None:
    """Their bytes are sent; a URL is refused here."""
    (content,) = sent(prefix, Message.user(Image(data=b"\x89PNG"))).json["messages"]
    assert content["content"][0]["image_url"]["url"].startswith("data:image/png;base64,")
    with pytest.raises(RunFailed, match="data, not its url"):
        sent(prefix, Message.user(Image(url="https://a.test/b.png")))


def test_groq_gets_no_name_and_says_max_completion_tokens() -> None:
    """A message with a name gets 400 there."""
    body = sent("groq", *TURN, settings=Settings(max_output_tokens=9)).json
    assert not [message for message in body["messages"] if "name" in message]
    assert body["max_completion_tokens"] == 9


def test_a_row_of_ones_own_is_a_server_too() -> None:
    """Kimi, say: where it is, what it can do, and what it does otherwise."""
    row = CompatibleServer(
        title="Kimi",
        docs="https://platform.moonshot.ai/docs",
        server=Server(
            prefix="kimi", base_url="https://api.moonshot.ai/v1", key_variables=("MOONSHOT_API_KEY",), needs_key=False
        ),
        features=CHAT_FEATURES.without("seed"),
        dialect=Dialect(fields={"max_output_tokens": "max_tokens"}, reasoning="reasoning_content"),
    )
    source = MemorySource(chat_stream(1))
    asked(CompatibleChat(row, "kimi-k2-thinking", api_key=KEY, source=source), source, *TURN)
    assert source.requests[0].url == "https://api.moonshot.ai/v1/chat/completions"
    assert source.requests[0].json["messages"][2]["reasoning_content"] == "I look."


# --- names --------------------------------------------------------------------------------------------------


def test_an_unknown_name_lists_all_prefixes() -> None:
    """In `resolve`, in an agent, and in `compatible`."""
    with pytest.raises(ConfigurationError) as caught:
        Agent("grok:grok-4")
    assert not [prefix for prefix in (*PREFIXES, *COMPATIBLE) if f'"{prefix}:…"' not in str(caught.value)]
    with pytest.raises(ConfigurationError, match="groq, ollama"):
        compatible("grok", "grok-4")
    with pytest.raises(ConfigurationError, match='"groq:name"'):
        resolve("groq:")


def test_naming_a_model_imports_no_other() -> None:
    """`names.py` alone brings no adapter; a name brings its own."""
    code = (
        "import sys; from halter.models.names import resolve\n"
        "assert not {'halter.models.openai', 'halter.models.compatible'} & set(sys.modules)\n"
        "resolve('ollama:m')\n"
        "assert not {'halter.models.openai', 'halter.models.azure'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_the_table_is_plain_data() -> None:
    """What the documentation is made of: every row has a title, a source and an address."""
    for row in COMPATIBLE.values():
        assert row.title
        assert row.docs.startswith("https://")
        assert row.server.base_url
        assert is_header_value(row.title)
        assert row.features.settings <= CHAT_FEATURES.settings | {"top_k", "reasoning_tokens"}
