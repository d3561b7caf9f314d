"""The shapes by which the rooms know each other: what a model is, what runs, who watches."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote

import msgspec

from halter.events import Event, ToolLate
from halter.messages import Message, Usage
from halter.outcome import RunResult
from halter.request import ModelRequest, ToolSpec
from halter.risk import Risk

if TYPE_CHECKING:
    from halter.core.context import RunContext
    from halter.core.execution import Execution
    from halter.core.options import RunOptions
    from halter.core.tool_context import ToolContext


LARGEST_READ = 12 * 1024  # bytes: decoded in one go; by so much may a request overshoot a stop or a budget


class Definition(Protocol):
    """What an execution runs: immutable, shared by any number of runs at once."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def model_name(self) -> str | None: ...

    def check_state(self, state: Any) -> Any:
        """The state to go on from, as the body expects it. Raises `ConfigurationError`."""
        ...

    def check_options(self, options: RunOptions) -> None:
        """Raises `ConfigurationError` for what does not go together."""
        ...

    def goes_on(self, input: Any) -> bool:
        """True if, with this input, it goes on where the last run on its session was stopped, if it has a state."""
        ...

    async def execute(self, ctx: RunContext) -> Any:
        """The body of one run; what it returns is the run's output."""
        ...


class Price(Protocol):
    """What a model's tokens cost."""

    def cost(self, usage: Usage) -> float:
        """US dollars."""
        ...


class Model(Protocol):
    """A provider's streaming endpoint behind one method; immutable data.

    It may have more. Agents are checked when they are made by `features` (a `Features`) and by
    `check_definition(settings, tools=…, tool_choice=…)`. Without `price` (a `Price`, or `None`) a budget in dollars is
    refused, and nobody knows what a run has cost.
    """

    @property
    def name(self) -> str:
        """As in `openai:gpt-5.2`."""
        ...

    async def respond(self, request: ModelRequest, ctx: RunContext) -> Message:
        """Streams one answer through `ctx.reply(…)` and returns it whole. Raises `ProviderError`."""
        ...


class ToolRules(msgspec.Struct, frozen=True, kw_only=True):
    """How the calls of a tool are run.

    `timeout`: seconds for a call, all its attempts included. `retries`: how often one that raises is tried again.
    `max_concurrency`: so many at once on one event loop. `must_finish`: a stop leaves a call that has begun the whole
    grace. `approval_timeout`: seconds that a question waits for its answer; then it is a no. `risks`: what harm it can
    do; empty if nobody has said.
    """

    timeout: float | None = None
    retries: int = 0
    max_concurrency: int | None = None
    must_finish: bool = False
    approval_timeout: float | None = 300.0
    risks: frozenset[Risk] = frozenset()


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody must say yes to before a call runs.

    `prompt`: what the call does, whole. `pattern`: what a remembered yes would hold for, by argument, as in
    `approval={"command": "git status"}`; `None`: a yes counts for this call alone.
    """

    prompt: str
    pattern: Mapping[str, Any] | None = None


class Tool(Protocol):
    """Something that a model may call; immutable."""

    @property
    def spec(self) -> ToolSpec:
        """As the model sees it."""
        ...

    @property
    def rules(self) -> ToolRules: ...

    def read(self, arguments: str) -> Any:
        """The model's JSON as `call` takes it. Raises `ToolError`, which tells the model what is wrong with it."""
        ...

    async def question(self, arguments: Any, ctx: ToolContext) -> Question | None:
        """What somebody must say yes to before this call runs; `None`: nothing."""
        ...

    async def call(self, arguments: Any, ctx: ToolContext) -> Any:
        """Runs it. Raises `ToolError` for what the model should know; any other exception is told to it as well."""
        ...

    def text(self, value: Any) -> str:
        """What `call` has returned, as the model gets it."""
        ...

    async def compensate(self, arguments: Any, ctx: ToolContext) -> bool:
        """Undoes a call that was cut short after it had begun; False if there is nothing that could."""
        ...


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """What a run on a session begins with.

    `messages`: the conversation so far, as a model is to see it. `state`: what the last run has left to go on from.
    `answered`: another run has taken up what this one was to say; this is how that one ended.
    """

    messages: tuple[Message, ...] = ()
    state: Any = None
    answered: RunResult[Any] | None = None


class SessionTurn(Protocol):
    """One run's turn on a session: what was said before, and where what is said now is kept. On one event loop.

    Its methods are called one at a time, and never cancelled half-way, but for `open`. All raise `SessionsUnavailable`
    and `TurnLost`.
    """

    @property
    def session_id(self) -> str | None: ...

    @property
    def user(self) -> str | None:
        """The session's user, once the turn has begun."""
        ...

    @property
    def key(self) -> Hashable:
        """What no session of another place has, even one of the same id."""
        ...

    async def open(self, execution: Execution) -> Opened:
        """Waits for its turn as `on_busy` says. Raises `SessionBusy`, `SessionNotFound`.

        Cancelled: `close` lets go of what it has got.
        """
        ...

    async def write(self, at: int, messages: Sequence[Message], state: Any) -> None:
        """From the run's message `at` on, what is said is `messages`; and this is its state, unless it is `UNSET`."""
        ...

    async def compact(self, upto: int, messages: Sequence[Message]) -> None:
        """For a model, `messages` stand for the run's first `upto` messages from now on."""
        ...

    async def close(self, result: RunResult[Any], at: int, messages: Sequence[Message], state: Any) -> None:
        """A last `write`, and how the run has ended; somebody else may have the turn. Also where it never opened."""
        ...

    async def late(self, event: ToolLate) -> None:
        """What came of a tool call after the run's end."""
        ...

    def lose(self) -> None:
        """The event loop is gone: nothing more can be stored. From any thread."""
        ...


class SessionRef(Protocol):
    """A session, named: what `run(session=…)` takes."""

    @property
    def id(self) -> str | None: ...

    def turn(self) -> SessionTurn:
        """For one run."""
        ...


class Observer(Protocol):
    """Sees every event of every run, on a thread of its own."""

    def __call__(self, event: Event, /) -> object: ...


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request to a provider. `label`: how it is named in receipts and errors; never holds a secret.

    `asked`: what it is made of, where that is known: for estimates of its size.
    """

    url: str
    headers: Mapping[str, str]
    body: bytes
    method: str = "POST"
    asked: ModelRequest | None = None

    @property
    def label(self) -> str:
        return f"{self.method} {unquote(self.url.split('?')[0].split('://')[-1])}"

    def __repr__(self) -> str:
        return f"<HttpRequest {self.label}, {len(self.body)} bytes>"  # a key in the headers is nobody's business


class Progress(Protocol):
    """Told by a byte source how far an opening request has come, so that each phase has its own time-out."""

    def connecting(self) -> None:
        """A pool slot is held."""
        ...

    def sending(self) -> None:
        """The connection stands; the request goes out."""
        ...


class ByteStream(Protocol):
    """The answer to an `HttpRequest`: its head is here, its body comes as it comes."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case."""
        ...

    def __aiter__(self) -> AsyncIterator[bytes]:
        """The body, in reads as large as they come, up to `LARGEST_READ`. Raises `ConnectionFailed` if it breaks."""
        ...

    async def pump(self, take: Callable[[bytes], bool]) -> bool:
        """The body as calls of `take`, where the bytes arrive: no task is woken for a read.

        Returns True when `take` did, which asks for a pause: call again to go on. False: the body is over. Raises
        what `take` raises, and as `__aiter__`.
        """
        ...


class ByteSource(Protocol):
    """The seam under all HTTP policy: aiohttp in production, memory in tests."""

    def open(
        self, request: HttpRequest, ctx: RunContext, progress: Progress
    ) -> AbstractAsyncContextManager[ByteStream]:
        """Sends the request; entering waits for the head. Leaving early aborts the connection.

        Raises `ConnectionFailed`. Registers its socket with `ctx.resource`, so that a stop ends it.
        """
        ...
