"""A tool that searches the web: `web_search()`. Where it searches is a port, `SearchEngine`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Protocol

import msgspec

from halter import checked
from halter.core.tool_context import ToolContext
from halter.errors import ConfigurationError, ToolError
from halter.tools.approval import Approval
from halter.tools.bounds import clipped
from halter.tools.function import FunctionTool
from halter.tools.html_text import text_of

LONGEST_QUERY = 1000  # characters
LONGEST_TITLE = 200
LONGEST_SNIPPET = 1000
LONGEST_URL = 2000


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """One page that a search has found. `snippet`: some of its text. `date`: of the page, as the engine gives it."""

    title: str
    url: str
    snippet: str = ""
    date: str | None = None


class SearchEngine(Protocol):
    """A place that searches the web; immutable, shared by any number of runs."""

    async def search(self, query: str, limit: int, ctx: ToolContext) -> Sequence[SearchResult]:
        """Returns at most `limit` pages, the best first.

        Cancelled, it leaves no connection behind. Raises `ToolError`, which tells the model why there are none.
        """
        ...


def web_search(
    engine: SearchEngine,
    *,
    limit: int = 8,
    timeout: float = 20.0,
    approval: Approval = "never",
    name: str = "web_search",
    max_result: int = 20_000,
) -> FunctionTool[..., object]:
    """Makes a tool that searches the web, and returns titles, URLs and snippets.

    Args:
        engine: Where to search, as `SearXNG("https://search.example.org")`, `Brave()` or `Tavily()`.
        limit: Pages that a search returns at most.
        timeout: Seconds for a call.
        approval: As in `tool`; patterns are compared with the query.
        name: The tool's name.
        max_result: Characters that the model gets.

    Raises:
        ConfigurationError: An argument is of the wrong kind.
    """
    if not callable(getattr(engine, "search", None)):
        raise ConfigurationError(
            f"web_search takes an engine, as SearXNG('https://search.example.org'), not {engine!r}"
        )
    most = checked.whole("limit", limit, at_least=1)

    async def web_search(query: Annotated[str, "Words to search for."], ctx: ToolContext) -> str:
        """Searches the web. Returns pages with their titles, URLs and some of their text."""
        wanted = query.strip()
        if not wanted or len(wanted) > LONGEST_QUERY:
            raise ToolError(f"a query has 1 to {LONGEST_QUERY:,} characters, not {len(wanted):,}")
        found = list(await engine.search(wanted, most, ctx))[:most]
        pages = [page for page in found if page.url.startswith(("http://", "https://"))]
        if not pages:
            return f"Nothing was found for {wanted!r}."
        return "\n\n".join(f"{number}. {_shown(page)}" for number, page in enumerate(pages, 1))

    return FunctionTool(
        web_search, name=name, timeout=timeout, approval=approval, max_result=max_result, risk=("reads", "network")
    )


def _shown(page: SearchResult) -> str:
    lines = [clipped(_plain(page.title), LONGEST_TITLE) or "(no title)", page.url[:LONGEST_URL]]
    lines += [clipped(_plain(page.snippet), LONGEST_SNIPPET)] if page.snippet else []
    lines += [f"({_plain(page.date)[:40]})"] if page.date else []
    return "\n   ".join(line for line in lines if line)


def _plain(text: str) -> str:
    """One line, without markup: engines put `<strong>` around words that were searched for."""
    return " ".join(text_of(text[:10_000], "", lambda: None).split())
