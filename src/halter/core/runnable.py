"""`Runnable`: everything that runs has `run()`; and `@runnable`, which makes any async function one.

A definition is immutable: one object serves any number of runs at once, on any loop.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Concatenate, Generic, TypeVar, cast, get_args, overload

from halter import checked
from halter.core.budget import Budget, checked_budgets, limits_cost
from halter.core.cancellation import CancellationToken
from halter.core.context import RunContext
from halter.core.current import current_execution
from halter.core.execution import Execution, wait_for_start
from halter.core.executors import pool_here, warn_if_outside
from halter.core.home import LIVE
from halter.core.options import Keep, OnBusy, RunOptions
from halter.core.ports import SessionRef
from halter.core.run import Run
from halter.core.settings import default_sessions, seconds, session_ref, settings
from halter.errors import BusyError, ConfigurationError
from halter.messages import Message, as_messages


class _Inherit:
    def __repr__(self) -> str:
        return "the current run"


INHERIT = _Inherit()
KEEP: tuple[Keep, ...] = get_args(Keep)
ON_BUSY: tuple[OnBusy, ...] = get_args(OnBusy)
T = TypeVar("T")


if TYPE_CHECKING:
    from typing_extensions import TypeVar  # of Python 3.13: with a default, so that `Runnable` alone is a type too

    T_co = TypeVar("T_co", covariant=True, default=Any)
else:
    T_co = TypeVar("T_co", covariant=True)


class Runnable(Generic[T_co]):
    """Something that runs: a name, a kind, and a body (`execute`). Subclasses add what they are made of.

    Its type parameter is the output's type: `run()` of a `Runnable[int]` is a `Run[int]`.
    """

    kind = "runnable"
    _name: str
    _description: str = ""

    @property
    def name(self) -> str:
        """How its events are marked; a subclass sets `_name`, and `_description`, or has properties of its own."""
        return self._name

    @property
    def description(self) -> str:
        """What it is for, in a sentence: told to models that may call it."""
        return self._description

    @property
    def model_name(self) -> str | None:
        """The model that answers, if there is one."""
        return None

    async def execute(self, ctx: RunContext) -> T_co:
        """The body of one run; what it returns is the run's `output`."""
        raise NotImplementedError(f"{type(self).__name__} must have a body")

    def check_input(self, input: Any) -> Any:
        """The input as the body expects it. Raises `ConfigurationError`; called by `run()`."""
        return input

    def check_state(self, state: Any) -> Any:
        """The state to go on from, as the body expects it. Raises `ConfigurationError`; called by `run()`."""
        if state is not None:
            raise ConfigurationError(f"{self.name} has no state to go on from: leave state= out")
        return None

    def check_options(self, options: RunOptions) -> None:
        """Raises `ConfigurationError` for what does not go together; each has been checked alone. Called by `run()`."""

    def goes_on(self, input: Any) -> bool:
        """True if a run with this input goes on from the state that is stored in its session, if there is one."""
        return input is None or input == ()

    def check_price(self) -> None:
        """Raises `ConfigurationError` if it is not known what its model costs; called by `run()` under a limit."""

    def run(
        self,
        input: Any = None,
        *,
        session: str | SessionRef | None = None,
        user: str | None = None,
        keep: Keep = "partial",
        on_busy: OnBusy = "reject",
        history: Iterable[Message] | None = None,
        context: Any = None,
        id: str | None = None,
        cancellation: CancellationToken | None = None,
        timeout: float | None = None,
        budget: Budget | Sequence[Budget] | None = None,
        grace: float | None = None,
        tags: Iterable[str] = (),
        state: Any = None,
        task: str | None = None,
        parent: Run[Any] | _Inherit | None = INHERIT,
    ) -> Run[T_co]:
        """A handle on one run of this, at once; it starts with its first use.

        `session`: the conversation that it goes on with, by its id or as `Sessions.session(id)`: what was said before
        is its history, and what is said now is stored there as it is said. `user`: who talks, a name of 1 to 256
        characters: a new session becomes theirs, and one that is not theirs is refused (`SessionNotFound`). `keep`:
        what becomes of a turn that is stopped or fails: `"partial"`, as far as it came, marked; `"rollback"`, nothing.
        `on_busy`: where another run has the session's turn: `"reject"` (`SessionBusy`), `"enqueue"` (wait),
        `"interrupt"` (stop it, and go next) or `"steer"` (have it take this input at its next step, and end as it
        ends).

        `history`: the conversation before `input`. `context`: any object for the body (`ctx.context`): never sent,
        logged or stored. `id`: your own id, unique among live runs. `cancellation`: a token that governs it.
        `timeout`: seconds from the start. `budget`: what it and all runs under it may spend; several may hold at
        once. `grace`: seconds that a
        stop waits before it abandons. `state`: where to go on, of what has a state (`result.state` of a run before).
        `task`: how the events of this run, and of those under it, are marked. `parent`: the run it belongs to; by
        default the current one, `None` for none. Raises `ConfigurationError`; starts nothing.
        """
        defaults = settings()
        options = RunOptions(
            input=self.check_input(input),
            session=session_ref(session),
            user=None if user is None else checked.name("user", user),
            keep=checked.one_of("keep", keep, KEEP),
            on_busy=checked.one_of("on_busy", on_busy, ON_BUSY),
            history=as_messages(history) if history else (),
            context=context,
            id=_checked_id(id),
            cancellation=_checked_token(cancellation),
            timeout=seconds("timeout", defaults.timeout if timeout is None else timeout, or_none=True),
            budgets=checked_budgets(budget),
            grace=seconds("grace", defaults.grace if grace is None else grace) or 0.0,
            tags=_checked_tags(tags),
            state=self.check_state(state),
            task=task,
        )
        above = _parent(parent)
        if options.session is not None and options.session.id is not None:
            _check_session(options)
        else:
            self.check_options(options)
            if defaults.record_runs and above is None and options.session is None:
                options = replace(options, session=default_sessions().record())
        pool = pool_here() if above is None and asyncio._get_running_loop() is None else None
        if parent is INHERIT:
            warn_if_outside(self.name, pool, LIVE)
        execution = Execution(self, options, above)
        execution.pool = pool
        if limits_cost(execution.accounts):
            self.check_price()
        wait_for_start(execution)
        return Run(execution)

    def in_background(self, input: Any = None, **options: Any) -> Run[T_co]:
        """The same, as the runtime's own work: see `ctx.start_in_background`."""
        run = self.run(input, parent=None, **options)
        run._execution.is_background = True
        return run


def _check_session(options: RunOptions) -> None:
    """The rest is looked at when its turn has come."""
    for name, given in (("history", options.history), ("state", options.state)):
        if given:
            raise ConfigurationError(f"a session has its own {name}: leave {name}= out")
    if options.on_busy == "steer":
        as_messages(options.input)  # it may be given to another run, which takes what is said


def _parent(given: Run[Any] | _Inherit | None) -> Execution | None:
    if isinstance(given, _Inherit):
        return current_execution()
    if given is None:
        return None
    if not isinstance(given, Run):
        raise ConfigurationError(f"parent must be a Run, not {type(given).__name__}")
    execution = given._execution
    if execution.home is None:
        raise ConfigurationError(f"run {given.id} has not started: it cannot be a parent yet")
    return execution  # if it is over, the new run is born cancelled


def _checked_id(id: str | None) -> str | None:
    if id is None:
        return None
    if not isinstance(id, str) or not id.strip() or len(id) > 256:
        raise ConfigurationError(f"id must be text of 1 to 256 characters, not {id!r}")
    if id in LIVE:
        raise BusyError(f"a run with the id {id!r} is live")
    return id


def _checked_token(token: CancellationToken | None) -> CancellationToken | None:
    if token is not None and not isinstance(token, CancellationToken):
        raise ConfigurationError(f"cancellation must be a CancellationToken, not {type(token).__name__}")
    return token


def _checked_tags(tags: Iterable[str]) -> tuple[str, ...]:
    checked = (tags,) if isinstance(tags, str) else tuple(tags) if isinstance(tags, Iterable) else (tags,)
    if not all(isinstance(tag, str) for tag in checked):
        raise ConfigurationError(f"tags must be text, not {checked!r}")
    return checked


class FunctionRunnable(Runnable[T_co]):
    """An async function or async generator as a runnable: `fn(ctx)` or `fn(ctx, input)`.

    What a function returns is the output. What a generator yields is shown: text as the run's own answer, anything
    else as a `custom` event named `item`; its output is that text.
    """

    def __init__(self, fn: Callable[..., Any], *, name: str | None = None) -> None:
        if not (inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn)):
            raise ConfigurationError(f"@runnable takes an async function or async generator, not {fn!r}")
        self._fn = fn
        self._name = name or fn.__name__
        self._takes_input = _takes_input(fn)
        self.__doc__ = fn.__doc__

    async def execute(self, ctx: RunContext) -> T_co:
        called = self._fn(ctx, ctx.input) if self._takes_input else self._fn(ctx)
        output = await (_show_items(called, ctx) if inspect.isasyncgen(called) else called)
        ctx.close_reply()
        return cast("T_co", output)

    def __repr__(self) -> str:
        return f"<runnable {self._name}>"


async def _show_items(items: AsyncIterator[Any], ctx: RunContext) -> str:
    async with aclosing(items):  # pyright: ignore[reportArgumentType]  # it is an async generator
        async for item in items:
            if isinstance(item, str):
                ctx.text(item)
            else:
                ctx.emit("item", item)
            await ctx.drain()
    return ctx.run.text


def _takes_input(fn: Callable[..., Any]) -> bool:
    try:
        inspect.signature(fn).bind("ctx", "input")
    except TypeError:
        try:
            inspect.signature(fn).bind("ctx")
        except TypeError:
            raise ConfigurationError(f"{fn.__name__} must take (ctx) or (ctx, input)") from None
        return False
    return True


@overload
def runnable(fn: Callable[Concatenate[RunContext, ...], Coroutine[Any, Any, T]]) -> FunctionRunnable[T]: ...
@overload
def runnable(fn: Callable[Concatenate[RunContext, ...], AsyncIterator[Any]]) -> FunctionRunnable[str]: ...
@overload
def runnable(*, name: str) -> _Decorator: ...
def runnable(fn: Callable[..., Any] | None = None, *, name: str | None = None) -> Any:
    """Makes an async function or async generator a runnable: `@runnable` or `@runnable(name="…")`.

    It is called as `fn(ctx)` or `fn(ctx, input)`; `ctx` is a `RunContext`. Raises `ConfigurationError`.
    """
    if fn is None:
        return _Decorator(name)
    return FunctionRunnable[Any](fn, name=name)


class _Decorator:
    """`@runnable(name="…")`."""

    def __init__(self, name: str | None) -> None:
        self._name = name

    @overload
    def __call__(self, fn: Callable[Concatenate[RunContext, ...], Coroutine[Any, Any, T]]) -> FunctionRunnable[T]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[RunContext, ...], AsyncIterator[Any]]) -> FunctionRunnable[str]: ...
    def __call__(self, fn: Callable[..., Any]) -> Any:
        return FunctionRunnable[Any](fn, name=self._name)
