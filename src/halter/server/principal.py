"""Who asks: the principal of a request, and how it is found."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias, get_args

import msgspec
from starlette.requests import HTTPConnection

from halter.errors import ConfigurationError

Scope: TypeAlias = Literal["run", "read", "stop", "admin"]
SCOPES: frozenset[str] = frozenset(get_args(Scope))
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~@-]{0,63}")


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """The one who makes a request.

    Args:
        tenant: whose runs and sessions these are; no tenant sees another's. `""`: the only one, when the server has
            no keys. Else 1 to 64 letters, digits and `. _ ~ @ -`.
        actor: the name under which stops, answers and starts are recorded.
        scopes: what it may do: `run` (start, answer, steer, change sessions), `read`, `stop`, `admin` (stop with a
            privileged reason, read the audit log). `admin` does not include the others.

    Raises:
        ConfigurationError: if the tenant or a scope cannot be.
    """

    tenant: str = ""
    actor: str = "anonymous"
    scopes: frozenset[str] = frozenset(("run", "read", "stop", "admin"))

    def __post_init__(self) -> None:
        if self.tenant and not NAME.fullmatch(self.tenant):
            raise ConfigurationError(f"tenant must be 1 to 64 letters, digits and . _ ~ @ -, not {self.tenant!r}")
        if unknown := set(self.scopes) - SCOPES:
            raise ConfigurationError(f"unknown scope {sorted(unknown)[0]!r}; scopes are {', '.join(sorted(SCOPES))}")


Auth: TypeAlias = Callable[[HTTPConnection], Awaitable[Principal | None]]


async def everyone(_: HTTPConnection) -> Principal:
    """The principal of a server without keys: one tenant, who may do everything."""
    return Principal()
