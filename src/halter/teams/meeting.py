"""One run of a team: who is due speaks, what is said is kept, until there is an end.

1. The state changes between turns only, in one piece, and is kept at once: a stop finds whole turns, and what it cuts
off is added, marked. 2. Nothing new begins once a stop was asked for. 3. A member that fails, or that somebody stops
alone, fails the team with that very error. 4. Where the termination cuts a turn, the team completes with what was said.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec.structs import replace

from halter.agent import Agent
from halter.core.context import RunContext
from halter.core.run import Run
from halter.core.runnable import Runnable
from halter.errors import ConfigurationError
from halter.messages import Message
from halter.outcome import CancelReason, RunResult
from halter.parts import as_json, output_of, stop_all
from halter.teams import transcript
from halter.teams.state import TeamState, Turn
from halter.teams.watch import Watch

if TYPE_CHECKING:
    from halter.teams.team import Team

T = TypeVar("T")


class Meeting:
    """All that changes while a team runs; also the `Floor` that the team looks at."""

    def __init__(self, team: Team, ctx: RunContext) -> None:
        self.ctx = ctx
        self.state = TeamState()
        self._team = team
        self._under_way: dict[str, Run[Any]] = {}
        self._given: dict[str, int] = {}  # messages that an agent's run has begun with
        self._heard: dict[str, int] = {}  # messages of the conversation when a turn began
        self._voice: Run[Any] | None = None  # whose answer is the team's own
        self._watch = Watch(team.termination, ctx)
        self._step = 0

    @property
    def speaking(self) -> Sequence[str]:
        """Whose turns are under way."""
        return tuple(self._under_way)

    async def run(self) -> Any:
        """Turns until the end; the output of the last."""
        self.ctx.at_end(self._note_what_was_cut)
        try:
            self._open()
            reason = await self._take_turns()
        except Exception:
            if not self.ctx.token.is_cancelled:  # else the stop has reached them, as it was meant
                stop_all(self._under_way.values(), CancelReason.SIBLING_FAILED)
            raise
        finally:
            self._watch.close()
        self._keep(stop_reason=reason, cut={}, arrived={})
        self.ctx.emit("team.ended", {"reason": reason, "turns": len(self.state.turns)})
        return self._output()

    # --- turns ----------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """New work begins with an input; without one, the work of the state goes on."""
        ctx, before = self.ctx, self.ctx.state or TeamState()
        for message in (*before.messages[len(ctx.messages) :], *ctx.input):
            ctx.say(message)
        if ctx.input:
            since = len(ctx.messages) - len(ctx.input)
            members, last = before.members, before.last
            before = self._team.opened(TeamState(since=since, members=members, last=last))
        self.state = before
        self._keep()

    async def _take_turns(self) -> str:
        """Why there are no more."""
        while self.state.stop_reason is None:
            if not await self._watch.update(self.state, self._under_way):
                for name in await self._next():
                    self._begin(name)
            if not self._under_way:
                return self._watch.reason or self._team.done(self.state)
            await self._watch.until_one_ended(list(self._under_way.values()))
            for name in [name for name, run in self._under_way.items() if run.is_done]:
                await self._end(name)
        return self.state.stop_reason

    async def _next(self) -> Sequence[str]:
        """Who begins now. Raises `RunCancelled` where nobody may, because of a stop that has waited for the turn."""
        if self._under_way and self.ctx.run.is_cancelling:
            return ()
        due = tuple(self.state.cut) or await self._team.due(self)
        if not due or self._watch.reason is not None:
            return ()
        if not self._under_way:
            self._before_next()
            self._step = self.ctx.begin_step()
        if self.ctx.steered():
            self._keep()
        return due

    def _before_next(self) -> None:
        if self._step:  # a stop that waits for the turn lets the first one begin, as that of an agent
            self.ctx.before_next_step()

    def _begin(self, name: str) -> None:
        state, ctx = self.state, self.ctx
        input, options = self._given_to(name, state)
        run = ctx.start(self._team.members[name], input, context=ctx.context, grace=ctx.grace, **options)
        self._heard[name] = state.cut.get(name, len(ctx.messages))
        self._under_way[name] = run
        if self._voice is None or self._voice.is_done:
            self._voice = run
            ctx.speak_through(run)
        self.state = replace(state, cut=_without(name, state.cut), arrived=_without(name, state.arrived))

    def _given_to(self, name: str, state: TeamState) -> tuple[Any, dict[str, Any]]:
        """The input of a member's turn, and the options of its run.

        An agent that was cut off goes on behind its own words, and what has a state goes on from that. Anything else is
        given once more what it was given then.
        """
        is_agent = self._is_agent(name)
        said = self.ctx.messages if is_agent else self.ctx.messages[: state.cut.get(name)]
        heard = transcript.heard_by(name, said, self._team.members, self._team.aside)
        history, new = transcript.split(heard)
        messages = tuple(new) or (Message.user(transcript.YOUR_TURN),)
        own = state.members.get(name)
        if own is not None:
            goes_on = name in state.cut and _goes_on_by_itself(self._team.members[name])
            return None if goes_on else transcript.as_text(messages), {"state": own}
        self._given[name] = len(history) + len(messages)
        return messages if is_agent else transcript.as_text(messages), {"history": history}

    def _is_agent(self, name: str) -> bool:
        return isinstance(self._team.members[name], Agent)

    async def _end(self, name: str) -> None:
        """A member's run is over. Raises what it has failed with, and `RunCancelled` if somebody has stopped it."""
        run = self._under_way[name]
        result = cast("RunResult[Any]", run.outcome)
        reason = result.cancellation.reason if result.cancellation is not None else None
        is_end = reason is CancelReason.POLICY and self._watch.reason is not None
        waits_for_others = reason is CancelReason.PARENT_CANCELLED and self.ctx.run.is_cancelling
        if not (is_end or waits_for_others):
            await output_of(run)  # raises, if there is none
        turn = self._turn(name, result)
        judgement = await self._judged(turn, result, is_end=is_end)
        del self._under_way[name]
        self._note(turn, result, judgement, is_end=is_end)
        if not self._under_way:
            self.ctx.end_step()

    async def _judged(self, turn: Turn, result: RunResult[Any], *, is_end: bool) -> tuple[str, ...] | None:
        """What follows of a turn; `None` if it was cut off. Until it is known, the turn is still under way: where a
        function of the user's raises, or a stop comes meanwhile, it is kept as one that was cut off."""
        if not self._is_whole(turn, result, is_end=is_end):
            return None
        judgement = self._team.judged(turn)
        return await self._team.asked(turn, self.ctx) if judgement is None else judgement

    async def ask(self, runnable: Runnable[T], input: Any) -> T | None:
        """The output of a run beside the conversation; `None` if the team's end came first."""
        self._before_next()
        run = self.ctx.start(runnable, input, context=self.ctx.context, grace=self.ctx.grace)
        await self._watch.attend(run)
        result = cast("RunResult[T]", run.outcome)
        self._keep(usage=self.state.usage + result.usage)
        return None if self._watch.reason is not None else await output_of(run)

    def _output(self) -> Any:
        """Of the member that has spoken for the team last: its value, or as much of its text as there is."""
        result = self._voice.outcome if self._voice is not None else None
        if result is None:
            spoken = transcript.spoken(self.state.messages[self.state.since :])
            return spoken[-1].text if spoken else ""
        return result.output if result.is_completed else result.text

    # --- what is kept ---------------------------------------------------------------------------------------

    def _keep(self, **changes: Any) -> None:
        self.state = replace(self.state, messages=self.ctx.messages, **changes)
        self.ctx.keep(self.state)

    def _turn(self, name: str, result: RunResult[Any]) -> Turn:
        return Turn(speaker=name, text=_text_of(result), output=result.output, messages=self._said(name, result))

    def _is_whole(self, turn: Turn, result: RunResult[Any], *, is_end: bool) -> bool:
        return result.is_completed or (not is_end and self._team.is_whole(turn))

    def _note(
        self, turn: Turn, result: RunResult[Any], judgement: tuple[str, ...] | None, *, is_end: bool = False
    ) -> None:
        """What a run that is over has said, in the conversation and the state.

        `judgement`: of a turn that is whole; any other is kept as one that was cut off. `is_end`: the team's end has
        cut it.
        """
        name = turn.speaker
        for message in turn.messages:
            self.ctx.say(message)
        state = replace(self.state, usage=self.state.usage + result.usage, members=self._member_states(name, result))
        if judgement is not None:
            self.state = self._team.heard(replace(state, turns=(*state.turns, name), last=name), turn, judgement)
        else:
            self.state = replace(state, last=name) if is_end else replace(state, cut=self._with_cut(name))
        self._keep()

    def _member_states(self, name: str, result: RunResult[Any]) -> dict[str, Any]:
        """A team within goes on with its conversation; anything else with a state only where it was cut off."""
        others = _without(name, self.state.members)
        is_kept = isinstance(result.state, TeamState) or not result.is_completed
        return {**others, name: result.state} if is_kept and result.state is not None else others

    def _said(self, name: str, result: RunResult[Any]) -> tuple[Message, ...]:
        if self._is_agent(name):
            return transcript.signed(result.messages[self._given[name] :], name)
        was_cut = not result.is_completed and (not result.messages or result.messages[-1].interrupted)
        return transcript.said_by(name, _text_of(result), interrupted=was_cut)

    def _with_cut(self, name: str) -> dict[str, int]:
        return {**self.state.cut, name: self._heard[name]}

    def _note_what_was_cut(self) -> None:
        """What was under way at a stop or a failure, now that it is over: as far as it came."""
        for name, run in self._under_way.items():
            result = cast("RunResult[Any]", run.outcome)
            turn = self._turn(name, result)
            # The user's functions are not asked any more: they may block.
            self._note(turn, result, self._team.judged(turn) if self._is_whole(turn, result, is_end=False) else None)
        self._under_way.clear()


def _goes_on_by_itself(member: Runnable[Any]) -> bool:
    """From its state, it needs no input. (A crew needs what it fills its tasks with.)"""
    try:
        member.check_input(None)
    except ConfigurationError:
        return False
    return True


def _without(name: str, given: dict[str, T]) -> dict[str, T]:
    return {each: value for each, value in given.items() if each != name}


def _text_of(result: RunResult[Any]) -> str:
    return result.text if result.text or result.output is None else as_json(result.output)
