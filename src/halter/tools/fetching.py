"""A tool that fetches a web page as text: `http_get()`. What it may fetch, and how, is in `web.py`.

An approval holds for the URL that was looked at. A redirect to one that no pattern fits asks again, unless it stays on
the host of a URL that somebody has said yes to.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any
from urllib.parse import unquote

from yarl import URL

from halter import checked
from halter.core.ports import ByteSource
from halter.core.tool_context import ToolContext
from halter.errors import ConfigurationError, ToolError
from halter.net.sockets import SocketSource
from halter.tools.approval import Approval, Rule
from halter.tools.function import FunctionTool
from halter.tools.reader import check_installed
from halter.tools.web import Web, parsed

_PATTERN = re.compile(r"([^:/]+)://([^/?#]*)(.*)", re.DOTALL)  # scheme, host and port, the rest
_PARENT = re.compile(r"(^|[/\\])\.\.([/\\;]|$)")  # `;` begins a parameter, which some servers take off


def http_get(
    *,
    allow: Sequence[str] | None = None,
    private: bool = False,
    max_bytes: int = 1_000_000,
    max_result: int = 50_000,
    timeout: float = 30.0,
    follow: int = 5,
    approval: Approval | None = None,
    name: str = "http_get",
    reader: bool = False,
    robots: bool = True,
    cache_bytes: int = 16_000_000,
    user_agent: str = "halter",
    source: ByteSource | None = None,
) -> FunctionTool[..., object]:
    """A tool that fetches a page by GET: HTML as its text, other text and JSON as they are, anything else refused.

    `allow`: the hosts that may be asked, as `example.com` or `*.example.org`, also by redirects; `None` for all.
    `private`: allows addresses of this machine and its networks, which are refused otherwise, whatever a name resolves
    to. `max_bytes`: more is not read. `max_result`: characters that the model gets, head and tail. `timeout`: seconds
    for a call. `follow`: redirects. `approval`: as in `tool`; patterns such as `https://*.example.org/docs/*` are
    compared with the URL part by part: a `*` before the path stays within the host. A redirect to another host that
    they do not fit asks again. `reader`: only the article of a page, without menus and banners, as Markdown; needs the
    extra `web`, and takes about a second of processor time. `robots`: pages that a site's `robots.txt` forbids the
    `user_agent`, or all programs, are not fetched. `cache_bytes`: of pages that their servers allow to be kept, for
    this tool, in memory; 0 for none. `user_agent`: a name, as `my-shop/1.0 (+https://shop.example)`. `source`: another
    way to the bytes, which then has to refuse private addresses itself. Raises `ConfigurationError`.
    """
    web = Web(
        source=source or SocketSource(public_only=not private),
        allow=_hosts(allow),
        public_only=not private,
        max_bytes=checked.whole("max_bytes", max_bytes, at_least=1),
        follow=checked.whole("follow", follow, at_least=0),
        agent=_agent(user_agent),
        robots=checked.one_of("robots", robots, (True, False)),
        cache_bytes=checked.whole("cache_bytes", cache_bytes, at_least=0),
        reader=checked.one_of("reader", reader, (True, False)),
    )
    if reader:
        check_installed()

    async def http_get(url: Annotated[str, "A whole URL, http:// or https://."], ctx: ToolContext) -> str:
        """Fetches a page from the web as text: HTML without its markup, plain text and JSON as they are."""
        return await web.text(url, ctx, made.redirected(url, ctx))

    made = Fetch(http_get, name=name, timeout=timeout, approval=approval, max_result=max_result)
    return made


class Fetch(FunctionTool[..., object]):
    """A tool whose function takes `url`, and asks `redirected` before it goes on elsewhere."""

    def __init__(self, fn: Callable[..., object], *, approval: Approval | None, **options: Any) -> None:
        super().__init__(fn, approval=approval, risk=("reads", "network"), **options)
        self._rule = Rule(approval, self._arguments.names, _subject, _fits, risks=self.rules.risks)
        for pattern in self._rule.patterns.get("url", ()):
            if pattern != "*" and not _PATTERN.fullmatch(pattern):
                raise ConfigurationError(
                    f"approval patterns of {self.name} are whole URLs, as 'https://example.com/*', not {pattern!r}"
                )

    def redirected(self, asked: str, ctx: ToolContext) -> Callable[[str, str], Awaitable[None]]:
        """What `Web.text` calls for each redirect of one call. `asked`: the URL that the call began with."""
        approved: URL | None = None  # the URL that somebody has said yes to

        async def check(old: str, new: str) -> None:
            nonlocal approved
            if approved is None and await self._rule.asks({"url": asked}, ctx):
                approved = URL(asked)
            if not await self._rule.asks({"url": new}, ctx) or (approved is not None and _stays(approved, URL(new))):
                return
            question = f"{self.name} was sent on from {old} to another address. May it fetch {new}?"
            await ctx.approve(question, timeout=self.rules.approval_timeout)
            approved = URL(new)

        return check


def _subject(arguments: Mapping[str, Any]) -> str | None:
    """The URL as it is fetched; `None` for what cannot be."""
    try:
        return str(parsed(arguments["url"]).with_fragment(None))
    except ToolError:
        return None


def _fits(url: str, pattern: str) -> bool:
    """Part by part: a `*` in the host of a pattern does not reach into the path, where anybody may write anything.

    A server may read `..%2f` as `../`, which leads out of what a pattern seems to name: the pattern must have it.
    """
    if pattern == "*":
        return True
    parts, wanted = _PATTERN.fullmatch(url), _PATTERN.fullmatch(pattern)
    if parts is None or wanted is None:
        return False
    scheme, host, path = wanted.groups()
    path = path or ("*" if host.endswith("*") else "/")
    return (
        fnmatchcase(parts[1], scheme.lower())
        and fnmatchcase(parts[2].lower(), host.lower())
        and fnmatchcase(parts[3] or "/", path)
        and (".." in path or not _leads_up(parts[3]))
    )


def _leads_up(path: str) -> bool:
    """True if a server may find `..` as a part of it, however often it decodes the path."""
    path = path.partition("?")[0]
    while (decoded := unquote(path)) != path:
        path = decoded
    return _PARENT.search(path) is not None


def _stays(approved: URL, new: URL) -> bool:
    """True on the same host and port, or where it goes on from http to https."""
    upgraded = (approved.scheme, approved.port, new.scheme, new.port) == ("http", 80, "https", 443)
    return approved.host == new.host and ((approved.scheme, approved.port) == (new.scheme, new.port) or upgraded)


def _hosts(allow: Sequence[str] | None) -> tuple[str, ...] | None:
    if allow is None:
        return None
    hosts = () if isinstance(allow, str) else tuple(allow)
    if not hosts or not all(isinstance(host, str) and host and "/" not in host for host in hosts):
        raise ConfigurationError(f"allow takes hosts, as ('example.com', '*.example.org'), not {allow!r}")
    return hosts


def _agent(given: str) -> str:
    """A `User-Agent`: a product's name, as `halter` or `my-shop/1.0 (+https://shop.example)`."""
    if not isinstance(given, str) or not re.fullmatch(r"[A-Za-z_-]+(/[\x20-\x7e]*)?", given):
        raise ConfigurationError(f"user_agent begins with a name, as 'my-shop/1.0 (+https://…)', not {given!r}")
    return given
