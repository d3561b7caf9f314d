"""Runs over HTTP: start, stream, resume, answer and stop them.

Map of the files:

- `app.py`: `create_app` and `mount`, what users call; `server.py`: everything that one app holds
- `stream.py`: `EventStream`, the ASGI response; `frames.py`: events as SSE
- `presence.py`: who is connected to a run; `ended.py`: runs whose log is gone
- `live_runs.py`: all live runs in short
- `port.py`: `RunStore`, the runs that a server knows; `memory/`: the store of one process
- `starting.py`, `run_stream.py`: start a run for a request, wait for it, stream it; `extras.py`: what fronts ask beyond
- `fronts/`: one file for each protocol of others' clients; its `__init__` is its map
- `routes/`: one file for each group of routes; `bodies.py`, `views.py`: what they take and give
- `json_bodies.py`: JSON, checked before a route reads it
- `browser/`: `client.js`, for browsers and Node; `page/`: the dashboard
- `names.py`: how sessions and users of tenants are stored
- `principal.py`: who asks; `keys.py`: API keys; `audit.py`: the record of who did what; `limits.py`: how much
- `problems.py`: errors as problem+json; `draining.py`: SIGTERM
- `loading.py`, `serve.py`: `halter serve`
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from halter.server.app import create_app as create_app
    from halter.server.app import mount as mount
    from halter.server.guard import Guard as Guard
    from halter.server.keys import KeyFile as KeyFile
    from halter.server.limits import Limits as Limits
    from halter.server.principal import Principal as Principal
    from halter.server.stream import EventStream as EventStream

_WHERE = {
    "EventStream": "halter.server.stream",
    "Guard": "halter.server.guard",
    "KeyFile": "halter.server.keys",
    "Limits": "halter.server.limits",
    "Principal": "halter.server.principal",
    "create_app": "halter.server.app",
    "mount": "halter.server.app",
}

__all__ = list(_WHERE)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'halter.server' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_WHERE[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
