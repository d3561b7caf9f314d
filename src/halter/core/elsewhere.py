"""Runs of other processes, asked to stop through the places in which their sessions are kept.

The core knows no place. One that other processes share enters itself when it is first used; the configured one counts
from the start.
"""

from __future__ import annotations

import asyncio
from typing import Protocol
from weakref import WeakValueDictionary

from halter.core.lockfree import snapshot
from halter.core.settings import default_sessions, settings
from halter.outcome import Cancellation


class SharedPlace(Protocol):
    """A place in which the records of other processes' runs are kept."""

    async def stop(self, run_id: str, cancellation: Cancellation, *, wait: bool) -> bool:
        """Asks the process that carries this run to stop it; False if none does. `wait`: until it has ended.

        Raises `SessionsUnavailable`.
        """
        ...


_open: WeakValueDictionary[int, SharedPlace] = WeakValueDictionary()


def enter(place: SharedPlace) -> None:
    """It is in use in this process."""
    _open[id(place)] = place


def leave(place: SharedPlace) -> None:
    _open.pop(id(place), None)


async def stop(run_id: str, cancellation: Cancellation, *, wait: bool) -> bool:
    """True if a live run of another process has this id, and its process was asked to stop it.

    Raises `SessionsUnavailable` if no place has the run and one of them did not answer.
    """
    places = {id(place): place for place in (*snapshot(_open), *_configured())}
    asked = (place.stop(run_id, cancellation, wait=wait) for place in places.values())
    answers = await asyncio.gather(*asked, return_exceptions=True)
    if True in answers:
        return True
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return False


def _configured() -> tuple[SharedPlace, ...]:
    if settings().sessions == "memory":
        return ()
    place = default_sessions().shared_place
    return () if place is None else (place,)
