"""A step of a flow: a method, and what it waits for; `@start`, `@listen` and `@router` make one.

A step is called as `(self)`, `(self, ctx)` or `(self, ctx, value)`. A plain function runs in a thread.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints, overload

from halter.core.context import RunContext
from halter.errors import ConfigurationError, UsageError
from halter.flows.conditions import Condition, Source, condition_of

Method: TypeAlias = Callable[..., Any]
Owner = TypeVar("Owner")
_FORMS = (("self", "ctx", "value"), ("self", "ctx"), ("self",))


class Step:
    """One step. Immutable. Seen from an instance, it is the method itself.

    `condition`: what it waits for; `None`: it is where the flow begins. `labels`: what it may choose, if it is a
    router; else `None`.
    """

    def __init__(self, fn: Method, condition: Condition | None, *, chooses: bool = False) -> None:
        if isinstance(fn, Step):
            raise ConfigurationError(f"{fn.name} has a decorator already: a step is a start, a listener or a router")
        if not inspect.isfunction(fn) or inspect.isasyncgenfunction(fn):
            raise ConfigurationError(f"a step is a method of a flow, plain or async and no generator, not {fn!r}")
        self.fn = fn
        self.name = fn.__name__
        self.condition = condition
        self.labels = _labels(fn) if chooses else None
        self._takes = _takes(fn)
        self._is_async = inspect.iscoroutinefunction(fn)
        self.__doc__ = fn.__doc__

    @property
    def is_start(self) -> bool:
        return self.condition is None

    @overload
    def __get__(self, instance: None, owner: type) -> Step: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Method: ...
    def __get__(self, instance: object | None, owner: type) -> Any:
        return self if instance is None else self.fn.__get__(instance, owner)

    async def call(self, flow: Any, ctx: RunContext, value: Any) -> Any:
        """Calls the method, on the loop or in a thread. Raises `UsageError` for a value that nobody has waited for."""
        arguments = (flow, ctx, value)[: self._takes]
        returned = await (self.fn(*arguments) if self._is_async else ctx.in_thread(self.fn, *arguments))
        if inspect.isawaitable(returned):
            raise UsageError(f"step {self.name!r} has returned {returned!r}, which nobody has awaited")
        if self.labels is not None and returned not in self.labels:
            raise UsageError(f"router {self.name!r} has chosen {returned!r}; its labels are {_listed(self.labels)}")
        return returned

    def __repr__(self) -> str:
        return f"<step {self.name}>"


@overload
def start(fn: Method) -> Step: ...
@overload
def start() -> Callable[[Method], Step]: ...
def start(fn: Method | None = None) -> Any:
    """A step with which the flow begins: `@start()`. Several begin at once.

    Its `value` is what the run was given, if that was said (text, messages), and `None` if it was a state.
    """
    return Step(fn, None) if fn is not None else lambda method: Step(method, None)  # pyright: ignore


def listen(source: Source) -> Callable[[Method], Step]:
    """A step that runs each time `source` comes: a step that has ended, a label, an `and_(…)` or an `or_(…)`.

    Its `value` is what that step has returned; for a label, what its router was given; for an `and_`, a tuple. Steps
    further down are referred to by name. Raises `ConfigurationError`.
    """
    condition = condition_of(source)
    return lambda method: Step(method, condition)


def router(source: Source | None = None) -> Callable[[Method], Step]:
    """A step that chooses how to go on: it returns one of the labels that its return type names.

        @router(write)
        async def judge(self, ctx, draft) -> Literal["good", "bad"]: ...

    Without a `source` the flow begins with it. A label that nobody listens to is an end. Raises `ConfigurationError`.
    """
    condition = None if source is None else condition_of(source)
    return lambda method: Step(method, condition, chooses=True)


def _takes(fn: Method) -> int:
    """How many arguments the method is called with."""
    for form in _FORMS:
        try:
            inspect.signature(fn).bind(*form)
        except TypeError:
            continue
        return len(form)
    raise ConfigurationError(f"step {fn.__qualname__} must take (self), (self, ctx) or (self, ctx, value)")


def _labels(fn: Method) -> tuple[str, ...]:
    said = 'a router names its labels in its return type, as in -> Literal["good", "bad"]'
    hint = fn.__annotations__.get("return")
    try:
        # The other hints are nobody's business here, and may be of types that cannot be looked up.
        hint = get_type_hints(SimpleNamespace(__annotations__={"return": hint}), fn.__globals__)["return"]
    except Exception as error:
        raise ConfigurationError(f"{said}; that of {fn.__qualname__} cannot be read: {error}") from error
    hint = getattr(hint, "__value__", hint)  # `type Verdict = Literal[…]`
    labels = get_args(hint) if get_origin(hint) is Literal else ()
    if not labels or not all(isinstance(label, str) and label for label in labels):
        raise ConfigurationError(f"{said}; {fn.__qualname__} does not")
    return labels


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names))
