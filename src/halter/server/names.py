"""How the names of sessions and users are stored: under a prefix of their tenant, which clients never see."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from msgspec.structs import replace

from halter import events
from halter.events import Event
from halter.server.tags import shown_tags
from halter.snapshot import Snapshot

_OF_FACTS = frozenset(("memory.recalled", "memory.unavailable"))
_NAMED = frozenset((events.Queued, events.Started, events.Failed, events.Custom))


class Names(msgspec.Struct, frozen=True):
    """Puts the prefix of a tenant in front of names, and takes it away. `""`: the only tenant has none."""

    prefix: str = ""

    @classmethod
    def of(cls, tenant: str) -> Names:
        """Those of this tenant. Ids of clients have no `/`, so no two tenants can mean the same name."""
        return cls(f"{tenant}/" if tenant else "")

    def stored(self, name: str) -> str:
        """The client's name as it is stored."""
        return self.prefix + name

    def bare(self, name: str) -> str:
        """The stored name as the client knows it."""
        return name.removeprefix(self.prefix)

    def bare_or_none(self, name: str | None) -> str | None:
        """As `bare`; `None` stays."""
        return None if name is None else self.bare(name)

    def in_text(self, text: str) -> str:
        """An error's text, with the quoted names in it as the client knows them."""
        return text.replace(f"'{self.prefix}", "'") if self.prefix else text

    def in_event(self, event: Event) -> Event:
        """The event, with its session as the client knows it, and without the tags that the server has added."""
        return self._named(event) if type(event) in _NAMED else event

    def _named(self, event: Any) -> Event:
        if isinstance(event, events.Failed):
            return replace(event, error=replace(event.error, message=self.in_text(event.error.message)))
        if isinstance(event, events.Custom):
            return replace(event, data=self._scope(event.data)) if event.name in _OF_FACTS else event
        if isinstance(event, events.Started):
            event = replace(event, tags=tuple(shown_tags(event.tags)))
        return replace(event, session_id=self.bare_or_none(event.session_id))

    def _scope(self, data: Any) -> Any:
        """Of the event's data; a tool may emit anything under our name."""
        fields = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
        scope = fields.get("scope")
        return {**fields, "scope": self.bare(scope)} if isinstance(scope, str) else cast("Any", data)

    def in_snapshot(self, snapshot: Snapshot) -> Snapshot:
        """The state, with the sessions of its runs as the client knows them."""
        for run in snapshot.runs if self.prefix else ():
            run.session_id = self.bare_or_none(run.session_id)
        return snapshot

    def in_export(self, data: dict[str, Any]) -> dict[str, Any]:
        """An exported session, so that it can be read by another tenant or server as well."""
        about = data["session"]
        return {**data, "session": {**about, "id": self.bare(about["id"]), "user": self.bare_or_none(about["user"])}}

    def in_import(self, data: dict[str, Any]) -> dict[str, Any]:
        """An export that a client sends, with its user as this tenant's."""
        given = data.get("session")
        about = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
        user = about.get("user")
        return {**data, "session": {**about, "user": self.stored(user)}} if isinstance(user, str) else data

    def in_user_export(self, data: dict[str, Any]) -> dict[str, Any]:
        """All that is kept of a user."""
        return {
            **data,
            "user": self.bare(data["user"]),
            "sessions": [self.in_export(each) for each in data["sessions"]],
            "facts": [{**each, "session_id": self.bare_or_none(each["session_id"])} for each in data["facts"]],
            "runs": [self._record(each) for each in data["runs"]],
        }

    def _record(self, run: dict[str, Any]) -> dict[str, Any]:
        names = {name: self.bare_or_none(run[name]) for name in ("session_id", "user")}
        return {**run, **names, "tags": shown_tags(run["tags"])}
