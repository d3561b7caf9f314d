"""What everything made of runs does with them: start one, take its output, fail with its error, let it speak."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NoReturn, TypeAlias, TypeVar, cast

import msgspec

from halter.core.context import RunContext
from halter.core.run import Run
from halter.core.runnable import Runnable
from halter.core.scrubbing import scrubbed
from halter.core.sealing import surfaces
from halter.errors import ConfigurationError, ToolError
from halter.events import Failure, failure_of
from halter.messages import Message, Text, as_messages
from halter.outcome import CancelReason
from halter.tools.function import as_text

T = TypeVar("T")
OnFailure: TypeAlias = Literal["cancel", "wait", "collect"]


def start_part(ctx: RunContext, part: Runnable[T], input: Any, history: Sequence[Message]) -> Run[T]:
    """Starts a part with the context and the grace of what it is a part of."""
    return ctx.start(part, input, history=history, context=ctx.context, grace=ctx.grace)


async def output_of(run: Run[T]) -> T:
    """Its output, once it is over. Raises the error that it has failed with, and `RunCancelled` if it was stopped."""
    result = await run.finished()
    if result.is_failed and result.error is not None:
        raise result.error
    return cast("T", (await run).output)


async def error_of(run: Run[Any]) -> BaseException:
    """Why there is no output, as `_output_of` would raise it; what ends the process is raised."""
    try:
        await output_of(run)
    except BaseException as error:
        if surfaces(error):
            raise
        return error
    raise AssertionError("a run that has fallen has an error")


def has_fallen(run: Run[Any]) -> bool:
    """It has failed, or was stopped alone. One that was stopped with the composition is no failure."""
    result = run.outcome
    if result is None or result.is_completed:
        return False
    return result.cancellation is None or result.cancellation.reason is not CancelReason.PARENT_CANCELLED


async def fail_as(runs: Sequence[Run[Any]]) -> NoReturn:
    """Raises what the first has failed with, with a note on each of the others."""
    first, *others = [await error_of(run) for run in runs]
    for failure in map(failure_of, others):
        note = f"and another part: {failure.type}: {failure.message}"
        if note not in getattr(first, "__notes__", ()):  # it may be one object, raised by many runs
            first.add_note(note)
    raise first


def stop_all(runs: Iterable[Run[Any]], reason: CancelReason) -> None:
    """Stops those that are not over."""
    for run in runs:
        run.cancel(reason=reason)


def as_json(output: Any) -> str:
    """What one part has given, as text for the next. Raises `ConfigurationError` for what has no form in JSON."""
    if isinstance(output, tuple):  # what `Parallel` has collected may hold errors
        each = cast("tuple[Any, ...]", output)
        output = [_told(one) if isinstance(one, BaseException) else one for one in each]
    try:
        return as_text(output)
    except ToolError as error:
        raise ConfigurationError(f"{type(output).__name__} is handed over as JSON, and has no form in it") from error


# --- the conversation ---------------------------------------------------------------------------------------


def hear(ctx: RunContext) -> tuple[Message, ...]:
    """Takes the input down in the conversation, if it is something said; returns the history before it."""
    history, input = ctx.messages, ctx.input
    if isinstance(input, str | Message | list | tuple):
        try:
            said = as_messages(cast("Any", input))
        except ConfigurationError:  # a list of something else
            said = ()
        for message in said:
            ctx.say(message)
    return history


def say(ctx: RunContext, text: str) -> None:
    """What the composition says itself: in the stream, and in the conversation."""
    ctx.text(text)
    ctx.close_reply()


def keep_answer(ctx: RunContext, speaker: Run[Any]) -> None:
    """What the speaker has said is the composition's answer, in its conversation too, as far as it came."""
    result = speaker.outcome
    is_whole = result is not None and not any(message.interrupted for message in result.messages[-1:])
    if speaker.text:
        ctx.say(Message("assistant", (Text(speaker.text),), interrupted=not is_whole))


def _told(error: BaseException) -> Failure:
    """A part's failure as the next one's model gets it."""
    failure = failure_of(error)
    return msgspec.structs.replace(failure, message=scrubbed(failure.message))
