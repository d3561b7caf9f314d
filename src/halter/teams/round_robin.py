"""`RoundRobin`: everybody in turn."""

from __future__ import annotations

from collections.abc import Sequence

from halter.errors import ConfigurationError
from halter.teams.team import Floor, Members, Team
from halter.terminations import Termination


class RoundRobin(Team):
    """Its members speak in turn, in their order, again and again, `until` the termination says so.

    `members`: agents, and anything that runs and takes a text, by their names; or a mapping of other names. A new run
    from a state goes on behind whoever has spoken last. `name`, `description`: how its events are marked, and what it
    is for. Raises `ConfigurationError`, also if there is no termination: it would never end.
    """

    kind = "round_robin"

    def __init__(
        self, members: Members, *, until: Termination | None = None, name: str = "", description: str = ""
    ) -> None:
        super().__init__(members, until, name, description)
        if until is None:
            raise ConfigurationError("a round robin never ends by itself: give it until=, such as MaxMessages(10)")

    async def due(self, floor: Floor) -> Sequence[str]:
        names, last = list(self.members), floor.state.last
        return (names[(names.index(last) + 1) % len(names)] if last is not None else names[0],)
