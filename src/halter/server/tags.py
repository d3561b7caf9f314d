"""The tags that the server adds to its runs: whose they are, what they run, and what was asked for.

A record in the database has no other place for them. Clients never see these tags, and cannot give them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

RESERVED = "halter."
_TENANT, _AGENT, _ASKED = (f"{RESERVED}{name}=" for name in ("tenant", "agent", "asked"))


class ServerTags(msgspec.Struct, frozen=True, kw_only=True):
    """What the tags of a run say.

    `tenant`: `""` for the only one of a server without keys. `agent`: the name under which it is served, `None` for a
    run that no server has started. `asked`: the fingerprint of the request's body.
    """

    tenant: str = ""
    agent: str | None = None
    asked: str | None = None

    def added(self) -> tuple[str, ...]:
        """As tags."""
        given = ((_TENANT, self.tenant or None), (_AGENT, self.agent), (_ASKED, self.asked))
        return tuple(name + value for name, value in given if value is not None)

    @classmethod
    def read(cls, tags: Iterable[str]) -> ServerTags:
        """From all tags of a run."""
        reserved = [tag for tag in tags if tag.startswith(RESERVED)]

        def value(name: str) -> str | None:
            return next((tag.removeprefix(name) for tag in reserved if tag.startswith(name)), None)

        return cls(tenant=value(_TENANT) or "", agent=value(_AGENT), asked=value(_ASKED))


def shown_tags(tags: Sequence[str]) -> list[str]:
    """Tags without those that the server has added."""
    return [tag for tag in tags if not tag.startswith(RESERVED)]
