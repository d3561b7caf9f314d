"""Every exception of Halter, in one tree, split by whose fault it is.

Your mistake (`UsageError`), the provider refused (`ProviderRefused`), the provider broke (`ProviderBroke`), or the
run ended (`RunEnded`). Facts are attributes (`run_id`, `retry_after`); messages say what happened and what to do.
`asyncio.CancelledError` is never translated into one of these unless Halter itself caused it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from halter.outcome import Cancellation, RunResult


class HalterError(Exception):
    """The root of everything that Halter raises on its own account."""


# --- your mistake -------------------------------------------------------------------------------------------


class UsageError(HalterError):
    """Halter was called in a way that cannot work; nothing was started."""


class ConfigurationError(UsageError, ValueError):
    """A definition or an argument is wrong: an unknown model name, a missing key, a negative time-out."""


class SandboxUnavailable(ConfigurationError):
    """The sandbox that was asked for cannot be had on this machine, or cannot be made safe; no program was started."""


class BusyError(UsageError):
    """Two readers on one cursor at once, or a run that is asked to wait for itself."""


class AlreadyAnswered(UsageError):
    """A question of a run was answered a second time; its first answer counts."""


class BlockingCallError(UsageError):
    """A blocking form was used where an event loop runs; the message names the form to `await`."""


class NoCurrentRun(UsageError, LookupError):
    """Code that needs a run was called where none is: an unbound thread, or work that outlived its run."""


class TooDeep(UsageError):
    """Runs or cancellation tokens are nested deeper than 1,000 levels."""


class StateConflict(UsageError):
    """Two steps of a flow that ran at once have changed the same field of its state, to different values."""


# --- the provider -------------------------------------------------------------------------------------------


class ProviderError(HalterError):
    """A model call failed at the provider's end.

    `status`: the HTTP status, or `None` if there was none. `code`: the provider's own code or type, if it gave
    one. `retry_after`: seconds, when the provider asked for a pause. `retryable`: whether the same request may
    succeed later. `request_id`: the provider's id of the request, for its support.
    """

    retryable = False

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after
        self.request_id = request_id


class ProviderRefused(ProviderError):
    """The provider answered, and said no."""


class AuthenticationFailed(ProviderRefused):
    """401 or 403: the key is missing, wrong, or not allowed to do this; or 407, by a proxy."""


class ModelNotFound(ProviderRefused):
    """404: no such model, deployment or route."""


class RequestRejected(ProviderRefused):
    """Any other 4xx: the request itself is at fault; repeating it cannot help."""


class ContextTooLong(RequestRejected):
    """The prompt is longer than the model takes, or together with the answer that was asked for; 413 says so as well.

    `limit`: tokens that the model takes; `tokens`: those of the request, as the provider counts them, always more than
    `limit`. Each is `None` if the provider does not say.
    """

    def __init__(self, message: str, *, limit: int | None = None, tokens: int | None = None, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.limit = limit
        self.tokens = tokens


class RateLimited(ProviderRefused):
    """429: too much at once. `retry_after` says when, if the provider did."""

    retryable = True


class ProviderBroke(ProviderError):
    """The provider, or the way to it, failed."""

    retryable = True


class ServerFailed(ProviderBroke):
    """408, 409 or 5xx, or an error frame of that kind inside a stream."""


class ConnectionFailed(ProviderBroke):
    """No connection, or one that broke: name look-up, refused, reset, TLS."""


class StreamTimeout(ProviderBroke, TimeoutError):
    """The provider was too slow. `phase`: `token`, `pool`, `connect`, `first_token`, `idle` or `total`."""

    def __init__(self, message: str, *, phase: str) -> None:
        super().__init__(message)
        self.phase = phase


class IncompleteStream(ProviderBroke):
    """The answer ended without its terminal frame: cut off, never a success."""


class MalformedStream(ProviderBroke):
    """Bytes that are not the wire format; `str()` shows their beginning."""

    retryable = False


class OutputInvalid(ProviderBroke):
    """The answer does not fit the type that was asked for, and what could be done about it was done.

    `text`: the answer as it came. `reasons`: what is wrong with it, one sentence each. `code`: `refusal` if the model
    declined; the finish reason if that says why, as `length` does; else `None`.
    """

    retryable = False

    def __init__(self, message: str, *, text: str, reasons: tuple[str, ...], code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.text = text
        self.reasons = reasons


# --- a Halter server ----------------------------------------------------------------------------------------


class ServerRefused(HalterError):
    """A Halter server answered with a problem. `status`: of HTTP; `code`: its word; `retry_after`: seconds."""

    def __init__(self, message: str, *, status: int, code: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after


class RemoteError(HalterError):
    """A run on a server failed. `kind`: the name of the exception there."""

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


# --- tools ----------------------------------------------------------------------------------------------


class ToolError(HalterError):
    """Raised by a tool: the call failed, and this text tells the model why. The run goes on."""


class McpTimeout(HalterError, TimeoutError):
    """An MCP server did not answer while it was connected. `server`: its command or URL; `after`: seconds."""

    def __init__(self, server: str, after: float) -> None:
        super().__init__(
            f"the MCP server {server!r} has not answered within {after:g} s of connecting; "
            f"connect_timeout= gives it more time"
        )
        self.server = server
        self.after = after


class McpConnectionFailed(HalterError, ConnectionError):
    """An MCP server could not be connected. `server`: its name, its command or its URL."""

    def __init__(self, server: str, why: str) -> None:
        super().__init__(f"the MCP server {server!r} could not be connected: {why}")
        self.server = server


class TurnsExhausted(HalterError):
    """The run's last turn has asked for tools: `max_turns` of its agent is reached before there was an answer."""


class StepsExhausted(HalterError):
    """A flow would begin another step, and its `max_steps` is reached."""


# --- the run ended ------------------------------------------------------------------------------------------


class RunEnded(HalterError):
    """A run that was waited for did not complete. `result` holds everything that it produced.

    `result` is `None` only when raised *inside* a run that is being stopped (`token.raise_if_cancelled()`).
    """

    def __init__(self, message: str, result: RunResult[Any] | None = None) -> None:
        super().__init__(message)
        self.result = result

    @property
    def run_id(self) -> str | None:
        return self.result.run_id if self.result else None


class RunCancelled(RunEnded):
    """The run was stopped. `cancellation` says by whom and why."""

    def __init__(
        self,
        message: str,
        result: RunResult[Any] | None = None,
        cancellation: Cancellation | None = None,
    ) -> None:
        super().__init__(message, result)
        self.cancellation = cancellation or (result.cancellation if result else None)


class RunTimedOut(RunCancelled, TimeoutError):
    """The run was stopped by its own `timeout`."""


class RunFailed(RunEnded):
    """The run's body raised; the cause is `__cause__` and `result.error`."""


class RunLost(HalterError):
    """The run cannot go on in this process: it was forked away, or its event loop was closed."""


# --- sessions -----------------------------------------------------------------------------------------------


class SessionBusy(RunFailed, BusyError):
    """Another run has the session's turn, and `on_busy` says to refuse. `holder`: its id, where that is known."""

    def __init__(
        self,
        message: str,
        result: RunResult[Any] | None = None,
        *,
        session_id: str,
        holder: str | None = None,
    ) -> None:
        super().__init__(message, result)
        self.session_id = session_id
        self.holder = holder


class SessionError(HalterError):
    """A session, or the place where sessions are kept, does not do what it should."""


class SessionNotFound(SessionError, UsageError, LookupError):
    """There is no session of this id."""


class SessionsUnavailable(SessionError):
    """The place where sessions are kept is gone, full, read-only, or of another version; what was asked did not happen.

    `retryable`: whether the same may succeed later without anybody's doing.
    """

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class SessionDamaged(SessionsUnavailable):
    """Something stored of this session cannot be read; other sessions are not affected.

    `halter sessions check` lists what cannot be read, and repairs it.
    """

    def __init__(self, message: str, *, session_id: str) -> None:
        super().__init__(message, retryable=False)
        self.session_id = session_id


class TurnLost(SessionError):
    """The run's turn on its session is not its own any more: it was not renewed in time, and somebody else has it.

    Nothing that it says from here on is stored.
    """
