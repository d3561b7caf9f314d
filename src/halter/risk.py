"""How much harm a tool can do: the classes from which a policy chooses who is asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias, cast, get_args

from halter.errors import ConfigurationError

Risk: TypeAlias = Literal["reads", "changes", "destroys", "network"]
RISKS: tuple[Risk, ...] = get_args(Risk)


def risks(given: Risk | Iterable[Risk] | None) -> frozenset[Risk]:
    """The classes that a tool declares, as a set; empty if it declares none.

    Args:
        given: One class, several, or `None`.

    Raises:
        ConfigurationError: One of them is no class of risk.
    """
    named: Any = () if given is None else (given,) if isinstance(given, str) else given
    if not isinstance(named, Iterable) or not all(each in RISKS for each in cast("Iterable[Any]", named)):
        raise ConfigurationError(f"risk must be one or more of {', '.join(map(repr, RISKS))}, not {given!r}")
    return frozenset(cast("Iterable[Risk]", named))


def risks_of_hints(
    read_only: bool | None = None, destructive: bool | None = None, open_world: bool | None = None
) -> frozenset[Risk]:
    """The classes that an MCP server's hints about a tool amount to.

    Args:
        read_only: Its `readOnlyHint`; `None` if the server gives none.
        destructive: Its `destructiveHint`.
        open_world: Its `openWorldHint`.

    Returns:
        The classes. A server that gives no hint has declared nothing: the empty set. If it gives one, the others have
        the values that the protocol gives them: not read-only, destructive, open.

    Source: https://modelcontextprotocol.io/specification/2025-06-18/schema#toolannotations
    """
    if read_only is None and destructive is None and open_world is None:
        return frozenset()
    does: Risk = "reads" if read_only else "changes" if destructive is False else "destroys"
    return frozenset((does,)) if open_world is False else frozenset((does, "network"))
