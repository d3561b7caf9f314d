"""Sessions of ADK are named by an app, a user and an id; Halter's have one id each.

1. Two different triples never get the same id: what parts the names is escaped within them. 2. The sessions of one app
and user have a common prefix, by which they are listed. 3. The tenant's prefix comes in front, as for every session.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

from halter.server.names import Names
from halter.server.problems import Problem

PREFIX = "adk."
LONGEST = 128  # characters of an id of a session
_ESCAPED = re.compile(r"[^A-Za-z0-9_-]")
_ESCAPED_IN_USERS = re.compile(r"[^A-Za-z0-9_.-]|^\.")


class AdkSession(NamedTuple):
    """A session as ADK's clients name it."""

    app: str
    user: str
    id: str

    @property
    def stored(self) -> str:
        """Its id among the sessions of the tenant. Raises `Problem` 400 if the three names are too long together."""
        id = prefix_of(self.app, self.user) + _escaped(self.id)
        if not self.id or len(id) > LONGEST:
            detail = f"app, user and session are {len(id)} characters together, and {LONGEST} is the limit"
            raise Problem(400, detail if self.id else "the id of the session is empty", code="invalid")
        return id

    def names(self, names: Names) -> Names:
        """Those of the tenant, for texts that name this session as its client does."""
        return Names(names.prefix + prefix_of(self.app, self.user))


def prefix_of(app: str, user: str) -> str:
    """What the ids of all sessions of this app and user begin with, and no others."""
    return f"{PREFIX}{_escaped(app)}.{_escaped(user)}."


def client_id(stored: str) -> str:
    """The last part of an id that `AdkSession.stored` gave, as the client knows it."""
    return unquote(stored.rpartition(".")[2].replace("~", "%"))


def user_id(user: str) -> str:
    """An ADK user as the tenant's users are named: most stay as they are, so that all routes mean the same user.

    Raises `Problem` 400 for a name that is empty or too long.
    """
    id = _ESCAPED_IN_USERS.sub(_escape, user)
    if not 1 <= len(id) <= LONGEST:
        raise Problem(400, f"the id of the user must have 1 to {LONGEST} characters, not {len(id)}", code="invalid")
    return id


def _escaped(name: str) -> str:
    return _ESCAPED.sub(_escape, name)


def _escape(found: re.Match[str]) -> str:
    return "".join(f"~{byte:02X}" for byte in found[0].encode())
