"""Whether a team has come to its end, looked at whenever it may have: after turns, and in the middle of them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from halter import events
from halter.core.assembly import Assembly
from halter.core.cancellation import Registration
from halter.core.context import RunContext
from halter.core.metering import Shown
from halter.core.run import Run
from halter.errors import RunCancelled
from halter.messages import Message, Usage
from halter.outcome import CancelReason
from halter.teams.state import TeamState
from halter.teams.transcript import spoken
from halter.terminations import Termination


class Watch:
    """One run's look at its termination; it is the `View` too. Home loop only.

    `reason`: why the team ends, once it does: then all that is under way is stopped, with the reason `policy`.
    `error`: what a look has raised.
    """

    def __init__(self, termination: Termination | None, ctx: RunContext) -> None:
        self.reason: str | None = None
        self.error: BaseException | None = None
        self.reads = termination is not None and termination.reads
        self._blocks = termination is not None and termination.blocks
        self._is_asked = False  # in a thread, now
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._reached = 0.0  # the latest of the times at which to look that has come
        self._look = None if termination is None else termination.begin()
        self._ctx = ctx
        self._seen: int | None = None
        self._spending = Spending(ctx.run_id)
        self._under_way: Mapping[str, Run[Any]] = {}
        self._aside: Run[Any] | None = None
        self._state = TeamState()
        self._messages: list[Message] = []
        times = termination.times if termination else ()
        self._timers = [self._loop.call_later(time, self._reach, time) for time in times]
        self._listening: list[Registration] = [
            token.on_cancel(self.look) for token in (termination.tokens if termination else ())
        ]

    def close(self) -> None:
        """Looks no more."""
        for timer in self._timers:
            timer.cancel()
        for registration in self._listening:
            registration.close()

    # --- the view -------------------------------------------------------------------------------------------

    @property
    def messages(self) -> Sequence[Message]:
        return self._messages

    @property
    def saying(self) -> Mapping[str, str]:
        return {name: run.text for name, run in self._under_way.items()}

    @property
    def turns(self) -> Sequence[str]:
        return self._state.turns

    @property
    def handoffs(self) -> Sequence[str]:
        return self._state.handoffs

    @property
    def usage(self) -> Usage:
        return self._state.usage + self._spending.of({run.id for run in self._live})

    @property
    def _live(self) -> Sequence[Run[Any]]:
        return (*self._under_way.values(), *([self._aside] if self._aside is not None else []))

    @property
    def elapsed(self) -> float:
        """By the loop's clock; uvloop's counts whole milliseconds, and may be behind the timer that it has called."""
        return max(self._loop.time() - self._began, self._reached)

    # --- looking --------------------------------------------------------------------------------------------

    async def update(self, state: TeamState, under_way: Mapping[str, Run[Any]]) -> bool:
        """The state is another. True if the team has come to its end. Raises what a look has raised."""
        self._messages = spoken(state.messages[state.since :])
        self._state = state
        self._under_way = under_way
        if self._blocks:
            await self._look_in_thread()
        self.look()
        self._raise_error()
        return self.reason is not None

    def _reach(self, time: float) -> None:
        self._reached = max(self._reached, time)
        self.look()

    async def _look_in_thread(self) -> None:
        """What else would be looked at meanwhile is looked at afterwards: a look remembers what it has seen."""
        look = self._look
        if look is None or self.reason is not None or self.error is not None:
            return

        def termination() -> str | None:
            return look(self)

        self._is_asked = True
        try:
            self.reason = await self._ctx.in_thread(termination)
        except RunCancelled:
            raise
        except Exception as error:
            self.error = error
        finally:
            self._is_asked = False

    def look(self) -> None:
        """Asks the termination, and stops what is under way if it says so."""
        if self._is_asked:
            return
        if self._look is not None and self.reason is None and self.error is None:
            try:
                self.reason = self._look(self)
            except Exception as error:  # it may be the loop that calls
                self.error = error
        if self.reason is not None or self.error is not None:
            for run in self._live:
                run.cancel(self.reason, reason=CancelReason.POLICY)

    async def until_one_ended(self, runs: Sequence[Run[Any]]) -> None:
        """Waits until one of these is over. Raises what a look has raised, once it is."""
        if self.reads and self.reason is None:
            await self._read_until_one_ended(runs)
        else:
            await self._ctx.wait_for_children(runs, bool)
        self._raise_error()

    def _raise_error(self) -> None:
        if self.error is not None:
            raise self.error

    async def attend(self, run: Run[Any]) -> None:
        """Waits for a run beside the conversation, which the team's end stops as well."""
        self._aside = run
        try:
            self.look()
            await self.until_one_ended([run])
        finally:
            self._aside = None

    async def _read_until_one_ended(self, runs: Sequence[Run[Any]]) -> None:
        reader = self._ctx.run.events(after=self._seen)
        try:
            while not any(run.is_done for run in runs):
                event = await anext(reader)
                self._seen = event.seq
                self._spending.count(event)
                if isinstance(event, events.TextDelta | events.ReasoningDelta | events.ToolArgumentsDelta):
                    self.look()
        finally:
            reader.close()


class Spending:
    """What runs under the team have used: as counted, and what they are showing now, estimated."""

    def __init__(self, team_id: str) -> None:
        self._team_id = team_id
        self._member: dict[str, str] = {}  # by run: the team's own child that it is, or is under
        self._counted: dict[str, Usage] = {}  # by run
        self._shown: dict[str, Shown] = {}  # by run: one message at a time

    def of(self, members: Collection[str]) -> Usage:
        """Of these children of the team's, and all under them."""
        total = sum((usage for id, usage in self._counted.items() if self._member[id] in members), Usage())
        output = sum(shown.tokens() for id, shown in self._shown.items() if self._member[id] in members)
        return total + Usage(output=output, estimated=True) if output else total

    def count(self, event: events.Event) -> None:
        """One more event under the team."""
        match event:
            case events.Started():
                above = event.parent_id or ""
                self._member[event.run_id] = event.run_id if above == self._team_id else self._member.get(above, "")
            case events.TextDelta(text=text) | events.ReasoningDelta(text=text) if event.run_id in self._member:
                self._show(event.run_id, text)
            case events.ToolArgumentsDelta(fragment=fragment) if event.run_id in self._member:
                self._show(event.run_id, fragment)
            case events.UsageUpdated(usage=usage) if event.run_id in self._member:
                self._counted[event.run_id] = usage
                self._shown.pop(event.run_id, None)
            case events.Completed(usage=usage) | events.Failed(usage=usage) | events.Cancelled(usage=usage):
                self._end(event, usage)
            case _:
                pass

    def _show(self, run_id: str, text: str) -> None:
        if run_id not in self._shown:
            self._shown[run_id] = Shown(Assembly())
        self._shown[run_id].add(text)

    def _end(self, event: events.Event, usage: Usage) -> None:
        """From here on it is counted with the run above it; the team's own children, with the team."""
        for known in (self._counted, self._shown, self._member):
            known.pop(event.run_id, None)
        if event.parent_id in self._member:
            self._counted[event.parent_id] = self._counted.get(event.parent_id, Usage()) + usage
