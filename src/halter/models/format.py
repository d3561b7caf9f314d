"""What the wire formats of all providers share: JSON that may be broken, errors without the key."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from halter.core.ports import HttpRequest
from halter.core.reply import Reply
from halter.errors import MalformedStream, ProviderError, RateLimited
from halter.models.error_frames import describe_body, error_from
from halter.models.lenient_json import read_json
from halter.models.wire import Decoder


@contextmanager
def all_there_is() -> Generator[None]:
    """For an error that is the whole body of a 200: asked again, the server would say it again, unless it says else."""
    try:
        yield
    except ProviderError as error:
        if error.status is None and not isinstance(error, RateLimited):
            error.retryable = False
        raise


class Format:
    """One model's format, a `Wire` of `http.py`; an adapter adds `begin(reply)`.

    `provider`: how its `Opaque` parts are marked; they go back to the same mark only. `key`: kept out of every error.
    """

    __slots__ = ("_key", "name", "provider")

    def __init__(self, name: str, *, provider: str, key: str = "") -> None:
        self.name = name
        self.provider = provider
        self._key = key

    def begin(self, reply: Reply) -> Decoder:
        """The decoder of one attempt."""
        raise NotImplementedError

    def resume(self, decoder: Decoder, error: ProviderError) -> HttpRequest | None:
        """How the rest of an answer is asked for; most providers have forgotten it."""
        return None

    async def give_up(self, decoder: Decoder) -> bool:
        """Ends an answer at the server; with most providers the connection's end was that."""
        return True

    def describe_error(self, body: bytes) -> tuple[str, str | None]:
        message, code = describe_body(body)
        return self.redacted(message), code

    def retry_delay(self, body: bytes) -> float | None:
        """Seconds that an error body asks to wait; most providers say so in a header."""
        return None

    def redacted(self, text: str) -> str:
        """The text without the key, which some servers repeat."""
        return text.replace(self._key, "[key]") if self._key else text

    def error(self, found: Any) -> ProviderError:
        """The error that a frame reports, in any shape."""
        error = error_from(found, self.name)
        error.args = (self.redacted(str(error)),)
        return error

    def read(self, data: bytes) -> Any:
        """The JSON value in `data`. Raises `MalformedStream` that shows its beginning."""
        try:
            return read_json(data)
        except ValueError as error:
            raise MalformedStream(f"{self.name}: no JSON: {self.beginning(data)}") from error

    def beginning(self, data: bytes) -> str:
        """How it begins; all of it, since it is shortened where the last secrets are taken out of it."""
        return self.redacted(data.decode("utf-8", "replace")) or "an empty body"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"
