"""What the model is told of a conversation, over any number of compactions."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from halter.compaction.told import Told
from halter.core.history import for_model
from halter.messages import Message

from .talk import applied, conversations, plan, total


class _Ctx:
    """As much of a run's context as is looked at."""

    def __init__(self, messages: list[Message]) -> None:
        self.said = messages
        self.compaction: tuple[int, tuple[Message, ...]] | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(self.said)


def told_by(ctx: _Ctx) -> Told:
    return Told(cast("Any", ctx))


@settings(max_examples=60, deadline=None)
@given(st.lists(conversations(), min_size=1, max_size=4), st.floats(0.1, 0.9))
def test_a_compaction_of_a_compaction_is_told_as_if_it_were_the_first(talks: list[list[Message]], share: float) -> None:
    """However they follow each other, and wherever the later one cuts: in terms of the conversation it comes out so."""
    ctx = _Ctx([])
    told = told_by(ctx)
    for talk in talks:
        ctx.said += talk
        view = told.view()
        made = plan(view, int(total(view) * share), keep_turns=1)
        if made is None:
            continue
        wanted = applied(view, made)
        summary = made.summary("In short.") if made.summarised else None
        ctx.compaction = told.place(made.upto, made.messages(summary))
        assert told.view() == wanted
        assert tuple(told.messages()) == for_model(wanted)


def test_it_grows_with_the_conversation_and_is_repaired_once() -> None:
    """The list stays the same one until something was compacted."""
    ctx = _Ctx([Message.user("hi")])
    told = told_by(ctx)
    first = told.messages()
    ctx.said += [Message.assistant("hello"), Message.user("well?")]
    assert told.messages() is first
    assert first == ctx.said
    ctx.compaction = 2, (Message.user("short"),)
    assert told.messages() == [Message.user("short"), Message.user("well?")]
    ctx.said.append(Message.assistant("yes"))
    assert told.messages()[-1] == Message.assistant("yes")
    assert len(told.messages()) == 3
