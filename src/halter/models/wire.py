"""What the HTTP policy asks of an adapter: a `Wire` for its model, a `Decoder` for each attempt."""

from __future__ import annotations

from typing import Protocol

from halter.core.ports import HttpRequest
from halter.core.reply import Reply
from halter.errors import ProviderError


class Decoder(Protocol):
    """One attempt's wire format: bytes in, deltas into its reply. `is_over`: its terminal frame has come."""

    is_over: bool

    def frame(self, data: bytes) -> None:
        """The data of one event. Raises `ProviderError` for an error frame, `MalformedStream` for no such format."""
        ...

    def whole(self, body: bytes) -> None:
        """A complete answer that was not streamed. Raises as `frame`."""
        ...


class Wire(Protocol):
    """What policy asks of an adapter."""

    @property
    def name(self) -> str:
        """The model, as events name it."""
        ...

    def begin(self, reply: Reply) -> Decoder: ...

    def resume(self, decoder: Decoder, error: ProviderError) -> HttpRequest | None:
        """How the rest of an answer is asked for whose connection has failed with `error`; `None` if it is lost."""
        ...

    async def give_up(self, decoder: Decoder) -> bool:
        """Nobody goes on with this answer: ends it at the server, too. `False` if it may still be at work there."""
        ...

    def describe_error(self, body: bytes) -> tuple[str, str | None]:
        """The message and the code in an error body of any shape."""
        ...

    def retry_delay(self, body: bytes) -> float | None:
        """Seconds that an error body asks to wait, for providers that say so there and not in a header."""
        ...
