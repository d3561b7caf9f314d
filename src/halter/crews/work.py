"""`Work`: one task in one run of a crew, until the guardrail accepts what its agent answers."""

from __future__ import annotations

from functools import partial
from typing import Any

from halter.agent import Agent
from halter.core.context import RunContext
from halter.core.run import Run
from halter.core.runnable import Runnable
from halter.crews.task import Task
from halter.errors import OutputInvalid
from halter.messages import Message, as_messages
from halter.parts import as_json, keep_answer, output_of


class Work(Runnable[Any]):
    """A task and who does it. Its input is what they are asked; its state is their conversation, as far as it came."""

    kind = "task"

    def __init__(self, task: Task, name: str, worker: Runnable[Any]) -> None:
        self.task = task
        self.worker = worker
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def check_price(self) -> None:
        self.worker.check_price()

    async def execute(self, ctx: RunContext) -> Any:
        history, said = ctx.messages, ctx.input
        while True:
            attempt = ctx.begin_step()
            output, told = await self._attempt(ctx, history, said)
            reason = await self.task.refusal_of(output, ctx)
            ctx.end_step()
            if reason is None:
                return output
            if attempt > self.task.guardrail_retries:
                raise OutputInvalid(
                    f"the guardrail of {self.name!r} does not accept the answer: {reason}",
                    text=as_json(output),
                    reasons=(reason,),
                )
            history, said = self._again(ctx, history, told, reason)
            ctx.keep((*told, Message.user(said)) if told else None)
            ctx.before_next_step()

    async def _attempt(
        self, ctx: RunContext, history: tuple[Message, ...], said: str | Message
    ) -> tuple[Any, tuple[Message, ...]]:
        """The output, and the conversation behind it: of agents, others are asked anew."""
        run = ctx.start(self.worker, said, history=history, context=ctx.context, grace=ctx.grace)
        ctx.speak_through(run)
        ctx.at_end(partial(self._keep, ctx, run, said))
        output = await output_of(run)
        ctx.at_end(None)
        return output, self._keep(ctx, run, said)

    def _keep(self, ctx: RunContext, run: Run[Any], said: str | Message) -> tuple[Message, ...]:
        """Keeps what an attempt has come to; returns the conversation."""
        take_down(ctx, run, said)
        told = run.outcome.messages if run.outcome is not None and isinstance(self.worker, Agent) else ()
        ctx.keep(told or None)
        return told

    def _again(
        self, ctx: RunContext, history: tuple[Message, ...], told: tuple[Message, ...], reason: str
    ) -> tuple[tuple[Message, ...], str]:
        """The conversation, and what to say in it, after an answer that was not accepted."""
        correction = f"Your answer was not accepted: {reason}\nAnswer again, with the whole corrected answer."
        return (told, correction) if told else (history, f"{ctx.input}\n\n{correction}")

    def __repr__(self) -> str:
        return f"<task {self.name}>"


def take_down(ctx: RunContext, run: Run[Any], said: str | Message) -> None:
    """What was said to a child, and what it has answered, become part of the conversation."""
    if run.text:
        for message in as_messages(said):
            ctx.say(message)
        keep_answer(ctx, run)
