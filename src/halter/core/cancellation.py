"""The cancellation token: a request to stop that can be made anywhere and seen everywhere.

1. A parent's cancel reaches its children, never the other way. 2. Visibility is by pull along the parents: born under
a cancelled parent is born cancelled, and nothing is retained for a child that nobody listens to. 3. The first reason
stays; the mode only escalates. 4. `cancel` never blocks, never raises, takes no lock, and runs no callback in its own
frame: it may be called in any thread, in a signal handler, and in `__del__`.
"""

from __future__ import annotations

import _thread
import asyncio
import contextvars
import inspect
import logging
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, NoReturn, Protocol, TypeAlias

from halter.core.lockfree import Wakers, snapshot
from halter.core.threads import background_loop
from halter.errors import ConfigurationError, RunCancelled, TooDeep, UsageError
from halter.outcome import Cancellation, CancelMode, CancelReason
from halter.shown import shown

MAX_DEPTH = 1_000  # tokens under one another
_log = logging.getLogger("halter")

CancelCallback: TypeAlias = Callable[[], object]


class Stoppable(Protocol):
    """Whatever a token can govern."""

    def cancel(
        self,
        message: str | None = None,
        *,
        reason: CancelReason = ...,
        mode: CancelMode = ...,
        actor: str | None = None,
    ) -> bool: ...


class Registration:
    """A callback on a token; `close()` takes it off, in O(1), and may be called twice and from anywhere."""

    __slots__ = ("_key", "_token")

    def __init__(self, token: CancellationToken, key: int) -> None:
        self._token = token
        self._key = key

    def close(self) -> None:
        self._token._unregister(self._key)

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class CancellationToken:
    """A request to stop, as a tree. One token may govern any number of runs, and outlive them.

    `halter`'s runs take it as `run(…, cancellation=token)`; your own code may poll `is_cancelled`, `await wait()`,
    or register `on_cancel`.
    """

    __slots__ = (
        "__weakref__",
        "_below",
        "_depth",
        "_listeners",
        "_next_key",
        "_parents",
        "_relays",
        "_requests",
        "_waiting",
    )

    def __init__(self) -> None:
        self._parents: tuple[CancellationToken, ...] = ()
        self._requests: list[Cancellation] = []
        self._listeners: dict[int, Callable[[Cancellation], None]] = {}
        self._below: dict[int, CancellationToken] = {}  # those under this one on which somebody listens
        self._relays: list[Registration] = []  # on all above this one
        self._depth = 1
        self._next_key = count()
        self._waiting = Wakers()

    # --- asking ---------------------------------------------------------------------------------------------

    def cancel(
        self,
        message: str | None = None,
        *,
        reason: CancelReason = CancelReason.USER_STOP,
        mode: CancelMode = CancelMode.IMMEDIATE,
        actor: str | None = None,
    ) -> bool:
        """Asks everything under this token to stop. Never blocks, never raises; safe in any thread and handler.

        `mode`: how hard; a second call may escalate. `actor`: who asks, for the record. Returns True: the request
        is in force (also if it had been before).
        """
        self._request(Cancellation.of(reason, mode, actor, message))
        return True

    def _request(self, request: Cancellation) -> None:
        if all(request.mode.strength > before.mode.strength for before in self._requests):
            self._requests.append(request)  # asked for again and again, a look must not become slower
        self._pass_on(request)

    def _pass_on(self, request: Cancellation) -> None:
        """Tells those who listen here, and on the tokens under this one."""
        for token in (self, *snapshot(self._below)):
            token._waiting.wake(threadsafe=True)
            for listener in snapshot(token._listeners):
                _call(listener, request)

    # --- looking --------------------------------------------------------------------------------------------

    @property
    def is_cancelled(self) -> bool:
        """True from the request on, here and in every child."""
        return self._is_asked or any(token._is_asked for token in self._above())

    @property
    def _is_asked(self) -> bool:
        """It itself was cancelled, whatever was above it."""
        return bool(self._requests)

    def _above(self) -> list[CancellationToken]:
        """The tokens above this one, each once. Iterated: depth costs no stack."""
        if not self._parents:
            return []
        found = dict.fromkeys(self._parents)
        waiting = list(found)
        while waiting:
            new = [parent for parent in waiting.pop()._parents if parent not in found]
            found.update(dict.fromkeys(new))
            waiting.extend(new)
        return list(found)

    @property
    def cancellation(self) -> Cancellation | None:
        """The first request, with the strongest mode asked for so far; `None` while there is none."""
        requests = self._all_requests()
        if not requests:
            return None
        first = min(requests, key=lambda request: request.at)
        strongest = max((request.mode for request in requests), key=lambda mode: mode.strength)
        return first.with_mode(strongest)

    def _all_requests(self) -> list[Cancellation]:
        return [request for token in (self, *self._above()) for request in token._own_requests()]

    def _own_requests(self) -> list[Cancellation]:
        return list(self._requests)

    def raise_if_cancelled(self) -> None:
        """Raises `RunCancelled` once the token is cancelled; else does nothing."""
        if self._requests or self._parents:
            request = self.cancellation
            if request is not None:
                raise RunCancelled(f"stopped: {request}", cancellation=request)

    async def wait(self) -> Cancellation:
        """Returns the request once there is one. Cancellation-safe: leaves nothing behind."""
        with self._listen(lambda _: self._waiting.wake(threadsafe=True)):
            await self._waiting.wait_until(lambda: self.is_cancelled)
        request = self.cancellation
        assert request is not None
        return request

    # --- the tree -------------------------------------------------------------------------------------------

    def child(self) -> CancellationToken:
        """A token that is cancelled with this one, and can be cancelled alone. Raises `TooDeep` at 1,000 levels."""
        return CancellationToken.any(self)

    @staticmethod
    def any(*tokens: CancellationToken) -> CancellationToken:
        """A token that is cancelled as soon as one of `tokens` is, and can be cancelled alone."""
        token = CancellationToken()
        token._parents = tokens
        token._depth = 1 + max((parent._depth for parent in tokens), default=0)
        if token._depth > MAX_DEPTH:
            raise TooDeep(f"cancellation tokens are nested {MAX_DEPTH} deep, which is the limit: give one token to all")
        return token

    # --- listening ------------------------------------------------------------------------------------------

    def on_cancel(self, callback: CancelCallback) -> Registration:
        """Has `callback()` called soon after the first request, once; at once if that has been already.

        A plain function. It runs on the loop that runs where it is registered, else on the background loop, never
        in the canceller's frame. One that raises is logged and does not stop the others. Raises
        `ConfigurationError` for what is no plain function.
        """
        if not callable(callback) or inspect.iscoroutinefunction(callback):
            raise ConfigurationError(f"on_cancel takes a plain function, not {callback!r}")
        return self._listen(_Once(callback))

    def govern(self, target: Stoppable | asyncio.Future[Any]) -> Registration:
        """Has `target` cancelled with this token: in the canceller's own frame, each request with its mode.

        An asyncio task or future is cancelled on its own loop. A target whose `cancel` raises is logged and does not
        stop the others. Raises `ConfigurationError` for a target without such a `cancel`.
        """
        if isinstance(target, asyncio.Future):
            return self._listen(partial(_cancel_future, target))
        _check_stoppable(target)

        def pass_on(request: Cancellation) -> None:
            target.cancel(request.message, reason=request.reason, mode=request.mode, actor=request.actor)

        return self._listen(pass_on)

    def _listen(self, listener: Callable[[Cancellation], None]) -> Registration:
        key = next(self._next_key)
        self._listeners[key] = listener
        if self._parents and not self._relays:
            self._relays = [token._tell(self) for token in self._above()]
        # Registered first, then looked: a request between the two is seen at least once.
        request = self.cancellation
        if request is not None:
            _call(listener, request)
        return Registration(self, key)

    def _tell(self, below: CancellationToken) -> Registration:
        """From now on those who listen on a token under this one are told as well."""
        key = next(self._next_key)
        self._below[key] = below
        return Registration(self, key)

    def _unregister(self, key: int) -> None:
        self._below.pop(key, None)
        if self._listeners.pop(key, None) is None:
            return
        if not self._listeners:
            relays, self._relays = self._relays, []
            for relay in relays:
                relay.close()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise UsageError("a cancellation token cannot be copied or pickled: share it, or make a child() of it")

    def __repr__(self) -> str:
        state = f"cancelled: {self.cancellation}" if self.is_cancelled else "live"
        return f"<CancellationToken {state}, {len(self._listeners)} listening>"


def _call(listener: Callable[[Cancellation], None], request: Cancellation) -> None:
    """One that raises keeps the request from nobody else, and not from the canceller's own next line."""
    try:
        listener(request)
    except Exception:
        _log.exception("something that a cancellation token governs could not be cancelled; the others are")


def _cancel_future(target: asyncio.Future[Any], request: Cancellation) -> None:
    try:
        target.get_loop().call_soon_threadsafe(target.cancel, request.message)
    except RuntimeError:
        pass  # its loop is closed: it is over


def _check_stoppable(target: object) -> None:
    cancel: Any = getattr(target, "cancel", None)
    try:
        inspect.signature(cancel).bind(None, reason=None, mode=None, actor=None)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"govern() takes a run, a token or an asyncio task, not {shown(target)}: its cancel() does not take "
            f"(message, reason=, mode=, actor=); use on_cancel(target.cancel)"
        ) from error


class _Once:
    """A user's callback, bound to the loop and context where it was registered."""

    __slots__ = ("_callback", "_context", "_fired", "_loop")

    def __init__(self, callback: CancelCallback) -> None:
        self._callback = callback
        self._context = contextvars.copy_context()
        # Started now if need be: a signal handler must not start threads.
        self._loop = asyncio._get_running_loop() or background_loop()
        self._fired: dict[str, Any] = {}

    def __call__(self, request: Cancellation) -> None:
        me = object()
        if self._fired.setdefault("by", me) is not me:
            return
        try:
            self._loop.call_soon_threadsafe(self._call, context=self._context)
        except RuntimeError:  # that loop is closed; a bare thread needs no lock to start
            _thread.start_new_thread(self._context.run, (self._call,))

    def _call(self) -> None:
        try:
            self._callback()
        except BaseException:  # also SystemExit: it would end the loop, and every run on it
            _log.exception("an on_cancel callback raised; the others are not affected")
