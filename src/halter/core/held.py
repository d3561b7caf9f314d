"""What a session holds in this process beyond its runs: its programs in the background.

1. A thing belongs to one session and to one event loop; another loop that carries runs of the session has its own.
2. It ends with its session, by `end`, or with its loop, whichever comes first. What belongs to no session is the
loop's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from halter.core.home import Home, home_here, homes
from halter.core.lockfree import snapshot

PATIENCE = 10.0  # seconds in which another loop ends what it has; then that is done without it
_logger = logging.getLogger("halter")


class Held(Protocol):
    """Something that lives as long as its session, or its loop. Each may be called more than once."""

    async def close(self) -> object:
        """Ends it, on its loop; returns when nothing of it is left. Cancellation-safe: goes on."""
        ...

    def lose(self) -> object:
        """Ends it where its loop is closed, or does not answer; from any thread. In a forked child: lets go of it."""
        ...


H = TypeVar("H", bound=Held)
Things: TypeAlias = dict[tuple[Hashable, Callable[[], Held]], Held]  # of one loop


def held(session: Hashable, make: Callable[[], H]) -> H:
    """What `make()` has made for this session on the loop that runs here; made now if there is none.

    `session`: as `Execution.session_key`; `None`: the loop's own.
    """
    things = _things_here()
    thing: Any = things.get((session, make))
    if thing is None:
        thing = things[session, make] = make()
    return thing


def all_made_by(make: Callable[[], H]) -> list[H]:
    """What `make()` has made for any session, on every loop of this process."""
    tables: list[Things] = [home.kept.get(held, {}) for home in homes()]
    return [cast("H", thing) for things in tables for thing in snapshot(things) if type(thing) is make]


async def end(session: Hashable) -> None:
    """Ends all that the session holds in this process, on every loop; returns when nothing of it is left.

    Its next run may hold something anew. Cancellation-safe: goes on.
    """
    here, there = home_here(), list[tuple[Home, Held]]()
    endings: list[asyncio.Future[None]] = []
    for home in homes():
        for thing in _take(home, session):
            if home is here:
                endings.append(home.work(_close(thing), "ending what a session held"))
            else:
                there.append((home, thing))
    others = {ending: thing for home, thing in there if (ending := _end_there(home, thing)) is not None}
    if endings:
        await asyncio.wait(endings)
    if others:
        _, late = await asyncio.wait(others, timeout=PATIENCE)
        for ending in late:
            others[ending].lose()


def _end_there(home: Home, thing: Held) -> asyncio.Future[None] | None:
    """Has another loop close it; ends it at once where that one does not run."""
    closing = _close(thing)
    try:
        if home.loop.is_running():
            return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(closing, home.loop))
    except RuntimeError:  # it was closed just now
        pass
    closing.close()
    thing.lose()
    return None


async def _close(thing: Held) -> None:
    try:
        await thing.close()
    except Exception:  # nobody else's must be left for it
        _logger.exception("ending %r failed", thing)


def _things_here() -> Things:
    home = home_here()
    things: Things | None = home.kept.get(held)
    if things is None:
        things = home.kept[held] = {}
        home.at_close(lambda: _close_all(home, snapshot(things)), lost=lambda: _lose_all(snapshot(things)))
    return things


def _take(home: Home, session: Hashable) -> list[Held]:
    """What the session has on this loop; whoever asks next has none of it."""
    things: Things = home.kept.get(held, {})
    keys = [key for key in list(things) if key[0] == session]
    return [thing for key in keys if (thing := things.pop(key, None)) is not None]


async def _close_all(home: Home, things: Iterable[Held]) -> None:
    """All at once: each may take its time."""
    endings = [home.work(_close(thing), "ending what was held") for thing in things]
    if endings:
        await asyncio.wait(endings)


def _lose_all(things: Iterable[Held]) -> None:
    for thing in things:
        thing.lose()
