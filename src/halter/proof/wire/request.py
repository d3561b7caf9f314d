"""Between a connection and the request that it carries: what each needs of the other."""

from typing import Protocol


class Line(Protocol):
    """What a request needs of its connection."""

    def write(self, data: bytes) -> int:
        """Hand over `data`; returns its size on the wire."""
        ...

    @property
    def has_flushed(self) -> bool:
        """Whether the kernel has all that was written."""
        ...

    def ended(self, *, keep_alive: bool) -> None:
        """The answer has been written: on to the next request, or hang up."""
        ...

    def hang_up(self, *, politely: bool) -> None:
        """FIN once all is written; `politely`: after TLS's own goodbye."""
        ...

    def reset(self) -> None:
        """RST, now."""
        ...


class Request(Protocol):
    """What a connection needs of its current request."""

    def took(self, data: bytes) -> None:
        """Some of the body came."""
        ...

    def complete(self) -> None:
        """The body is complete: answer."""
        ...

    def pause(self) -> None:
        """The peer does not read as fast as is written."""
        ...

    def resume(self) -> None:
        """There is room again."""
        ...

    def drop(self) -> None:
        """The connection is gone."""
        ...


class _Nobody:
    """The current request of a connection that has none."""

    def took(self, data: bytes) -> None: ...
    def complete(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def drop(self) -> None: ...


NOBODY = _Nobody()
