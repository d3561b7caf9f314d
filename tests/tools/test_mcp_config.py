"""Servers from a file in the format of Claude, Cursor and VS Code."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from halter.errors import ConfigurationError
from halter.tools import mcp_servers
from halter.tools.mcp_config import ConfiguredServer, read_config

SERVER = Path(__file__).with_name("mcp_server.py")
ENVIRON = {"TOKEN": "t0ken", "EMPTY": "", "NESTED": "${TOKEN}"}


def read(tmp_path: Path, **servers: Any) -> tuple[ConfiguredServer, ...]:
    (path := tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    return read_config(path, environ=ENVIRON)


def test_commands_and_urls_are_read_with_their_variables(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        files={
            "command": "npx",
            "args": ["-y", "${TOKEN}", "${NO:-plain}"],
            "env": {"A": "${env:TOKEN}"},
            "cwd": "sub",
        },
        api={"type": "streamable-http", "url": "https://a.b/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
        old={"type": "sse", "url": "https://a.b/sse"},
        off={"command": "x", "disabled": True, "args": ["${NOT_SET}"]},
        other={"command": "${NESTED}", "autoApprove": ["*"], "description": "kept out", "args": ["${EMPTY:-full}"]},
    )
    assert found == (
        ConfiguredServer(
            name="files", command=("npx", "-y", "t0ken", "plain"), env={"A": "t0ken"}, cwd=str(tmp_path / "sub")
        ),
        ConfiguredServer(name="api", url="https://a.b/mcp", headers={"Authorization": "Bearer t0ken"}),
        ConfiguredServer(name="old", url="https://a.b/sse", headers={}, transport="sse"),
        ConfiguredServer(name="other", command=("${TOKEN}", "full")),
    )


def test_the_file_of_vs_code_is_read_too(tmp_path: Path) -> None:
    (folder := tmp_path / ".vscode").mkdir()
    content = {"servers": {"a": {"type": "stdio", "command": "${workspaceFolder}/run"}}, "inputs": []}
    (path := folder / "mcp.json").write_text(json.dumps(content))
    assert read_config(path, environ={}) == (ConfiguredServer(name="a", command=(f"{tmp_path}/run",)),)


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ({"command": "${NOT_SET}"}, "command: the environment variable NOT_SET is not set"),
        ({"url": "https://a", "headers": {"K": "${NOT_SET}"}}, "headers.K: the environment variable NOT_SET"),
        ({"command": "a", "env": {"K": 3}}, "env.K: it must be a text"),
        ({"command": "a", "args": "b"}, "args: it must be a list of texts"),
        ({"commnad": "a"}, "commnad: there is no such key; did you mean 'command'"),
        ({"command": "a", "url": "b"}, "give either command or url"),
        ({}, "give either command or url"),
        ({"command": "a", "type": "http"}, "type: a server with a command is stdio"),
        ({"url": "https://a", "type": "udp"}, "type: it is one of stdio, http and sse, not 'udp'"),
        ({"url": "https://a", "env": {"A": "b"}}, "env: is for a server with a command"),
        ({"command": "a", "headers": {"A": "b"}}, "headers: is for a server with a url"),
        ({"url": "ftp://a"}, "http(s) URL"),
        ({"command": "${input:key}"}, "command: ${input:key} is not known here"),
        ({"command": "a", "disabled": "yes"}, "disabled: it must be true or false"),
        (3, "must be an object with command or url"),
    ],
)
def test_an_error_names_the_file_the_server_and_the_key(tmp_path: Path, server: Any, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read(tmp_path, mine=server)
    assert str(raised.value).startswith(f"{tmp_path / 'mcp.json'}: server 'mine'")
    assert said in str(raised.value)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"mcpServers": 3}'])
def test_a_file_that_is_no_configuration_is_named(tmp_path: Path, content: str) -> None:
    (path := tmp_path / "mcp.json").write_text(content)
    with pytest.raises(ConfigurationError, match=r"mcp\.json"):
        read_config(path, environ={})
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        read_config(tmp_path / "none.json", environ={})


def config(tmp_path: Path, *names: str) -> dict[str, Any]:
    return {
        "mcpServers": {name: {"command": sys.executable, "args": [str(SERVER), str(tmp_path / name)]} for name in names}
    }


@pytest.mark.real_loop
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_the_tools_of_all_servers_of_a_file_are_there_under_their_names(tmp_path: Path) -> None:
    async with mcp_servers(config(tmp_path, "one", "two"), only=("one/*", "two/gr*"), without=("*/hang",)) as servers:
        names = [tool.name for tool in servers.tools]
        assert names == ["one_greet", "one_fail", "one_keep", "one_keep_exactly", "two_greet"]
        assert list(servers) == ["one", "two"]


@pytest.mark.real_loop
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_tools_of_two_servers_with_one_name_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="'one' and 'two' both have a tool 'greet'"):
        async with mcp_servers(config(tmp_path, "one", "two"), prefix=False):
            pass


@pytest.mark.real_loop
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_one_server_that_cannot_be_started_ends_the_others(tmp_path: Path) -> None:
    given = config(tmp_path, "one")
    given["mcpServers"]["bad"] = {"command": str(tmp_path / "no-such-program")}
    with pytest.raises(ConfigurationError, match=r"no-such-program.* could not be started"):
        async with mcp_servers(given):
            pass
