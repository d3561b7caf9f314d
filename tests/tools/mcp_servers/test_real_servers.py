"""Real MCP servers, installed by `make .venv-mcp/.ready`: nothing is downloaded while the tests run."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from halter import Agent
from halter.messages import ToolResult
from halter.models.scripted import Scripted, calls
from halter.tools import mcp_servers

from ...conftest import require_service

PROGRAMS = Path(os.environ.get("HALTER_MCP_SERVERS") or Path(__file__).parents[3] / ".venv-mcp" / "bin")
pytestmark = [pytest.mark.real_loop, pytest.mark.filterwarnings("ignore::ResourceWarning")]


def program(name: str) -> str:
    require_service("MCP servers (make .venv-mcp/.ready)", (PROGRAMS / name).exists())
    return str(PROGRAMS / name)


async def called(tools: Any, name: str, /, **arguments: Any) -> ToolResult:
    run = await Agent(Scripted(calls(name, **arguments), "done"), tools=tools).run("go")
    [result] = [part for message in run.messages for part in message.parts if isinstance(part, ToolResult)]
    return result


async def test_servers_for_time_git_and_fetch_work_side_by_side_from_one_configuration(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    config = {
        "mcpServers": {
            "time": {"command": program("mcp-server-time"), "args": ["--local-timezone", "UTC"]},
            "git": {"command": program("mcp-server-git"), "args": ["--repository", "${REPOSITORY}"]},
            "fetch": {"command": program("mcp-server-fetch"), "args": ["--ignore-robots-txt"]},
        }
    }
    (path := tmp_path / "mcp.json").write_text(json.dumps(config))
    async with mcp_servers(path, environ={"REPOSITORY": str(tmp_path)}, approval="never", prompts=True) as servers:
        tools = servers.tools
        assert "UTC" in (await called(tools, "time_get_current_time", timezone="UTC")).content
        assert "mcp.json" in (await called(tools, "git_git_status", repo_path=str(tmp_path))).content
        refused = await called(tools, "fetch_fetch", url="http://127.0.0.1:9/")
        assert refused.is_error
        assert "fetch" in (await called(tools, "fetch_list_prompts")).content
