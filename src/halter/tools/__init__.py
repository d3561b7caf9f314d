"""What models may call. Each name is loaded when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from halter.core.tool_context import ToolContext as ToolContext
    from halter.errors import ToolError as ToolError
    from halter.tools.asking import ask_user as ask_user
    from halter.tools.fetching import http_get as http_get
    from halter.tools.filesystem import edit_file as edit_file
    from halter.tools.filesystem import files as files
    from halter.tools.filesystem import glob as glob
    from halter.tools.filesystem import grep as grep
    from halter.tools.filesystem import read_file as read_file
    from halter.tools.filesystem import write_file as write_file
    from halter.tools.function import FunctionTool as FunctionTool
    from halter.tools.function import tool as tool
    from halter.tools.jobs import Jobs as Jobs
    from halter.tools.jobs import job_tools as job_tools
    from halter.tools.mcp import McpServer as McpServer
    from halter.tools.mcp import mcp_server as mcp_server
    from halter.tools.mcp import mcp_tools as mcp_tools
    from halter.tools.mcp_config import mcp_servers as mcp_servers
    from halter.tools.process import program as program
    from halter.tools.process import shell as shell
    from halter.tools.runnables import as_tool as as_tool
    from halter.tools.sandbox import Sandbox as Sandbox
    from halter.tools.search import SearchEngine as SearchEngine
    from halter.tools.search import SearchResult as SearchResult
    from halter.tools.search import web_search as web_search
    from halter.tools.search_engines import Brave as Brave
    from halter.tools.search_engines import SearXNG as SearXNG
    from halter.tools.search_engines import Tavily as Tavily

_WHERE = {
    "Brave": "halter.tools.search_engines",
    "FunctionTool": "halter.tools.function",
    "Jobs": "halter.tools.jobs",
    "McpServer": "halter.tools.mcp",
    "Sandbox": "halter.tools.sandbox",
    "SearXNG": "halter.tools.search_engines",
    "SearchEngine": "halter.tools.search",
    "SearchResult": "halter.tools.search",
    "Tavily": "halter.tools.search_engines",
    "ToolContext": "halter.core.tool_context",
    "ToolError": "halter.errors",
    "as_tool": "halter.tools.runnables",
    "ask_user": "halter.tools.asking",
    "edit_file": "halter.tools.filesystem",
    "files": "halter.tools.filesystem",
    "glob": "halter.tools.filesystem",
    "grep": "halter.tools.filesystem",
    "http_get": "halter.tools.fetching",
    "job_tools": "halter.tools.jobs",
    "mcp_server": "halter.tools.mcp",
    "mcp_servers": "halter.tools.mcp_config",
    "mcp_tools": "halter.tools.mcp",
    "program": "halter.tools.process",
    "read_file": "halter.tools.filesystem",
    "shell": "halter.tools.process",
    "tool": "halter.tools.function",
    "web_search": "halter.tools.search",
    "write_file": "halter.tools.filesystem",
}
__all__ = list(_WHERE)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'halter.tools' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
