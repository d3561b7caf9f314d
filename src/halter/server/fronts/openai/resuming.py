"""A stream of Responses from `starting_after` on: the event of the log at which it continues."""

from __future__ import annotations

from msgspec.structs import replace

from halter import events
from halter.events import Event
from halter.server.fronts.openai.response_format import ResponseFormat
from halter.server.port import RunKey
from halter.server.run_stream import no_run
from halter.server.server import Server
from halter.server.stream import Cursor

START = Cursor(0)


async def resumed(server: Server, key: RunKey, format: ResponseFormat, after: int) -> tuple[ResponseFormat, Cursor]:
    """The format as it was after the event with the number `after`, and where the log continues.

    Args:
        server: whose run it is.
        key: the run.
        format: of a stream from the start.
        after: the number of the last event that the client has.

    Raises:
        Problem: 404 for an unknown run.
    """
    feed = await server.feed(key)
    if feed is None:
        raise no_run(key.id)
    info = await server.store.get(key)
    newest = 0 if info is None else info.seq
    seq = 0
    try:
        opening = await feed.open(0)
        is_whole = opening.gap is None and opening.snapshot.seq == 0
        while is_whole and seq < newest and (found := await feed.next_batch()):
            for event in found:
                before = format.at(-1)
                format.batch((event,))
                if format.number > after + 1:
                    return _within(before, event, after)
                seq = event.seq
    finally:
        feed.close()
    return format.at(after), Cursor(seq) if is_whole else START


def _within(before: ResponseFormat, event: Event, after: int) -> tuple[ResponseFormat, Cursor]:
    """The place inside an event that the client has a part of."""
    if not isinstance(event, events.TextDelta | events.ReasoningDelta) or event.seq == event.first_seq:
        return before.at(after), Cursor(event.seq - 1)
    for seq in range(event.first_seq, event.seq):
        part = before.at(-1)
        part.batch((replace(event, seq=seq),))
        if part.number > after:
            return (part.at(after), Cursor(seq)) if part.number == after + 1 else (before.at(after), Cursor(seq - 1))
    return before.at(after), Cursor(event.seq - 1)
