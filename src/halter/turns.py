"""The turns of one run of an agent: ask the model, run the tools that it calls, and again, until it has answered."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from halter import checked, events
from halter.codec import Unfit
from halter.compaction.compacting import Compacting
from halter.core.attempt import Attempt
from halter.core.calling import call_function
from halter.core.calls import call_tools
from halter.core.context import RunContext
from halter.core.tool_context import ToolContext
from halter.errors import ContextTooLong, ToolError, TurnsExhausted
from halter.facts.memory import Memory
from halter.hooks import called, overrides
from halter.messages import Message, ToolCall, ToolResult, checked_message
from halter.request import ModelRequest

if TYPE_CHECKING:
    from halter.agent import Agent

ONE_HANDOFF = "There is another handoff in this answer, and only the first one counts."


class Turns:
    """All that changes while an agent runs. `agent`: who speaks; after a handoff, another."""

    def __init__(self, agent: Agent[Any], ctx: RunContext) -> None:
        self.agent = agent
        self.ctx = ctx
        ctx.follow(agent.approvals)
        self._memory = None if agent.memory is None else Memory(agent.memory, agent.model, ctx)
        self._most = agent.max_turns
        self._repairs = agent.output_retries
        self._has_called = False
        self._compacting = Compacting(ctx)
        self._handoff: tuple[ToolCall, Agent[Any] | str] | None = None  # that the last answer has asked for
        self._is_left = False  # handed over to somebody outside

    async def run(self) -> Any:
        """Turns until there is an answer, and nobody has sent anything more; the answer as a value."""
        ctx = self.ctx
        for message in ctx.input:
            ctx.say(message)
        if self._memory is not None:
            await self._memory.recall()
        while True:
            step = ctx.begin_step()
            answer = await self._ask()
            calls = self.agent.toolbox.ours(answer.tool_calls)
            is_left_to_caller = len(calls) < len(answer.tool_calls)
            to = await self._call(calls) if calls else None
            ctx.end_step()
            if is_left_to_caller:
                return answer.text
            if to is not None:
                self._hand_off(to)
            if self._is_left:
                return answer.text
            correction: Message | None = None
            if answer.tool_calls:
                if step >= self._most:
                    raise TurnsExhausted(
                        f"agent {self.agent.name!r} still calls tools after {step} turns, its max_turns"
                    )
                ctx.steered()
            elif step >= self._most or not ctx.steered():  # what no turn comes for is undelivered
                done, value = self._read(answer, is_last=step >= self._most)
                if done:
                    return value
                correction = value
            ctx.before_next_step()
            if correction is not None:
                ctx.say(correction)

    def learn(self) -> None:
        """The run is about to complete: what was said is learned from afterwards."""
        if self._memory is not None:
            self._memory.learn()

    # --- the model ------------------------------------------------------------------------------------------

    async def _ask(self) -> Message:
        """The model's answer. A conversation that is too long is compacted: before, or when it was refused as such."""
        agent, ctx, compacting = self.agent, self.ctx, self._compacting
        instructions = await self._instructions()
        request = self._request(instructions)
        if await compacting.before_request(agent, request):
            request = self._request(instructions)
        attempt = Attempt(ctx)
        try:
            request, answer = await self._send(request, attempt)
        except ContextTooLong as refusal:
            ctx.token.raise_if_cancelled()
            if attempt.has_shown or not await compacting.after_refusal(agent, request, refusal):
                raise
            attempt.discard()
            request, answer = await self._send(self._request(instructions), ctx)
        compacting.answered(request, answer)
        await called(agent.hooks, "after_model", ctx, answer)
        return answer

    async def _send(self, request: ModelRequest, ctx: RunContext) -> tuple[ModelRequest, Message]:
        """The request as a hook has changed it, and its answer."""
        request = await called(self.agent.hooks, "before_model", self.ctx, request) or request
        await ctx.committed()
        return request, checked_message(await self.agent.model.respond(request, ctx))

    def _request(self, instructions: str) -> ModelRequest:
        agent = self.agent
        system = (Message.system(instructions),) if instructions else ()
        return ModelRequest(
            messages=(*system, *self._with_memory(self._compacting.told.messages())),
            settings=agent.settings,
            tools=agent.toolbox.specs,
            # A choice that is forced holds until a tool has been called: else the agent could never answer.
            tool_choice=None if self._has_called else agent.tool_choice,
            output=agent.schema,
        )

    def _with_memory(self, told: Sequence[Message]) -> Sequence[Message]:
        return told if self._memory is None else self._memory.told_with(told)

    async def _instructions(self) -> str:
        given, further = self.agent.instructions, self.agent.further_instructions
        if not isinstance(given, str):
            given = checked.text("what instructions() returns", await call_function(self.ctx, given, self.ctx))
        return "\n\n".join(text for text in (given, further) if text)

    def _read(self, answer: Message, *, is_last: bool) -> tuple[bool, Any]:
        """The output, or what the model is told is wrong with its answer. Raises `OutputInvalid`."""
        kind = self.agent.answer
        if kind is None:
            return True, answer.text or answer.refusal
        try:
            return True, kind.read(answer)
        except Unfit as unfit:
            if self._repairs == 0 or is_last:
                raise kind.error(answer, unfit) from unfit
            self._repairs -= 1
            return False, kind.repair(unfit)

    # --- its tools ------------------------------------------------------------------------------------------

    async def _call(self, calls: Sequence[ToolCall]) -> Agent[Any] | str | None:
        """Runs these calls of an answer; to whom one of them has handed over, if any."""
        agent = self.agent
        features = agent.features
        results = await call_tools(
            self.ctx,
            calls,
            agent.toolbox.tools,
            in_order=not agent.parallel_tools,
            before=self._before if overrides(agent.hooks, "before_tool") or self._may_hand_over else None,
            after=self._after if overrides(agent.hooks, "after_tool") else None,
            takes=None if features is None else partial(features.check_part, agent.model.name),
        )
        self._has_called = True
        asked, self._handoff = self._handoff, None
        if asked is None:
            return None
        call, to = asked
        place = next(place for place, each in enumerate(calls) if each is call)
        return None if results[place].is_error else to

    @property
    def _may_hand_over(self) -> bool:
        return bool(self.agent.toolbox.handoffs or self.agent.toolbox.exits)

    async def _before(self, ctx: ToolContext, call: ToolCall) -> Any:
        given = await called(self.agent.hooks, "before_tool", ctx, call)
        request = call if given is None else given
        to = self._target(request) if isinstance(request, ToolCall) else None
        if to is not None:
            if self._handoff is not None:
                raise ToolError(ONE_HANDOFF)
            self._handoff = call, to
        return given

    def _target(self, call: ToolCall) -> Agent[Any] | str | None:
        toolbox = self.agent.toolbox
        return toolbox.handoffs.get(call.name) or toolbox.exits.get(call.name)

    async def _after(self, ctx: ToolContext, call: ToolCall, result: ToolResult) -> Any:
        return await called(self.agent.hooks, "after_tool", ctx, call, result)

    def _hand_off(self, agent: Agent[Any] | str) -> None:
        if isinstance(agent, str):
            self._is_left = True
            self.ctx.write(events.Handoff, from_agent=self.agent.name, to_agent=agent)
            return
        self.agent = agent
        self.ctx.follow(agent.approvals)
        self._repairs = agent.output_retries
        self._has_called = False
        self._compacting.handed_off()
        self.ctx.hand_off(agent.name)
