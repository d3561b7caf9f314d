"""Secrets in exceptions: whatever raises them, no model is told."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from halter import Agent, tool
from halter.core import scrubbing
from halter.core.scrubbing import scrubbed
from halter.messages import ToolResult
from halter.models import OpenAIChat
from halter.models.scripted import Scripted, calls
from halter.parts import as_json
from halter.testing.memory import Answer, MemorySource
from halter.tools import ToolContext, ToolError, mcp_tools

from ..bounds import assert_within

SECRET = "fd/9s$8f7+sd9f'8s7df"


async def told(made: Any) -> str:
    """What the model is told of one call, and what an event shows of it."""
    run = Agent(Scripted(calls(made.name), "done"), tools=[made]).run("Go on")
    shown = [event.result async for event in run if event.type == "tool.finished"]
    [part] = [part for message in (await run).messages for part in message.parts if isinstance(part, ToolResult)]
    assert shown == [part.content]
    return part.content


def _fails(message: str, kind: type[Exception]) -> Any:
    @tool
    def fail(ctx: ToolContext) -> str:
        """Fails."""
        raise kind(message)

    return fail


@pytest.mark.virtual_time
@pytest.mark.parametrize("kind", [ValueError, ToolError])
@pytest.mark.parametrize("name", ["SERVICE_API_KEY", "PGPASSWORD", "github_token", "AWS_SECRET_ACCESS_KEY"])
@pytest.mark.parametrize("written", [str, repr, json.dumps], ids=lambda written: written.__name__)
async def test_values_of_telling_environment_variables_are_not_told(
    kind: type[Exception], name: str, written: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, SECRET)
    text = await told(_fails(f"refused: {written(SECRET)} is wrong", kind))
    assert "refused: " in text
    assert "[secret]" in text
    assert SECRET[4:12] not in text


@pytest.mark.virtual_time
async def test_a_secret_where_a_long_message_is_cut_is_not_told_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_API_KEY", SECRET)
    for length in (49_985, 49_990, 49_995):
        text = await told(_fails("x" * length + SECRET + "y" * 60_000, ValueError))
        assert not any(SECRET[at : at + 6] in text for at in range(len(SECRET) - 6))


@pytest.mark.virtual_time
async def test_the_key_of_a_provider_in_use_is_not_told() -> None:
    """It is in no environment variable: it was given to the model."""
    key = "sk-given-in-code-0123456789"
    model = OpenAIChat(
        "m", base_url="https://api.test/v1", api_key=key, max_retries=0, source=MemorySource(Answer(status=400))
    )
    await Agent(model).run("hi").finished()
    assert key not in await told(_fails(f"this account's key {key} is not allowed", RuntimeError))


@pytest.mark.virtual_time
async def test_the_password_of_a_database_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://app:correct%2Fhorse@db/app")
    text = await told(_fails('password "correct/horse" of app is wrong (correct%2Fhorse)', OSError))
    assert "horse" not in text


def test_what_failed_in_a_part_is_told_to_the_next_one_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_API_KEY", SECRET)
    assert "refused [secret]" in as_json(("fine", ValueError(f"refused {SECRET}")))


@pytest.mark.real_loop
async def test_errors_of_an_mcp_server_are_scrubbed(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("SERVICE_API_KEY", SECRET)
    server = tmp_path / "server.py"
    server.write_text(
        "import os\n"
        "from mcp.server import MCPServer\n"
        "from mcp.server.mcpserver.exceptions import ToolError\n"
        "server = MCPServer('s')\n"
        "@server.tool()\n"
        "def fail() -> str:\n"
        "    raise ToolError('refused ' + os.environ['SERVICE_API_KEY'])\n"
        "server.run()\n"
    )
    async with mcp_tools([sys.executable, str(server)], env={"SERVICE_API_KEY": SECRET}) as [made]:
        text = await told(made)
    assert "refused [secret]" in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("GET https://me:word@example.com/a?b=1 failed", "GET https://[secret]@example.com/a?b=1 failed"),
        ("https://ghp_0123456789@github.com/a/b", "https://[secret]@github.com/a/b"),
        ("Authorization: Bearer abc.def failed", "Authorization: [secret] failed"),
        ("{'authorization': 'Basic bWU6d29yZA==', 'a': 'b'}", "{'authorization': '[secret]', 'a': 'b'}"),
        ('{"x-api-key":"0123","a":1}', '{"x-api-key":"[secret]","a":1}'),
        ("(b'Proxy-Authorization', b'Basic bWU6d29yZA==')", "(b'Proxy-Authorization', b'[secret]')"),
        ("X-Subscription-Token: 0123", "X-Subscription-Token: [secret]"),
        ("sent Bearer abcdefghijklmnopqrstuvwx to it", "sent Bearer [secret] to it"),
        ("/v1?api_key=0123&b=2 and &access_token=4#x", "/v1?api_key=[secret]&b=2 and &access_token=[secret]#x"),
        ("no secret: keyboard=us, tokens: 12, a@b.c, the authorization failed", None),
        ("the bearer of bad news; https://example.com/@user", None),
    ],
)
def test_credentials_are_known_by_their_place(text: str, shown: str | None) -> None:
    assert scrubbed(text) == (text if shown is None else shown)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PWD", "/usr/share"),
        ("LANG", "en_US.UTF-8"),
        ("KEYBOARD", "keyboard-us"),
        ("HF_TOKENIZER", "bert-base"),
        ("SERVICE_KEY", "true"),
        ("TLS_KEY", sys.executable),
    ],
)
def test_what_is_no_secret_stays(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short values, files that hold a secret, and variables whose names only look like it."""
    monkeypatch.setenv(name, value)
    assert scrubbed(f"cannot use {value} here") == f"cannot use {value} here"


def test_secrets_that_are_remembered_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrubbing, "_remembered", {})
    scrubbing.remember(f"token-{number}" + "x" * 10 for number in range(3000))
    assert len(scrubbing._remembered) == scrubbing.MOST_REMEMBERED
    assert scrubbed("token-2999xxxxxxxxxx") == "[secret]"


@pytest.mark.parametrize("piece", ["://", "://a", "authorization", "x-", "?a", "&key", "bearer ", "cookie:", "'"])
def test_scrubbing_takes_no_time(piece: str) -> None:
    since = time.thread_time()
    scrubbed(piece * (200_000 // len(piece)))
    assert_within(1.0, time.thread_time() - since, "in processor time, it")
