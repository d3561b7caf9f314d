"""`RemoteRun`: a handle on a run of a server, with the words of `halter.Run`."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Generator, Mapping
from types import TracebackType
from typing import Any, Generic, TypeVar

from halter.client.following import Following
from halter.client.reader import RemoteReader, RemoteTextReader
from halter.client.state import RemoteState
from halter.client.transport import Pending, Transport
from halter.core.lockfree import forbid_blocking
from halter.core.threads import background_loop
from halter.errors import HalterError, RunCancelled, RunFailed, RunTimedOut, ServerRefused
from halter.outcome import CancelMode, CancelReason, RunResult, RunStatus

T_co = TypeVar("T_co", covariant=True)


class RemoteRun(Generic[T_co]):
    """A handle on one run of a server: watch it, stop it, wait for it. Made by `Client.run` and `Client.find`.

    It starts with its first use, as `halter.Run` does, and works from any task, thread and event loop. A connection
    that is lost is resumed by itself; after a stop, and after the end, nothing is sent again.
    """

    def __init__(self, transport: Transport, run_id: str, start: Mapping[str, Any] | None, *, patience: float) -> None:
        self._transport = transport
        self._state = RemoteState(run_id)
        self._owns = start is not None
        self._following = Following(transport, self._state, start, patience=patience)
        self._task: concurrent.futures.Future[None] | None = None
        self._is_stopping = False

    # --- looking --------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self._state.run_id

    @property
    def status(self) -> RunStatus:
        """Where the run is, as far as its stream has told."""
        status = self._state.status
        return RunStatus.CANCELLING if self._is_stopping and not status.is_final else status

    @property
    def text(self) -> str:
        """The run's own answer so far."""
        return self._state.text

    @property
    def outcome(self) -> RunResult[T_co] | None:
        """The result once the run is over, else `None`."""
        return self._state.result

    @property
    def is_done(self) -> bool:
        return self._state.result is not None

    @property
    def is_cancelling(self) -> bool:
        """True from the request to stop until it is over."""
        return self.status is RunStatus.CANCELLING

    @property
    def is_cancelled(self) -> bool:
        return self._state.result is not None and self._state.result.is_cancelled

    @property
    def is_completed(self) -> bool:
        return self._state.result is not None and self._state.result.is_completed

    @property
    def is_failed(self) -> bool:
        return self._state.result is not None and self._state.result.is_failed

    @property
    def gaps(self) -> tuple[tuple[int, int | None], ...]:
        """Stretches of events that the server had lost before they were read; none, as a rule."""
        return tuple(self._state.gaps)

    def why(self) -> str:
        """One sentence on how it ended, or where it is."""
        return self._state.result.why() if self._state.result is not None else f"It is {self.status}."

    # --- starting -------------------------------------------------------------------------------------------

    def start(self) -> RemoteRun[T_co]:
        """Begins it, if it has not begun, and returns this handle."""
        if self._task is None:
            self._task = asyncio.run_coroutine_threadsafe(self._following.run(), background_loop())
        return self

    def detach(self) -> str:
        """Starts it and leaves it to the server. Returns its id. Whether it runs on alone, `on_disconnect` said."""
        self.start()
        self._owns = False
        return self.id

    # --- stopping -------------------------------------------------------------------------------------------

    def cancel(
        self,
        message: str | None = None,
        *,
        reason: CancelReason = CancelReason.USER_STOP,
        mode: CancelMode = CancelMode.IMMEDIATE,
    ) -> bool:
        """Asks the server to stop it, and returns at once. From any task or thread; never raises.

        Returns:
            False if the run is known to be over. True: the request is on its way; `aclose` waits for its effect.
        """
        if self._state.is_over:
            return False
        self._is_stopping = True
        self.start()
        Pending(self._ask_to_stop(message, reason, mode))
        return True

    async def _ask_to_stop(self, message: str | None, reason: CancelReason, mode: CancelMode) -> None:
        """Sent until it is answered: also before the start has reached the server (a tombstone)."""
        body = {"message": message, "reason": reason, "mode": mode}
        for _ in range(20):
            try:
                await self._transport.request(
                    "POST", f"/v1/runs/{self.id}/cancel", body=body, query={"tombstone": "true"}
                )
                return
            except ServerRefused as error:
                if error.status < 500 and error.status != 429:
                    self._state.fail(error)
                    return
            except HalterError:
                pass  # no answer: it may not have come
            if self._state.is_over:
                return
            await asyncio.sleep(0.25)

    async def aclose(self) -> None:
        """Cancels it and waits until the server says that everything of it has stopped. Idempotent."""
        self.cancel()
        await self._state.changed.wait_until(lambda: self._state.is_over)

    def close(self, timeout: float | None = None) -> None:
        """The blocking form of `aclose`. `timeout`: seconds; then `TimeoutError`, and the stop goes on."""
        forbid_blocking("await run.aclose()")
        self.cancel()
        if not self._state.changed.block_until(lambda: self._state.is_over, timeout):
            raise TimeoutError(f"run {self.id} had not stopped after {timeout} s")

    # --- waiting --------------------------------------------------------------------------------------------

    async def wait(self) -> RunResult[T_co]:
        """Waits for the end and returns the result; a coroutine, for `create_task`.

        Raises `RunCancelled`, `RunTimedOut` or `RunFailed`, each with `.result`; `ServerRefused`, `ConnectionFailed`
        or `RunLost` if the server would not start it or it can be followed no longer. Cancelled from outside, a run
        that this handle has started is cancelled too.
        """
        try:
            await self.finished()
        except asyncio.CancelledError:
            if self._owns:
                self.cancel()
            raise
        return self.check()

    def __await__(self) -> Generator[Any, None, RunResult[T_co]]:
        return self.wait().__await__()

    async def finished(self) -> RunResult[T_co]:
        """Waits for the end and returns the result, however the run ended. Stops nothing."""
        self.start()
        await self._state.changed.wait_until(lambda: self._state.is_over)
        return self._result()

    def result(self, timeout: float | None = None) -> RunResult[T_co]:
        """The blocking form of `wait`. `timeout`: seconds; then `TimeoutError`, and the run goes on."""
        forbid_blocking("await run")
        self.start()
        try:
            if not self._state.changed.block_until(lambda: self._state.is_over, timeout):
                raise TimeoutError(f"run {self.id} was not over after {timeout} s; it goes on")
        except KeyboardInterrupt:
            if self._owns:
                self.cancel()
            raise
        return self.check()

    def _result(self) -> RunResult[T_co]:
        if self._state.error is not None:
            raise self._state.error
        assert self._state.result is not None
        return self._state.result

    def check(self) -> RunResult[T_co]:
        """The result of a run that completed; raises as `wait` does for one that did not."""
        result = self._result()
        if result.is_completed:
            return result
        if result.is_cancelled:
            timed_out = result.cancellation is not None and result.cancellation.reason is CancelReason.TIMEOUT
            kind = RunTimedOut if timed_out else RunCancelled
            raise kind(f"run {self.id} was stopped: {result.cancellation}", result)
        raise RunFailed(f"run {self.id} failed: {result.error}", result) from result.error

    # --- reading --------------------------------------------------------------------------------------------

    def events(self, after: int | None = None) -> RemoteReader:
        """A reader of all events, for `async for` and `for`. `after`: the `seq` of the last one that is known."""
        self.start()
        return RemoteReader(self, self._state, after or 0)

    def __aiter__(self) -> RemoteReader:
        return self.events()

    def __iter__(self) -> RemoteReader:
        forbid_blocking("async for event in run")
        return self.events()

    def text_stream(self) -> RemoteTextReader:
        """The text alone, for `async for` and `for`."""
        self.start()
        return RemoteTextReader(self, self._state)

    # --- steering -------------------------------------------------------------------------------------------

    def send(self, text: str) -> Pending[bool]:
        """Steers it: delivered at the next turn. `await` it, or `.result()`: False if the run is over."""
        return Pending(self._accepted("messages", {"text": text}))

    def answer(self, request_id: str, value: Any, *, reason: str | None = None) -> Pending[bool]:
        """Answers an `input.requested`. `await` it, or `.result()`: False if no such question is open.

        `reason`: why; after a no to an approval it is told to the model. The server knows who answers by your key.
        """
        said = {} if reason is None else {"reason": reason}
        return Pending(self._accepted("input", {"request_id": request_id, "answer": value, **said}))

    async def _accepted(self, what: str, body: Mapping[str, Any]) -> bool:
        try:
            await self._transport.request("POST", f"/v1/runs/{self.id}/{what}", body=body)
        except ServerRefused as error:
            if error.status == 409:
                return False
            raise
        return True

    # --- scopes ---------------------------------------------------------------------------------------------

    async def __aenter__(self) -> RemoteRun[T_co]:
        return self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._owns or self._state.is_over:
            return
        self.cancel()
        if not isinstance(error, asyncio.CancelledError):
            await self._state.changed.wait_until(lambda: self._state.is_over)

    def __enter__(self) -> RemoteRun[T_co]:
        forbid_blocking("async with client.run(…) as run")
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._owns and not self._state.is_over:
            self.cancel()
            if error is None or isinstance(error, Exception):
                self._state.changed.block_until(lambda: self._state.is_over)

    def __del__(self) -> None:
        # Without its handle nobody reads the stream: closing it lets `on_disconnect` decide.
        if self._task is not None and not self._state.is_over:
            self._task.cancel()

    def __repr__(self) -> str:
        return f"<RemoteRun {self.id} at {self._transport.url} {self.status}>"
