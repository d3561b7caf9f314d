"""The turns of one event loop's runs: renewed while they last, and told what other processes ask of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TYPE_CHECKING

from halter.core import boot_clock
from halter.core.home import home_here
from halter.core.lockfree import Wakers
from halter.core.owner import Owner
from halter.errors import TurnLost

if TYPE_CHECKING:
    from halter.sessions.place import Place
    from halter.sessions.turn import Turn

LEASE = 30.0  # seconds for which a turn is kept for an owner of which nothing is heard, on another machine
RENEWED_EVERY = LEASE / 3
LOOKED_EVERY = 0.5  # seconds; what another process asks for takes so long at most
_numbers = count(1)
_logger = logging.getLogger("halter")


class Leases:
    """`owner`: the name under which this event loop holds what it holds; the process is known by it."""

    def __init__(self, place: Place) -> None:
        self.owner = f"{Owner.here()}/{next(_numbers)}"
        self._place = place
        self._home = home_here()
        self._turns: dict[str, Turn] = {}
        self._changed = Wakers()
        self._is_looking = False
        self._owed: dict[str, Callable[[], Awaitable[object]]] = {}

    @property
    def is_used(self) -> bool:
        return bool(self._turns)

    def add(self, run_id: str, turn: Turn) -> None:
        """A run has a turn, or waits for one."""
        self._turns[run_id] = turn
        if self._place.is_shared and not self._is_looking:
            self._is_looking = True
            self._home.work(self._look_after(), "leases")

    def owe(self, run_id: str, give_back: Callable[[], Awaitable[object]]) -> None:
        """A run has ended, and its turn could not be given back: that is tried until the place is there again.

        Until then nobody else can have the turn: it would go on from less than was said.
        """
        self._owed[run_id] = give_back

    async def settle(self, run_id: str | None) -> bool:
        """Gives back the turn of a run that is over, if it is owed; False if it is not. Raises why that still fails."""
        give_back = self._owed.get(run_id or "")
        if give_back is None:
            return False
        try:
            await give_back()
        except TurnLost:
            pass  # somebody else has it
        return True

    def remove(self, run_id: str) -> None:
        self._owed.pop(run_id, None)
        self._turns.pop(run_id, None)
        if not self._turns:
            self._changed.wake()

    async def _look_after(self) -> None:
        """For as long as there are any: it ends with the last of them."""
        renewed, told = _now(), ""
        while await self._is_needed():
            try:
                if any(abs(now - then) >= RENEWED_EVERY for now, then in zip(_now(), renewed, strict=True)):
                    await self._place.store.renew(self.owner, lease_for=LEASE)
                    renewed = _now()
                await self._hear()
                for give_back in list(self._owed.values()):
                    await give_back()
                told = ""
            except Exception as error:  # whatever it is: without this, every turn here would run out
                if told != str(error):  # it may last
                    _logger.warning("the turns of this process could not be looked after: %s", error)
                told = str(error)
        self._is_looking = False

    async def _is_needed(self) -> bool:
        """After a while; at once, and False, when there are none left."""
        due: list[bool] = []  # a time-out would end it by cancelling it, and nobody cancels work
        timer = self._home.loop.call_later(LOOKED_EVERY, lambda: (due.append(True), self._changed.wake()))
        try:
            await self._changed.wait_until(lambda: not self._turns or bool(due))
        finally:
            timer.cancel()
        return bool(self._turns)

    async def _hear(self) -> None:
        asked = await self._place.store.asked(self.owner)
        for run_id, cancellation in asked.stops.items():
            if run_id in self._turns:
                self._turns[run_id].stop(cancellation)
        for mail in asked.mail:
            if mail.run_id in self._turns:
                self._turns[mail.run_id].receive(mail)


def _now() -> tuple[float, float]:
    """On a clock that stands still while the machine sleeps, and on one that does not."""
    return time.monotonic(), boot_clock.now()
