"""Bytes ⇄ server-sent events (WHATWG HTML, section 9.2).

1. Any cut of the same bytes gives the same frames. 2. The time is linear in the bytes, also for a frame that comes one
byte at a time. 3. LF, CRLF and CR end a line; comments and unknown fields are skipped; the space after `data:` is
optional; several data lines are joined with LF.
"""

from __future__ import annotations

from halter.errors import MalformedStream

LARGEST_FRAME = 64 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_NO_FIELD = b":\n "  # how lines begin that say nothing
_LF, _CR = b"\n"[0], b"\r"[0]  # as numbers: `number in bytes` is ten times as fast as `bytes in bytes`


class FrameSplitter:
    """Feed it reads; it gives the data of each frame that is complete.

    The fields `event`, `id` and `retry` are not kept: every provider's data names its own type. Raises
    `MalformedStream` for a frame of more than `LARGEST_FRAME` bytes.
    """

    __slots__ = ("_at_start", "_held_cr", "_kept")

    def __init__(self) -> None:
        self._kept = bytearray()  # the beginning of a frame that is not complete
        self._held_cr = False
        self._at_start = True

    @property
    def has_begun(self) -> bool:
        """Whether part of a frame is here that is more than comments."""
        kept = self._kept
        return bool(kept) and (kept[0] not in _NO_FIELD or b"\ndata" in kept)

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the frames that this read completes, in order."""
        if chunk[-2:] == b"\n\n" and _CR not in chunk and not (self._kept or self._held_cr):  # nearly every read
            if chunk[:6] == b"data: ":
                frames = chunk[6:-2].split(b"\n\ndata: ")
                if chunk.count(b"\n") == 2 * len(frames):
                    self._at_start = False
                    return frames
            if not self._at_start:
                return _data_of(chunk[:-2].split(b"\n\n"))
        if self._held_cr or _CR in chunk:
            chunk = self._with_plain_line_ends(chunk)
        kept = self._kept
        before = len(kept)
        kept += chunk
        # The last byte kept before may be the first half of a separator.
        if _LF not in chunk or kept.find(b"\n\n", before - 1 if before else 0) < 0:
            if len(kept) > LARGEST_FRAME:
                raise MalformedStream(f"a frame of more than {LARGEST_FRAME} bytes")
            return []
        chunk = bytes(kept)
        kept.clear()
        if self._at_start:
            chunk = self._without_bom(chunk)
        frames = chunk.split(b"\n\n")
        kept += frames.pop()
        return _data_of(frames)

    def close(self) -> list[bytes]:
        """The data of a last frame that the end of the stream completes."""
        rest = bytes(self._kept)
        self._kept.clear()
        if self._at_start:
            rest = self._without_bom(rest)
        return _data_of([rest]) if rest else []

    def _with_plain_line_ends(self, chunk: bytes) -> bytes:
        """CRLF and CR become LF; a CR at the end waits for what follows it."""
        if self._held_cr:
            chunk = b"\r" + chunk
        self._held_cr = chunk.endswith(b"\r")
        if self._held_cr:
            chunk = chunk[:-1]
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _without_bom(self, chunk: bytes) -> bytes:
        self._at_start = False
        return chunk.removeprefix(_BOM)


def _data_of(frames: list[bytes]) -> list[bytes]:
    found: list[bytes] = []
    for frame in frames:
        if frame.startswith(b"data: ") and _LF not in frame:
            found.append(frame[6:])
        elif frame.startswith(b"event: ") and frame.count(_LF) == 1 and (at := frame.find(b"\ndata: ")) > 0:
            found.append(frame[at + 7 :])
        elif frame:
            _add_data(frame, found)
    return found


def _add_data(frame: bytes, found: list[bytes]) -> None:
    lines = [
        line[5:].removeprefix(b" ")
        for line in frame.split(b"\n")
        if line.startswith(b"data:") or line == b"data"  # a field name alone is that field with no value
    ]
    if lines:
        found.append(b"\n".join(lines))


def encode_frame(data: bytes, *, event: str | None = None, id: str | None = None) -> bytes:
    """One frame with this data, which must hold no line end (JSON does not)."""
    head = b"".join((f"id: {id}\n".encode() if id else b"", f"event: {event}\n".encode() if event else b""))
    return head + b"data: " + data + b"\n\n"
