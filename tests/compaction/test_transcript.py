"""A conversation as text for the model that summarises it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from halter.compaction.transcript import STOPPED, pieces, transcript
from halter.messages import File, Image, Message, Opaque, Reasoning, Text, ToolCall, ToolResult


def test_everything_that_was_said_and_done_is_in_it_by_name() -> None:
    """Who said it, what was called, what came of it; thinking and what only a provider understands are not."""
    messages = [
        Message.user("Look ", Image(url="https://x.test/a.png"), File(id="f1", name="a.pdf"), name="Anna"),
        Message(
            "assistant",
            (Reasoning("secret thought"), Opaque("p", {"x": 1}), Text("I look."), ToolCall("1", "look", '{"at":"it"}')),
        ),
        Message("tool", (ToolResult("1", "a treasure"),)),
        Message("assistant", (ToolCall("2", "dig", ""),)),
        Message("tool", (ToolResult("2", "no spade", is_error=True), ToolResult("9", "lost"))),
        Message("assistant", (Text("It i"),), interrupted=True),
    ]
    assert transcript(messages, longest=400) == [
        "User (Anna):\nLook \n[an image]\n[the file a.pdf]",
        'Assistant:\nI look.\nAssistant called look with {"at":"it"}',
        "Result of look:\na treasure",
        "Assistant called dig with {}",
        "Error of dig:\nno spade\nResult of a tool:\nlost",
        f"Assistant:\nIt i\n{STOPPED}",
    ]


def test_what_says_nothing_is_left_out() -> None:
    assert transcript([Message("assistant", (Reasoning("hm"),)), Message("user", ())], longest=400) == []


def test_long_arguments_and_results_are_shortened() -> None:
    """A file that was written is in the arguments."""
    messages = [
        Message("assistant", (ToolCall("1", "write", '"' + "x" * 9_000 + '"'),)),
        Message("tool", (ToolResult("1", "y" * 9_000),)),
    ]
    assert all(len(text) < 600 for text in transcript(messages, longest=400))


@given(st.lists(st.text("ab \n", max_size=200), max_size=20), st.integers(1, 100))
def test_pieces_fit_and_hold_everything_in_order(texts: list[str], most: int) -> None:
    """A text that is too long by itself is cut in its middle; nothing else is lost."""
    size_of = len
    found = pieces(texts, most=most, size_of=size_of)
    joined = "\n\n".join(found)
    at = 0
    for text in texts:
        if len(text) <= most:
            assert text in joined[at:]
            at = joined.index(text, at)
    if all(len(text) < most for text in texts):
        assert all(len(piece) <= most + 2 * len(texts) for piece in found)


def test_one_piece_has_all_the_room_and_several_leave_some_for_the_summary_before() -> None:
    texts = ["x" * 30, "y" * 30, "z" * 30]
    assert pieces(texts, most=100, before=40, size_of=len) == ["\n\n".join(texts)]
    assert pieces(texts, most=90, before=40, size_of=len) == texts
