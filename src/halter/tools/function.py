"""`@tool`: any function as something that a model may call."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Literal, ParamSpec, TypeVar, cast, overload

import msgspec

from halter import checked
from halter.core.calling import is_async
from halter.core.ports import Question, ToolRules
from halter.core.settings import seconds
from halter.core.tool_context import ToolContext
from halter.errors import ConfigurationError, ToolError
from halter.messages import File, Image
from halter.request import ToolSpec
from halter.risk import Risk, risks
from halter.tools import approval as approvals
from halter.tools.approval import Approval, Does, Prompt, Subject
from halter.tools.arguments import Arguments
from halter.tools.bounds import head_and_tail
from halter.tools.docstring import described
from halter.tools.isolated import call_in_process, check_isolated
from halter.tools.sandbox import SandboxOption, sandbox_of
from halter.tools.sandboxed import Sandboxed

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=Callable[..., Any])
LONGEST_RESULT = 100_000  # characters
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")


class FunctionTool(Generic[P, R]):
    """A function that a model may call; immutable. Made by `tool`; called as the function, it is the function.

    `does`: as for `Rule`. All else as for `tool`.
    """

    def __init__(
        self,
        fn: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        timeout: float | None = None,
        retries: int = 0,
        max_concurrency: int | None = None,
        cancel: Literal["cancellable", "must_finish"] = "cancellable",
        compensate: Callable[..., Any] | None = None,
        risk: Risk | Iterable[Risk] | None = None,
        approval: Approval | None = None,
        approval_prompt: Prompt | None = None,
        approval_timeout: float | None = 300.0,
        approval_subject: Subject | None = None,
        max_result: int = LONGEST_RESULT,
        isolation: Literal["thread", "process"] = "thread",
        sandbox: SandboxOption = None,
        does: Does | None = None,
    ) -> None:
        if not callable(fn) or isinstance(fn, FunctionTool):
            raise ConfigurationError(f"a tool is made of a function, not of {fn!r}")
        if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            raise ConfigurationError(
                f"{fn.__qualname__} yields: a tool returns its result; on the way, ctx.progress(…)"
            )
        said = described(fn.__doc__)
        self.fn = fn
        self._arguments = Arguments(fn, said.arguments)
        self._is_async = is_async(fn)
        self._in_process = _in_process(fn, isolation, sandbox, self._arguments)
        self._compensate = _compensation(compensate)
        self._rule = approvals.Rule(
            approval,
            self._arguments.names,
            None if approval_subject is None else _callable("approval_subject", approval_subject),
            risks=risks(risk),
            does=does,
        )
        self._prompt = None if approval_prompt is None else _callable("approval_prompt", approval_prompt)
        self._max_result = checked.whole("max_result", max_result, at_least=1)
        self.spec = ToolSpec(
            name=_checked_name(fn, name),
            description=said.text if description is None else checked.text("description", description),
            parameters=self._arguments.schema,
        )
        self._rule.check_names(self.spec.name)
        self.rules = ToolRules(
            timeout=seconds("timeout", timeout, or_none=True, above_zero=True),
            retries=checked.whole("retries", retries, at_least=0),
            max_concurrency=_places(max_concurrency),
            must_finish=checked.one_of("cancel", cancel, ("cancellable", "must_finish")) == "must_finish",
            approval_timeout=seconds("approval_timeout", approval_timeout, or_none=True),
            risks=risks(risk),
        )

    @property
    def name(self) -> str:
        return self.spec.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)

    # --- as a model calls it --------------------------------------------------------------------------------

    def read(self, arguments: str) -> dict[str, Any]:
        return self._arguments.read(arguments)

    async def question(self, arguments: dict[str, Any], ctx: ToolContext) -> Question | None:
        return await self._rule.question(self.name, self._arguments.completed(arguments), self._prompt, ctx)

    async def call(self, arguments: dict[str, Any], ctx: ToolContext) -> Any:
        given = self._with_context(arguments, ctx)
        if self._in_process is not None:
            return await call_in_process(self.fn, (), given, ctx, self._in_process)
        if self._is_async:
            return await _awaited(self.fn(**given))  # pyright: ignore[reportCallIssue]
        returned: Any = await ctx.blocking(self.fn, **given)  # pyright: ignore[reportCallIssue]
        return await returned if inspect.isawaitable(returned) else returned

    def _with_context(self, arguments: dict[str, Any], ctx: ToolContext) -> dict[str, Any]:
        context = self._arguments.context
        return arguments if context is None else {**arguments, context: ctx}

    def text(self, value: Any) -> str:
        return head_and_tail(as_text(value), self._max_result)

    async def compensate(self, arguments: dict[str, Any], ctx: ToolContext) -> bool:
        if self._compensate is None:
            return False
        undo, context = self._compensate
        given = arguments if context is None else {**arguments, context: ctx}
        # What gives a coroutine without being async itself is found out only when it has been called.
        undone: Any = undo(**given) if is_async(undo) else await ctx.in_thread(undo, **given)
        if inspect.isawaitable(undone):
            await undone
        return True

    def __repr__(self) -> str:
        return f"<tool {self.name}>"


def as_text(value: Any) -> str:
    """A tool's value as a model reads it: text as it is, nothing as the empty text, anything else as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    try:
        written = msgspec.json.encode(value, enc_hook=encoded)
        refuse_attachments(value, written)
        return written.decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolError(f"The tool has returned what is no JSON ({type(value).__name__}): {error}") from error


def encoded(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)  # pydantic's
    if callable(dump):
        return dump(mode="json")
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def refuse_attachments(value: Any, written: bytes) -> None:
    """Raises `ToolError` if a value, which in JSON is `written`, holds an image or a file: it would go as base64."""
    if any(mark in written for mark in _MARKS) and _holds_attachment(value):
        raise ToolError(
            "The tool returned an Image or a File inside of another value: return it itself, or in a list with texts."
        )


_MARKS = (b'"type":"image"', b'"type":"file"')  # how both begin in JSON


def _holds_attachment(value: Any) -> bool:
    inner: Iterable[Any] = ()
    if isinstance(value, Image | File):
        return True
    if isinstance(value, Mapping):
        inner = list(cast("Mapping[Any, Any]", value).values())
    elif isinstance(value, list | tuple | set | frozenset | deque):
        inner = cast("Iterable[Any]", value)
    elif isinstance(value, msgspec.Struct):
        inner = (getattr(value, name) for name in value.__struct_fields__)
    elif hasattr(value, "__dict__"):
        inner = list(cast("Any", vars(value)).values())  # a dataclass, a model of pydantic's
    elif dataclasses.is_dataclass(value):
        inner = (getattr(value, field.name, None) for field in dataclasses.fields(value))
    return any(map(_holds_attachment, inner))


async def _awaited(returned: Any) -> Any:
    return await returned


def _checked_name(fn: Callable[..., Any], given: str | None) -> str:
    name = getattr(fn, "__name__", "") if given is None else given
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"a tool's name has letters, digits, _ and -, 64 at most: not {name!r}; give it as tool(name='…')"
        )
    return name


def _callable(name: str, given: C) -> C:
    if not callable(given):
        raise ConfigurationError(f"{name} must be a function, not {given!r}")
    return given


def _places(most: int | None) -> int | None:
    return None if most is None else checked.whole("max_concurrency", most, at_least=1)


def _in_process(fn: Callable[..., Any], isolation: str, sandbox: object, arguments: Arguments) -> Sandboxed | None:
    found = sandbox_of(sandbox)
    if checked.one_of("isolation", isolation, ("thread", "process")) == "thread":
        if found is not None:
            raise ConfigurationError('sandbox= is for a function in a process of its own: add isolation="process"')
        return None
    if arguments.context is not None:
        raise ConfigurationError("a tool in a process of its own gets no context: it cannot cross")
    check_isolated(fn)
    return Sandboxed(found)


def _compensation(undo: Callable[..., Any] | None) -> tuple[Callable[..., Any], str | None] | None:
    return None if undo is None else (_callable("compensate", undo), Arguments(undo, {}).context)


# --- the decorator ------------------------------------------------------------------------------------------


class _Decorator:
    """`@tool(…)`."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options

    def __call__(self, fn: Callable[P, R]) -> FunctionTool[P, R]:
        return FunctionTool(fn, **self._options)


@overload
def tool(fn: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    fn: Callable[P, R],
    /,
    *,
    name: str | None = ...,
    description: str | None = ...,
    timeout: float | None = ...,
    retries: int = ...,
    max_concurrency: int | None = ...,
    cancel: Literal["cancellable", "must_finish"] = ...,
    compensate: Callable[..., Any] | None = ...,
    risk: Risk | Iterable[Risk] | None = ...,
    approval: Approval | None = ...,
    approval_prompt: Prompt | None = ...,
    approval_timeout: float | None = ...,
    approval_subject: Subject | None = ...,
    max_result: int = ...,
    isolation: Literal["thread", "process"] = ...,
    sandbox: SandboxOption = ...,
) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = ...,
    description: str | None = ...,
    timeout: float | None = ...,
    retries: int = ...,
    max_concurrency: int | None = ...,
    cancel: Literal["cancellable", "must_finish"] = ...,
    compensate: Callable[..., Any] | None = ...,
    risk: Risk | Iterable[Risk] | None = ...,
    approval: Approval | None = ...,
    approval_prompt: Prompt | None = ...,
    approval_timeout: float | None = ...,
    approval_subject: Subject | None = ...,
    max_result: int = ...,
    isolation: Literal["thread", "process"] = ...,
    sandbox: SandboxOption = ...,
) -> _Decorator: ...
def tool(fn: Any = None, /, **options: Any) -> Any:
    """Makes a function, plain or async, a tool: `@tool`, `@tool(…)` or `tool(fn, …)`.

    The model sees its name, the text of its docstring and its arguments: their types (whatever JSON can be read into),
    their descriptions (`Annotated[str, "…"]`, or the docstring's). A parameter annotated `ToolContext` gets the
    context, and is not shown. What it returns goes to the model: text as it is, anything else as JSON; `ToolError`
    tells it what went wrong, and so does any other exception.

    `timeout`: seconds for a call, all its attempts included. `retries`: how often a call that raises is tried again.
    `max_concurrency`: so many at once on one event loop. `cancel`: `must_finish` gives a call that has begun the whole
    grace of a stop. `compensate`: called with the same arguments when a call was cut short. `risk`: what harm it can
    do: `reads`, `changes`, `destroys`, `network`, or several of them. `approval`: `always`, `never`, a predicate, or
    patterns of calls that run unasked, by argument (see `Rule`); `None`: as the policy of the agent
    has it for this risk;
    `approval_prompt(**arguments)`: what somebody is asked; `approval_timeout`: seconds, then a no;
    `approval_subject(arguments)`: the text that patterns of the first argument are compared with, if not its value.
    `max_result`: characters that the model gets, head and tail. `isolation`: `process` runs a blocking function where
    it can be killed; `sandbox`: in which it runs there, `"bwrap"` or a `Sandbox(…)`. Raises `ConfigurationError`.

    A plain function runs in a daemon thread, which a stop cannot end: it is given 100 ms, abandoned, and named.
    """
    return _Decorator(options) if fn is None else FunctionTool(fn, **options)
