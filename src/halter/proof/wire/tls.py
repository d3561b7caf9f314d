"""The server's side of TLS as bytes in, bytes out.

Not the event loop's TLS: that one goes on reading the socket while its user has paused reading, and says
goodbye on its own. A provider that stops reading, or breaks off, must do exactly that.
"""

import ssl
from contextlib import suppress

READ_SIZE = 256 * 1024


class TlsLayer:
    """One connection's TLS. After each `receive`, what `outgoing()` returns is to be sent."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.has_ended = False
        self._encrypted_in = ssl.MemoryBIO()
        self._encrypted_out = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._encrypted_in, self._encrypted_out, server_side=True)
        self._is_established = False

    def receive(self, data: bytes) -> bytes:
        """Decrypt what came. Raises `ssl.SSLError`; sets `has_ended` at the peer's goodbye."""
        self._encrypted_in.write(data)
        with suppress(ssl.SSLWantReadError):
            if not self._is_established:
                self._tls.do_handshake()
                self._is_established = True
            return self._decrypt()
        return b""

    def seal(self, data: bytes) -> bytes:
        """Encrypt `data`."""
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]
        return self.outgoing()

    def goodbye(self) -> bytes:
        """The bytes of our close_notify."""
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        return self.outgoing()

    def outgoing(self) -> bytes:
        return self._encrypted_out.read()

    def _decrypt(self) -> bytes:
        pieces: list[bytes] = []
        with suppress(ssl.SSLWantReadError):
            while piece := self._read_some():
                pieces.append(piece)
            self.has_ended = True
        return b"".join(pieces)

    def _read_some(self) -> bytes:
        """Some plaintext; empty at the peer's close_notify. Raises `ssl.SSLWantReadError`."""
        try:
            return self._tls.read(READ_SIZE)
        except ssl.SSLZeroReturnError:
            return b""
