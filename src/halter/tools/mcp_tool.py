"""One tool of an MCP server, as a tool of an agent."""

from __future__ import annotations

import time
from typing import Any, Protocol

from halter.core.ports import Question, ToolRules
from halter.core.tool_context import ToolContext
from halter.errors import ToolError
from halter.request import ToolSpec
from halter.risk import Risk, risks_of_hints
from halter.tools import approval as approvals
from halter.tools.approval import Approval
from halter.tools.bounds import clipped, head_and_tail
from halter.tools.mcp_arguments import McpArguments
from halter.tools.mcp_connection import Connection
from halter.tools.mcp_contents import parts_of, text_of, value_of

LONGEST_PROGRESS = 1_000  # characters
PROGRESS_EVERY = 0.1  # seconds; what a server shows in between is left out
LONGEST_DESCRIPTION = 20_000  # characters


class Listing(Protocol):
    """The server's tools as it has listed them last."""

    def has(self, original: str) -> bool: ...


class McpTool:
    """One tool of a server; made by `mcp_tools` and `mcp_server`.

    `original`: its name at the server. `rules.risks`: what the server's hints say about it. Without `approval` the
    policy of the agent decides by them.
    """

    def __init__(
        self,
        connection: Connection,
        listing: Listing,
        listed: Any,
        name: str,
        *,
        timeout: float | None,
        approval: Approval | None,
        max_result: int,
    ) -> None:
        self.listed = listed
        self.original: str = listed.name
        description = clipped(listed.description or listed.title or "", LONGEST_DESCRIPTION)
        self.spec = ToolSpec(name=name, description=description, parameters=dict(listed.input_schema))
        hints = listed.annotations
        risks: frozenset[Risk] = (
            frozenset()
            if hints is None
            else risks_of_hints(hints.read_only_hint, hints.destructive_hint, hints.open_world_hint)
        )
        self.rules = ToolRules(timeout=timeout, risks=risks)
        self._connection = connection
        self._listing = listing
        self._arguments = McpArguments(self.spec.parameters)
        self._rule = approvals.Rule(approval, self._arguments.names, risks=risks)
        self._max_result = max_result

    @property
    def name(self) -> str:
        return self.spec.name

    def read(self, arguments: str) -> dict[str, Any]:
        """The model's JSON object, in the order of the tool's schema; the server checks its values."""
        compared = self._arguments.names if self._rule.has_predicate else self._rule.patterns
        return self._arguments.read(arguments, compared)

    async def question(self, arguments: dict[str, Any], ctx: ToolContext) -> Question | None:
        return await self._rule.question(self.name, arguments, None, ctx)

    async def call(self, arguments: dict[str, Any], ctx: ToolContext) -> Any:
        """Has the server run it. Cancelled: the server is told, and not waited for."""
        show = _Progress(ctx)
        result = await self._connection.ask(
            lambda client: self._sent(client, arguments, show),
        )
        parts = parts_of(result)
        if result.is_error:
            raise ToolError(text_of(parts) or "The call failed.")
        return value_of(parts)

    async def _sent(self, client: Any, arguments: dict[str, Any], show: _Progress) -> Any:
        if not self._listing.has(self.original):
            raise ToolError(f"The MCP server has no tool {self.original!r} any more.")
        return await client.call_tool(self.original, arguments, progress_callback=show)

    def text(self, value: str) -> str:
        return head_and_tail(value, self._max_result)

    async def compensate(self, arguments: dict[str, Any], ctx: ToolContext) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<MCP tool {self.name} of {self._connection.name}>"


class _Progress:
    """Shows the progress of a call, a few times a second however often the server tells it."""

    def __init__(self, ctx: ToolContext) -> None:
        self._ctx = ctx
        self._shown_at = float("-inf")
        self._was_last = False

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        now = time.monotonic()
        is_last = progress == total and not self._was_last
        if now - self._shown_at < PROGRESS_EVERY and not is_last:
            return
        self._was_last = is_last
        self._shown_at = now
        text = message or (f"{progress:g}" if total is None else f"{progress:g} of {total:g}")
        self._ctx.progress(clipped(text, LONGEST_PROGRESS))
