"""The turns of one run of an agent: ask the model, run the tools that it calls, and again, until it has answered."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from halter import checked, events
from halter.codec import Unfit
from halter.core.calls import call_tools
from halter.core.context import RunContext
from halter.core.history import for_model
from halter.core.tool_context import ToolContext
from halter.errors import ToolError, TurnsExhausted
from halter.hooks import called, overrides
from halter.messages import Message, ToolCall, ToolResult
from halter.request import ModelRequest

if TYPE_CHECKING:
    from halter.agent import Agent

ONE_HANDOFF = "There is another handoff in this answer, and only the first one counts."


class Turns:
    """All that changes while an agent runs. `agent`: who speaks; after a handoff, another."""

    def __init__(self, agent: Agent[Any], ctx: RunContext) -> None:
        self.agent = agent
        self.ctx = ctx
        self._most = agent.max_turns
        self._repairs = agent.output_retries
        self._has_called = False
        self._told: list[Message] = []  # the conversation as the model gets it, so far
        self._known = 0  # messages of the conversation that are in it
        self._handoff: tuple[ToolCall, Agent[Any] | str] | None = None  # that the last answer has asked for
        self._is_left = False  # handed over to somebody outside

    async def run(self) -> Any:
        """Turns until there is an answer, and nobody has sent anything more; the answer as a value."""
        ctx = self.ctx
        for message in ctx.input:
            ctx.say(message)
        while True:
            step = ctx.begin_step()
            answer = await self._ask()
            to = await self._call(answer) if answer.tool_calls else None
            ctx.end_step()
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
            elif not ctx.steered() or step >= self._most:
                done, value = self._read(answer, is_last=step >= self._most)
                if done:
                    return value
                correction = value
            ctx.before_next_step()
            if correction is not None:
                ctx.say(correction)

    # --- the model ------------------------------------------------------------------------------------------

    async def _ask(self) -> Message:
        agent, ctx = self.agent, self.ctx
        request = await self._request()
        request = await called(agent.hooks, "before_model", ctx, request) or request
        answer = await agent.model.respond(request, ctx)
        await called(agent.hooks, "after_model", ctx, answer)
        return answer

    async def _request(self) -> ModelRequest:
        agent = self.agent
        told = await self._instructions()
        system = (Message.system(told),) if told else ()
        return ModelRequest(
            messages=(*system, *self._conversation()),
            settings=agent.settings,
            tools=agent.toolbox.specs,
            # A choice that is forced holds until a tool has been called: else the agent could never answer.
            tool_choice=None if self._has_called else agent.tool_choice,
            output=agent.schema,
        )

    def _conversation(self) -> list[Message]:
        """What came before this run is repaired once; what it adds is whole."""
        messages = self.ctx.messages
        new = messages[self._known :]
        self._told.extend(new if self._known else for_model(new))
        self._known = len(messages)
        return self._told

    async def _instructions(self) -> str:
        given = self.agent.instructions
        if isinstance(given, str):
            return given
        told = given(self.ctx)
        return checked.text("what instructions() returns", await told if inspect.isawaitable(told) else told)

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

    async def _call(self, answer: Message) -> Agent[Any] | str | None:
        """Runs its calls; to whom one of them has handed over, if any."""
        agent, calls = self.agent, answer.tool_calls
        results = await call_tools(
            self.ctx,
            calls,
            agent.toolbox.tools,
            in_order=not agent.parallel_tools,
            before=self._before if overrides(agent.hooks, "before_tool") or self._may_hand_over else None,
            after=self._after if overrides(agent.hooks, "after_tool") else None,
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
        self._repairs = agent.output_retries
        self._has_called = False
        self.ctx.hand_off(agent.name)
