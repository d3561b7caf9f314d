"""The compactions of one run of an agent.

1. All that is done is done at the end, by one `ctx.compact`: stopped or failed on the way, nothing has changed. 2. A
summary that was refused, cut off or is not shorter is never used. 3. If there is no summary before a request, the
request is sent as it is; if there is none after a refusal, that is raised.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from halter.compaction.plan import Plan, plan_for
from halter.compaction.settings import ON_SESSIONS, Compaction
from halter.compaction.size import Gauge, window_of
from halter.compaction.summary import Summarising, longest_summary, thinking
from halter.compaction.told import Told
from halter.compaction.transcript import pieces, transcript
from halter.core.context import RunContext
from halter.core.sealing import surfaces
from halter.core.settings import settings as process_settings
from halter.errors import ContextTooLong, OutputInvalid, RunCancelled
from halter.events import CompactionReason, failure_of
from halter.messages import Message
from halter.request import ModelRequest

if TYPE_CHECKING:
    from halter.agent import Agent

AGAIN = 1.1  # times the size at which nothing could be done: then it is looked at again
SPARE = 1.1  # of what a request was too long by: estimates are estimates
FILLED = 0.8  # of a summarising model's window, or of a request that was refused: estimates are estimates
_logger = logging.getLogger("halter")


class Compacting:
    """What one run knows of its size. Home loop only."""

    def __init__(self, ctx: RunContext) -> None:
        self.told = Told(ctx)
        self._ctx = ctx
        self._gauge = Gauge()
        self._windows: dict[str, int] = {}  # by model, as their providers have said in this run
        self._not_below = 0

    def answered(self, request: ModelRequest, answer: Message) -> None:
        """The model has answered this request; the answer is part of the conversation."""
        self._gauge.answered(request, len(self.told.messages()) - 1, answer)

    def handed_off(self) -> None:
        """Another agent goes on: another model, other instructions."""
        self._gauge = Gauge()
        self._not_below = 0

    async def before_request(self, agent: Agent[Any], request: ModelRequest) -> bool:
        """Compacts if the request is larger than it should be. True: the conversation is told otherwise now."""
        settings = self._settings(agent)
        window = None if settings is None else self._window(agent, settings)
        most = None if settings is None else settings.most(window)
        if settings is None or most is None:
            return False
        told = self.told.messages()
        if self._gauge.is_below(most, request, told):
            return False
        size = self._gauge.of(request, told)
        if size <= max(most, self._not_below):
            return False
        self._gauge.refresh()
        goal = settings.goal(window or most)
        error = await self._compact(agent, settings, "threshold", size, goal, (goal + most) // 2, window)
        self._not_below = 0 if error is None else int(size * AGAIN)
        return error is None

    async def after_refusal(self, agent: Agent[Any], request: ModelRequest, refusal: ContextTooLong) -> bool:
        """Compacts because the provider has refused the request. True: it may be asked again.

        Else the refusal has a note on why nothing could be done.
        """
        settings = self._settings(agent)
        if settings is None:
            return False
        if refusal.limit is not None:
            self._windows[agent.model.name] = refusal.limit
        window = self._window(agent, settings)
        size = self._gauge.of(request, self.told.messages())
        if window is not None and size < window:
            self._gauge.at_least(window, size)
            size = window
        most = min(size, window or size)
        goal = min(settings.goal(most), most // 2)
        if refusal.limit is not None and refusal.tokens is not None:
            goal = min(goal, max(0, size - int(SPARE * (refusal.tokens - refusal.limit))))
        error = await self._compact(agent, settings, "overflow", size, goal, (goal + most) // 2, window)
        if error is not None:
            refusal.add_note(f"the conversation was not compacted: {error}")
        return error is None

    def _settings(self, agent: Agent[Any]) -> Compaction | None:
        """What holds for this run. What its agent was not given holds where the conversation outlives the run."""
        keeping = self._ctx._execution.keeping
        is_kept = keeping is not None and keeping.turn.session_id is not None
        return None if agent.compaction is ON_SESSIONS and not is_kept else agent.compaction

    def _window(self, agent: Agent[Any], settings: Compaction) -> int | None:
        """What its provider has said counts more than what it was thought to be."""
        return self._windows.get(agent.model.name) or settings.window or window_of(agent.model)

    # --- one compaction -------------------------------------------------------------------------------------

    async def _compact(
        self,
        agent: Agent[Any],
        settings: Compaction,
        reason: CompactionReason,
        size: int,
        goal: int,
        most: int,
        window: int | None,
    ) -> BaseException | str | None:
        """`None`: it is done. Else why it is not."""
        ctx, gauge, view = self._ctx, self._gauge, self.told.view()
        overhead = max(0, size - sum(map(gauge.of_message, view)))
        plan = plan_for(
            view,
            size_of=gauge.of_message,
            overhead=overhead,
            goal=goal,
            most=most,
            keep_turns=settings.keep_turns,
            max_tool_result=settings.max_tool_result,
            begun=self.told.begun(),
        )
        if plan is None:
            return "there is nothing in it that could be left out"
        ctx.begin_compaction(reason, tokens=size, messages=len(view))
        try:
            text = await self._summarised(agent, settings, plan, window, size) if plan.summarised else None
            summary = None if text is None else self._checked(plan, text)
        except RunCancelled as stopped:
            ctx.end_compaction("cancelled", error=failure_of(stopped))
            return stopped
        except Exception as error:
            ctx.end_compaction("failed", error=failure_of(error))
            _logger.warning("the conversation of run %s is not compacted: %s", ctx.run_id, error)
            return error
        upto, instead = self.told.place(plan.upto, plan.messages(summary))
        await ctx.compact(upto, instead)
        gauge.forget()
        after = overhead + sum(map(gauge.of_message, self.told.view()))
        ctx.end_compaction("ok", tokens_after=after, upto=upto, trimmed=plan.trimmed, summary=text)
        return None

    async def _summarised(
        self, agent: Agent[Any], settings: Compaction, plan: Plan, window: int | None, size: int
    ) -> str:
        """What a model makes of it, in a run of its own. Raises what that has failed with."""
        model = settings.model or agent.model
        theirs = window if model is agent.model else window_of(model)
        answer = longest_summary(theirs)
        room = max(1, int((theirs or size) * FILLED))
        if theirs is not None:
            room = max(1, theirs // 4, room - answer - thinking(model))
        texts = transcript(plan.summarised, longest=settings.max_tool_result)
        parts = pieces(texts, most=room, before=min(answer // 2, room // 3), size_of=self._gauge.of_text)
        run = self._ctx.start(Summarising(model, settings.template, parts, window=theirs), grace=self._ctx.grace)
        result = await run.finished()
        if result.is_completed and result.output is not None:
            return result.output
        if result.error is not None and (result.is_failed or surfaces(result.error)):
            raise result.error
        raise RunCancelled(result.why(), result)

    def _checked(self, plan: Plan, text: str) -> Message:
        summary = plan.summary(text, marker=process_settings().stop_marker)
        if self._gauge.of_message(summary) >= plan.replaced:
            why = "it is not shorter than what it is to replace"
            raise OutputInvalid(f"the answer is no summary: {why}", text=text, reasons=(why,))
        return summary
