"""A tool that fetches a web page as text: `http_get()`. What it may fetch, and how, is in `web.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from halter import checked
from halter.core.ports import ByteSource
from halter.core.tool_context import ToolContext
from halter.errors import ConfigurationError
from halter.net.sockets import SocketSource
from halter.tools.approval import Approval
from halter.tools.function import FunctionTool, tool
from halter.tools.web import Web


def http_get(
    *,
    allow: Sequence[str] | None = None,
    private: bool = False,
    max_bytes: int = 1_000_000,
    max_result: int = 50_000,
    timeout: float = 30.0,
    follow: int = 5,
    approval: Approval = "never",
    name: str = "http_get",
    source: ByteSource | None = None,
) -> FunctionTool[..., object]:
    """A tool that fetches a page by GET: HTML as its text, other text and JSON as they are, anything else refused.

    `allow`: the hosts that may be asked, as `example.com` or `*.example.org`, also by redirects; `None` for all.
    `private`: allows addresses of this machine and its networks, which are refused otherwise, whatever a name resolves
    to. `max_bytes`: more is not read. `max_result`: characters that the model gets, head and tail. `timeout`: seconds
    for a call. `follow`: redirects. `approval`: as in `tool`, patterns are compared with the URL. `source`: another way
    to the bytes, which then has to refuse private addresses itself. Raises `ConfigurationError`.
    """
    web = Web(
        source=source or SocketSource(public_only=not private),
        allow=_hosts(allow),
        public_only=not private,
        max_bytes=checked.whole("max_bytes", max_bytes, at_least=1),
        follow=checked.whole("follow", follow, at_least=0),
    )

    async def http_get(url: Annotated[str, "A whole URL, http:// or https://."], ctx: ToolContext) -> str:
        """Fetches a page from the web as text: HTML without its markup, plain text and JSON as they are."""
        return await web.text(url, ctx)

    return tool(http_get, name=name, timeout=timeout, approval=approval, max_result=max_result)


def _hosts(allow: Sequence[str] | None) -> tuple[str, ...] | None:
    if allow is None:
        return None
    hosts = () if isinstance(allow, str) else tuple(allow)
    if not hosts or not all(isinstance(host, str) and host and "/" not in host for host in hosts):
        raise ConfigurationError(f"allow takes hosts, as ('example.com', '*.example.org'), not {allow!r}")
    return hosts
