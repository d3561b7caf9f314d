"""MCP servers from a file in the format of Claude, Cursor and VS Code: `{"mcpServers": {name: {…}}}`.

Keys that only other programs know are left alone, above all those that allow calls unasked. A key that looks like a
misspelt one of ours is an error.
"""

from __future__ import annotations

import asyncio
import difflib
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from halter.errors import ConfigurationError
from halter.tools.approval import Approval
from halter.tools.mcp import McpServer, mcp_server
from halter.tools.mcp_http import checked_headers, checked_url
from halter.tools.mcp_names import Filter, valid_name
from halter.tools.sandbox import SandboxOption

_ROOTS = ("mcpServers", "servers")  # the second is VS Code's
_KEYS = ("command", "args", "env", "cwd", "type", "transport", "url", "headers", "disabled", "enabled")
_TYPES = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamablehttp": "http",
    "sse": "sse",
}
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ConfiguredServer(msgspec.Struct, frozen=True, kw_only=True):
    """One server of a file: a command, or a URL."""

    name: str
    command: tuple[str, ...] = ()
    env: Mapping[str, str] | None = None
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] | None = None
    transport: str = "http"


class McpServers(Mapping[str, McpServer]):
    """Servers by their names in the file, while their block lasts. `tools`: of all of them."""

    def __init__(self, servers: Mapping[str, McpServer]) -> None:
        self._servers = dict(servers)

    @property
    def tools(self) -> tuple[Any, ...]:
        return tuple(tool for server in self._servers.values() for tool in server.tools)

    def __getitem__(self, name: str) -> McpServer:
        return self._servers[name]

    def __iter__(self) -> Any:
        return iter(self._servers)

    def __len__(self) -> int:
        return len(self._servers)


@asynccontextmanager
async def mcp_servers(
    config: str | os.PathLike[str] | Mapping[str, Any],
    *,
    token: Callable[[str], str | Awaitable[str]] | None = None,
    environ: Mapping[str, str] | None = None,
    sandbox: SandboxOption = None,
    prefix: bool = True,
    only: Sequence[str] | None = None,
    without: Sequence[str] = (),
    timeout: float | None = 60.0,
    connect_timeout: float | None = 30.0,
    approval: Approval | None = None,
    max_result: int = 100_000,
    resources: bool = False,
    prompts: bool = False,
) -> AsyncGenerator[McpServers]:
    """The servers of a file, connected while the block lasts: `async with mcp_servers("mcp.json") as servers`.

    Args:
        config: The path of a JSON file with `mcpServers`, or what is in it.
        token: Gives the access token for a server at a URL, by the server's name; asked again after a 401.
        environ: What `${NAME}` in the file stands for; without it, this process's environment.
        sandbox: `"bwrap"`, or a `Sandbox(…)`, in which the servers that are commands are run.
        prefix: Whether tools are named after their server, as in `files_read`.
        only: Patterns of the tools that are taken, as in `files/read_*`; `None`: all.
        without: Patterns of the tools that are left out, as in `*/delete_*`.
        timeout, connect_timeout, approval, max_result, resources, prompts: As for `mcp_server`, for each server.

    Yields:
        The servers, with the `tools` of all of them.

    Raises:
        ConfigurationError: The file is wrong, and which server and key; or two servers have a tool of one name.
        McpTimeout, McpConnectionFailed: A server could not be connected; all others are ended.

    Cancellation-safe: the servers are ended at once.
    """
    where = str(config) if isinstance(config, str | os.PathLike) else "the configuration"
    found = read_config(config, environ=os.environ if environ is None else environ)
    if token is not None and not callable(token):
        raise ConfigurationError("token is a function of a server's name that gives its access token")
    async with AsyncExitStack() as stack:
        opening = [
            mcp_server(
                server.url if server.url is not None else server.command,
                name=server.name,
                env=server.env,
                cwd=server.cwd,
                sandbox=sandbox if server.url is None else None,
                headers=server.headers,
                token=None if token is None or server.url is None else partial(token, server.name),
                transport=server.transport,
                prefix=_prefix(server.name) if prefix else "",
                chosen=Filter(only, without, scope=f"{server.name}/"),
                timeout=timeout,
                connect_timeout=connect_timeout,
                approval=approval,
                max_result=max_result,
                resources=resources,
                prompts=prompts,
            )
            for server in found
        ]
        servers = await _all_entered(stack, opening)
        together = McpServers({each.name: each for each in servers})
        Filter(only, without).chosen([f"{each.name}/{tool}" for each in servers for tool in each.originals], where)
        _check_names(together, where)
        yield together


async def _all_entered(stack: AsyncExitStack, opening: Sequence[Any]) -> list[McpServer]:
    """Enters all at once. Raises the error of the first one that fails; the stack ends the others."""
    entered = await asyncio.gather(*map(stack.enter_async_context, opening), return_exceptions=True)
    for each in entered:
        if isinstance(each, BaseException):
            raise each
    return cast("list[McpServer]", entered)


def _check_names(servers: Mapping[str, McpServer], where: str) -> None:
    """Raises `ConfigurationError` for a name that tools of two servers have."""
    taken: dict[str, str] = {}
    for server in servers.values():
        for tool in server.tools:
            other = taken.setdefault(tool.name, server.name)
            if other != server.name:
                raise ConfigurationError(
                    f"{where}: the servers {other!r} and {server.name!r} both have a tool {tool.name!r}: "
                    "leave prefix=True, or leave one out with without="
                )


def _prefix(server: str) -> str:
    return f"{valid_name(server)[:31]}_"


# --- the file -----------------------------------------------------------------------------------------------


def read_config(
    config: str | os.PathLike[str] | Mapping[str, Any], *, environ: Mapping[str, str]
) -> tuple[ConfiguredServer, ...]:
    """The servers of a file that are not disabled, with their variables replaced.

    Raises:
        ConfigurationError: Names the file, the server and the key.
    """
    if isinstance(config, Mapping):
        return _servers(config, "the configuration", Path.cwd(), environ)
    path = Path(config)
    try:
        content: Any = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ConfigurationError(f"{path} is not valid JSON: {error}") from None
    return _servers(content, str(path), path.absolute().parent, environ)


def _servers(content: Any, where: str, home: Path, environ: Mapping[str, str]) -> tuple[ConfiguredServer, ...]:
    if not isinstance(content, Mapping):
        raise ConfigurationError(f"{where} must hold a JSON object with mcpServers")
    file = cast("Mapping[str, Any]", content)
    root = next((name for name in _ROOTS if name in file), None)
    if root is None:
        raise ConfigurationError(f"{where} has no mcpServers; it has {', '.join(map(repr, file)) or 'nothing'}")
    given: Any = file[root]
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"{where}: {root} must be an object with a server for each name")
    named = cast("Mapping[str, Any]", given)
    read = (_Entry(f"{where}: server {name!r}", name, entry, home, environ).server() for name, entry in named.items())
    return tuple(server for server in read if server is not None)


class _Entry:
    """One server as the file has it."""

    def __init__(self, where: str, name: str, given: Any, home: Path, environ: Mapping[str, str]) -> None:
        self._where = where
        self._name = name
        if not isinstance(given, Mapping):
            raise ConfigurationError(f"{where} must be an object with command or url")
        self._given = cast("Mapping[str, Any]", given)
        self._home = home
        self._environ = environ

    def server(self) -> ConfiguredServer | None:
        """The server; `None` if it is disabled."""
        self._check_keys()
        if self._flag("disabled", default=False) or not self._flag("enabled", default=True):
            return None
        command, url = self._text("command"), self._text("url")
        if (command is None) == (url is None):
            raise self._error("command", "give either command or url")
        transport = self._transport()
        if command is not None:
            if transport not in (None, "stdio"):
                raise self._error("type", f"a server with a command is stdio, not {transport!r}")
            self._refuse("headers", "is for a server with a url")
            cwd = self._text("cwd")
            return ConfiguredServer(
                name=self._name,
                command=(command, *self._texts("args")),
                env=self._mapping("env"),
                cwd=None if cwd is None else str(self._home / cwd),
            )
        if transport == "stdio":
            raise self._error("type", "a stdio server needs a command")
        for key in ("args", "env", "cwd"):
            self._refuse(key, "is for a server with a command")
        try:
            return ConfiguredServer(
                name=self._name,
                url=checked_url(url or ""),
                headers=checked_headers(self._mapping("headers")),
                transport=transport or "http",
            )
        except ConfigurationError as error:
            raise ConfigurationError(f"{self._where}: {error}") from None

    def _check_keys(self) -> None:
        for key in self._given:
            near = [] if key in _KEYS else difflib.get_close_matches(key, _KEYS, 1, 0.8)
            if near and near[0] not in self._given:
                raise self._error(key, f"there is no such key; did you mean {near[0]!r}?")

    def _transport(self) -> str | None:
        key = "type" if "type" in self._given else "transport"
        given = self._text(key)
        if given is None:
            return None
        found = _TYPES.get(given.lower())
        if found is None:
            raise self._error(key, f"it is one of stdio, http and sse, not {given!r}")
        return found

    def _refuse(self, key: str, why: str) -> None:
        if self._given.get(key):
            raise self._error(key, why)

    def _flag(self, key: str, *, default: bool) -> bool:
        given = self._given.get(key, default)
        if not isinstance(given, bool):
            raise self._error(key, f"it must be true or false, not {given!r}")
        return given

    def _text(self, key: str) -> str | None:
        given = self._given.get(key)
        if given is None:
            return None
        if not isinstance(given, str) or not given.strip():
            raise self._error(key, "it must be a text")
        return self._expanded(key, given)

    def _texts(self, key: str) -> list[str]:
        given: Any = self._given.get(key)
        if given is None:
            return []
        if not isinstance(given, list) or not all(isinstance(each, str) for each in cast("list[Any]", given)):
            raise self._error(key, "it must be a list of texts")
        return [self._expanded(key, each) for each in cast("list[str]", given)]

    def _mapping(self, key: str) -> dict[str, str] | None:
        given: Any = self._given.get(key)
        if given is None:
            return None
        if not isinstance(given, Mapping):
            raise self._error(key, "it must be an object of texts")
        found: dict[str, str] = {}
        for name, value in cast("Mapping[str, Any]", given).items():
            if not isinstance(value, str):
                raise self._error(f"{key}.{name}", "it must be a text")
            found[name] = self._expanded(f"{key}.{name}", value)
        return found

    def _expanded(self, key: str, text: str) -> str:
        """The text with its `${…}` replaced: once, so that a value cannot name another variable."""
        return _VARIABLE.sub(lambda found: self._value(key, found[1]), text)

    def _value(self, key: str, variable: str) -> str:
        name, has_default, default = variable.removeprefix("env:").partition(":-")
        if variable == "workspaceFolder":
            return str(self._home.parent if self._home.name in (".vscode", ".cursor") else self._home)
        if variable == "userHome":
            return str(Path.home())
        if not _NAME.fullmatch(name):
            raise self._error(key, f"${{{variable}}} is not known here: use ${{NAME}} or ${{NAME:-default}}")
        value = self._environ.get(name)
        if value or (value is not None and not has_default):
            return value
        if has_default:
            return default
        raise self._error(key, f"the environment variable {name} is not set; ${{{name}:-default}} gives it a default")

    def _error(self, key: str, what: str) -> ConfigurationError:
        return ConfigurationError(f"{self._where}: {key}: {what}")
