"""Events as frames of a stream of server-sent events, several in one piece of bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Protocol

import msgspec

from halter import events
from halter.core.fold import pack, unpack
from halter.errors import ConfigurationError
from halter.events import Event
from halter.server.names import Names
from halter.snapshot import Snapshot

MERGE_FROM = 128  # events: a reader that finds a whole batch is behind, and gets neighbouring deltas as one
PING = b": ping\n\n"


class StreamFormat(Protocol):
    """How a run is shown to one kind of client.

    `headers`: of each response. `has_cursors`: its frames have ids that a client may come back with; without them each
    connection begins with the run's first event. `is_paused`: the response is over, though the run is not: it waits
    for an answer, which the client brings with its next request.
    """

    media_type: str
    headers: ClassVar[Mapping[str, str]]
    has_cursors: ClassVar[bool]

    @property
    def is_paused(self) -> bool: ...

    def snapshot(self, snapshot: Snapshot, *, gap: tuple[int, int | None] | None) -> bytes:
        """The first bytes of a connection. `gap`: the events between the client's cursor and now that are lost."""
        ...

    def batch(self, found: Sequence[Event]) -> bytes:
        """The bytes of these events, in their order."""
        ...

    def end(self) -> bytes:
        """The last bytes of a connection, after the batch with the run's end. Empty pieces are not written."""
        ...


class HalterFormat:
    """Halter's own frames: `id: <epoch>.<seq>`, `event: <type>`, `data: <the event as JSON>`.

    Args:
        epoch: of the log, part of each id.
        names: of the tenant who reads.
    """

    media_type = "text/event-stream"
    headers: ClassVar[Mapping[str, str]] = {}
    has_cursors: ClassVar[bool] = True
    is_paused = False

    def __init__(self, epoch: int, names: Names) -> None:
        self._epoch = epoch
        self._names = names
        self._heads: dict[type[Event], bytes] = {}
        self._id = b"id: %d." % epoch

    def snapshot(self, snapshot: Snapshot, *, gap: tuple[int, int | None] | None) -> bytes:
        cursor = f"{self._epoch}.{snapshot.seq}"
        frames = b""
        if gap is not None:
            lost = {"type": "gap", "from": gap[0], "to": gap[1]}
            frames += b"event: gap\ndata: " + msgspec.json.encode(lost) + b"\n\n"
        state = self._names.in_snapshot(snapshot)
        fields = {"type": "snapshot", "cursor": cursor, **msgspec.structs.asdict(state)}
        return frames + b"id: %s\nevent: snapshot\ndata: %s\n\n" % (cursor.encode(), events.encode_any(fields))

    def batch(self, found: Sequence[Event]) -> bytes:
        buffer = bytearray()
        for event in merged(found):
            event = self._names.in_event(event)
            buffer += self._id
            buffer += b"%d" % event.seq
            buffer += self._heads.get(type(event)) or self._head(event)
            buffer += events.encode(event)
            buffer += b"\n\n"
        return bytes(buffer)

    def end(self) -> bytes:
        return b""

    def _head(self, event: Event) -> bytes:
        head = self._heads[type(event)] = f"\nevent: {event.type}\ndata: ".encode()
        return head


def merged(found: Sequence[Event]) -> Sequence[Event]:
    """The events as they are; of a whole batch, neighbouring deltas of one message as one."""
    if len(found) < MERGE_FROM:
        return found
    return [each for entry in pack(found) for each in unpack(entry, 0)]


def _ai_sdk(_: int, names: Names) -> StreamFormat:
    from halter.server.fronts.ai_sdk_frames import AiSdkFormat

    return AiSdkFormat(names)


def _ag_ui(_: int, names: Names) -> StreamFormat:
    from halter.server.fronts.ag_ui_frames import AgUiFormat

    return AgUiFormat(names)


FORMATS: dict[str, Callable[[int, Names], StreamFormat]] = {"halter": HalterFormat, "ai-sdk": _ai_sdk, "ag-ui": _ag_ui}


def stream_format(name: str, epoch: int, names: Names | None = None) -> StreamFormat:
    """The format of this name, for a reader with these names. Raises `ConfigurationError` for an unknown one."""
    made = FORMATS.get(name)
    if made is None:
        raise ConfigurationError(f"unknown format {name!r}; formats are {', '.join(FORMATS)}")
    return made(epoch, names or Names())
