"""What a wire format must know: how a provider's questions are read and its answers are written.

A format makes frames; it knows neither HTTP nor time. One class per format, registered in `provider.py` by
its endpoint.
"""

from collections.abc import Callable
from typing import Literal, Protocol, runtime_checkable

import msgspec

FinishReason = Literal["stop", "tool_calls", "length"]


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What the provider has understood of a request.

    `follow_up`: it is about an earlier answer, and asks for its rest, from the token `first` on, or ends it.
    """

    model: str
    stream: bool = False
    wants_usage: bool = False
    prompt: str = ""
    has_tool_result: bool = False
    follow_up: Literal["", "rest", "cancel"] = ""
    first: int = 0


class AskError(Exception):
    """The body is not a question in this format."""


class Said(msgspec.Struct):
    """An answer that is collected instead of streamed."""

    text: list[str] = []
    tool: str | None = None
    arguments: str = ""
    tokens: int = 0
    is_cut: bool = False

    @property
    def reason(self) -> FinishReason:
        if self.is_cut:
            return "length"
        return "stop" if self.tool is None else "tool_calls"


class WireFormat(Protocol):
    """One provider's format. All frames are whole SSE frames that end with LF LF; bodies are JSON."""

    def read(self, body: bytes) -> Ask:
        """Understand a request's body. Raises `AskError`."""
        ...

    def opening(self, ask: Ask) -> bytes:
        """The frames before the first token; may be empty."""
        ...

    def token_encoder(self, ask: Ask) -> Callable[[str], bytes]:
        """A function that makes the frame of one token; it is called for each."""
        ...

    def tool_fragment(self, ask: Ask, call_id: str, name: str, fragment: str, opens: bool) -> bytes:
        """The frame with one fragment of a tool call's arguments."""
        ...

    def finish(self, ask: Ask, reason: FinishReason, tokens: int) -> bytes:
        """The frames with the reason of the end and, if asked for, the usage."""
        ...

    def done(self) -> bytes:
        """The terminal frame; may be empty."""
        ...

    def error_frame(self) -> bytes:
        """A frame that reports an error inside a stream."""
        ...

    def refusal(self, status: int, message: str) -> bytes:
        """The body of an error status."""
        ...

    def whole(self, ask: Ask, said: Said, call_id: str, finished: bool) -> bytes:
        """The body of an answer that is not streamed; not `finished`: without its reason."""
        ...


@runtime_checkable
class Reciting(Protocol):
    """A format whose last frames tell the whole answer again, and in which one can ask for the rest of an answer."""

    def read_target(self, target: str) -> Ask | None:
        """Understand a request that has no body, by its URL; `None` if it has one. Raises `AskError`."""
        ...

    def recite(self, ask: Ask, said: Said, call_id: str) -> bytes:
        """The frames of `finish`, for all that was said."""
        ...
