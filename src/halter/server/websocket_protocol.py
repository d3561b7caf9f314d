"""uvicorn's WebSocket protocol, with an end to its patience for floods of frames."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State

PIECE = 2_048  # bytes that are parsed before it is looked again whether this is a flood: 340 frames at most
MOST_WAITING = 256  # frames that the app has not taken yet
MOST_PARTS = 500  # in one second: frames that are no whole message, such as pings and fragments
POLICY = 1008
LEAVING = 2.0  # seconds that a client has to read why its connection ends


class GuardedSockets(WebSocketsSansIOProtocol):
    """Closes a connection with 1008 that sends more frames than anybody can need.

    A read of 256 KiB holds 40,000 frames, and parsing them took the loop, and with it all other clients, a second.
    """

    _is_refused = False
    _parts = 0
    _second = 0.0

    def data_received(self, data: bytes) -> None:
        for at in range(0, len(data), PIECE):
            if self._is_refused:
                return
            super().data_received(data[at : at + PIECE])

    def handle_events(self) -> None:
        self._parts += sum(not _is_message(event) for event in self.conn.events)
        super().handle_events()
        if self.queue.qsize() > MOST_WAITING:
            self._refuse(f"more than {MOST_WAITING} frames wait to be read: send fewer at once")
        elif self._parts > MOST_PARTS:
            self._count_anew()

    def _count_anew(self) -> None:
        """More than a second may have: too many, unless it took longer than that."""
        now = self.loop.time()
        if now - self._second < 1.0:
            self._refuse(f"more than {MOST_PARTS} pings and fragments in a second")
        self._second, self._parts = now, 0

    def _refuse(self, why: str) -> None:
        self._is_refused = True
        transport: Any = self.transport
        if self.conn.state is State.OPEN:
            self.conn.send_close(POLICY, why)
            transport.write(b"".join(self.conn.data_to_send()))
        self.stop_keepalive()
        self.close_sent = True
        self.queue.put_nowait({"type": "websocket.disconnect", "code": POLICY})
        # What it still sends is read and dropped: closed at once, it would see a reset instead of the reason.
        transport.resume_reading()
        self.loop.call_later(LEAVING, transport.abort)


def _is_message(event: object) -> bool:
    return not isinstance(event, Frame) or (event.fin and event.opcode in (Opcode.TEXT, Opcode.BINARY))
