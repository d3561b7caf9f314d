"""The run that writes a summary: it asks a model and nothing else, so that a stop ends it as any other run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from halter.compaction.settings import CONVERSATION
from halter.compaction.transcript import SUMMARY, Line, unicode
from halter.core.context import RunContext
from halter.core.ports import Model
from halter.core.runnable import Runnable
from halter.errors import OutputInvalid
from halter.features import Features
from halter.messages import PAUSED, Message, checked_message
from halter.models.prices import max_output
from halter.models.route import Fallback
from halter.outputs import broken_off
from halter.request import ModelRequest, Settings

LONGEST: Final = 8_192  # tokens that a summary may take
THINKING: Final = 24_576  # where its settings say how hard a model thinks, and not how long


class Summarising(Runnable[str]):
    """One summary of a conversation in `pieces`: each is summarised together with the summary of those before it.

    `window`: tokens that the model takes, if that is known.
    """

    kind = "compaction"
    _name = "compaction"
    _description = "Summarises the earlier part of a conversation."

    def __init__(self, model: Model, template: str, pieces: Sequence[str], *, window: int | None) -> None:
        self._model = model
        self._template = template
        self._pieces = tuple(pieces)
        self._settings = _settings(model, window)

    @property
    def model_name(self) -> str:
        return self._model.name

    async def execute(self, ctx: RunContext) -> str:
        """The summary. Raises `ProviderError`: `OutputInvalid` for what is none, or not a whole one."""
        summary = ""
        for piece in self._pieces:
            before = f"{Line(by=SUMMARY, text=unicode(summary))}\n" if summary else ""
            asked = self._template.replace(CONVERSATION, f"{before}{piece}")
            request = ModelRequest(messages=(Message.user(asked),), settings=self._settings)
            summary = _whole(checked_message(await self._model.respond(request, ctx)))
        return summary


def longest_summary(window: int | None) -> int:
    """Tokens that a summary may take."""
    return LONGEST if window is None else max(1, min(LONGEST, window // 4))


def _settings(model: Model, window: int | None) -> Settings:
    features = getattr(model, "features", None)
    if isinstance(features, Features) and "max_output_tokens" not in features.settings:
        return Settings()
    longest = longest_summary(window) + thinking(model)
    return Settings(max_output_tokens=min([longest, *_longest_answers(model)]))


def thinking(model: Model) -> int:
    """Tokens that the model thinks by its own settings: they count as its answer, and may be more than a summary."""
    if isinstance(model, Fallback):
        return max(map(thinking, model.models))
    own = getattr(model, "settings", None)
    if not isinstance(own, Settings):
        return 0
    if own.reasoning_tokens is None and own.reasoning_effort is not None:
        return THINKING
    return own.reasoning_tokens or 0


def _longest_answers(model: Model) -> list[int]:
    """The most output tokens of each model that may be asked, as far as that is known."""
    names = [each.name for each in model.models] if isinstance(model, Fallback) else [model.name]
    return [most for most in map(max_output, names) if most is not None]


def _whole(answer: Message) -> str:
    """Half a summary would be taken for a whole one ever after."""
    broken = broken_off(answer)
    if broken is not None:
        raise broken
    text = answer.text.strip()
    if answer.interrupted or answer.finish_reason == PAUSED:
        raise _unusable("it was cut off", text)
    if not text:
        raise _unusable("it is empty", text)
    return text


def _unusable(why: str, text: str) -> OutputInvalid:
    return OutputInvalid(f"the answer is no summary: {why}", text=text, reasons=(why,))
