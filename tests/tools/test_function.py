"""`@tool`: a function as something that a model may call; what it is told, what it gets, what it gives."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import threading
from typing import Annotated, Any

import msgspec
import pydantic
import pytest

import halter
from halter import Agent, RunContext, events, tool
from halter.errors import ConfigurationError, UsageError
from halter.messages import ToolResult
from halter.models.scripted import Scripted, calls
from halter.tools import FunctionTool, ToolContext, ToolError
from halter.tools.function import as_text

virtual = pytest.mark.virtual_time


async def told(made: Any, context: Any = None, **arguments: Any) -> str:
    """What the model is told of one call."""
    name = made.name if isinstance(made, FunctionTool) else made.__name__
    result = await Agent(Scripted(calls(name, **arguments), "done"), tools=[made]).run("hi", context=context)
    (part,) = result.messages[2].parts
    assert isinstance(part, ToolResult)
    return part.content


@virtual
@pytest.mark.parametrize("name", ["fn", "self", "ctx"])
async def test_a_plain_functions_parameters_may_have_any_name(name: str) -> None:
    """Also those of Halter's own functions that carry it into a thread."""
    space: dict[str, Any] = {}
    exec(f"def called({name}: str) -> str:\n    return {name}", space)
    decided: list[object] = []
    made = tool(space["called"], description="x", approval=lambda **given: bool(decided.append(given)))
    assert await told(made, **{name: "here"}) == "here"
    assert decided == [{name: "here"}]


# --- making one ---------------------------------------------------------------------------------------------


def test_a_tool_is_made_with_or_without_options_and_stays_the_function() -> None:
    """`@tool`, `@tool(…)`, `tool(fn, …)`; called, it is the function; the names at the root and here are one."""

    def look(city: str) -> str:
        """Looks out of the window.

        Args:
            city: Where.
        """
        return city.upper()

    for made in (tool(look), tool()(look), tool(look, timeout=3), tool(timeout=3)(look)):
        assert isinstance(made, FunctionTool)
        assert (made.name, made.spec.name, made.spec.description) == ("look", "look", "Looks out of the window.")
        assert made.spec.parameters["properties"]["city"]["description"] == "Where."
        assert made("kyoto") == "KYOTO"
        assert repr(made) == "<tool look>"
    assert halter.tool is tool
    named = tool(look, name="see", description="Sees.")
    assert (named.spec.name, named.spec.description) == ("see", "Sees.")


def test_methods_are_tools_and_self_is_no_argument() -> None:
    """Bound ones, static ones and those of the class."""

    class Shop:
        def price(self, item: str) -> str:
            return item

        @staticmethod
        def open(day: str) -> str:
            return day

        @classmethod
        def make(cls, name: str) -> str:
            return name

    shop = Shop()
    for method, argument in ((shop.price, "item"), (shop.open, "day"), (Shop.make, "name")):
        assert list(tool(method).spec.parameters["properties"]) == [argument]


def test_a_method_without_its_object_is_refused() -> None:
    """Decorated in its class: the model would be asked for `self`."""
    with pytest.raises(ConfigurationError, match=r"tool\(object\.method\)"):

        class Shop:  # pyright: ignore[reportUnusedClass]
            @tool
            def price(self, item: str) -> str:
                return item


def generator() -> Any:
    yield 1


async def async_generator() -> Any:
    yield 1


@pytest.mark.parametrize(
    "wrong",
    [7, "look", generator, async_generator, lambda: None, int, tool(lambda: None, name="made")],
    ids=["number", "text", "yields", "yields-async", "lambda", "without-signature", "tool"],
)
def test_what_is_no_function_with_a_name_is_refused(wrong: Any) -> None:
    """With a word on what to do."""
    with pytest.raises(ConfigurationError):
        tool(wrong)


def takes_anything(*rest: Any) -> None: ...


WRONG: list[dict[str, Any]] = [
    {"name": "two words"},
    {"name": ""},
    {"name": "x" * 65},
    {"name": 7},
    {"description": 7},
    {"timeout": 0},
    {"timeout": -1},
    {"timeout": "1"},
    {"retries": -1},
    {"retries": 1.5},
    {"retries": True},
    {"max_concurrency": 0},
    {"cancel": "never"},
    {"compensate": 7},
    {"compensate": takes_anything},
    {"approval": "sometimes"},
    {"approval": ()},
    {"approval_prompt": "Really?"},
    {"approval_timeout": -1},
    {"approval_subject": "path"},
    {"max_result": 0},
    {"isolation": "container"},
]


@pytest.mark.parametrize("options", WRONG, ids="-".join)
def test_a_wrong_option_is_a_clear_error_where_the_tool_is_made(options: dict[str, Any]) -> None:
    """Not in the middle of a run."""

    def look() -> None: ...

    with pytest.raises(ConfigurationError):
        tool(look, **options)


# --- what it gets -------------------------------------------------------------------------------------------


@virtual
async def test_a_function_gets_its_arguments_as_values_and_the_context_under_its_own_name() -> None:
    """The caller's object, the run, the call."""
    seen: list[Any] = []

    async def look(day: datetime.date, here: ToolContext, n: int = 3) -> None:
        seen.extend((day, n, here.context, here.name, here.run_id, bool(here.call_id), here.timeout, here.grace))
        seen.append(isinstance(here, RunContext))

    run = Agent(Scripted(calls("look", day="2026-01-31"), "done"), tools=[look]).run("hi", context="ada", timeout=9)
    await run
    assert seen == [datetime.date(2026, 1, 31), 3, "ada", "look", run.id, True, 9, 5.0, True]


@virtual
async def test_an_async_tool_runs_on_the_loop_and_a_plain_one_beside_it() -> None:
    """So only an async one counts on virtual time; see the threads below."""
    where: list[int] = []

    async def look() -> None:
        where.append(threading.get_ident())

    await told(look)
    assert where == [threading.get_ident()]


def test_a_plain_tool_runs_in_a_daemon_thread_that_belongs_to_the_run() -> None:
    """It may emit, ask for the current run, and start children."""
    seen: list[Any] = []
    child = Agent("scripted:from the child", name="child")

    def look(ctx: ToolContext) -> str:
        thread = threading.current_thread()
        seen.extend((thread.daemon, thread is threading.main_thread(), halter.current_run().id == ctx.run_id))
        ctx.progress("half", {"done": 0.5})
        ctx.emit("note", 1)
        return child.run("go").result(timeout=5).text

    run = Agent(Scripted(calls("look"), "done"), tools=[look]).run("hi")
    result = run.result(timeout=10)
    assert seen == [True, False, True]
    (part,) = result.messages[2].parts
    assert isinstance(part, ToolResult)
    assert part.content == "from the child"
    log = list(run.events())
    assert [event.text for event in log if isinstance(event, events.ToolProgress)] == ["half"]
    assert [event.name for event in log if isinstance(event, events.Custom)] == ["note"]
    assert [event.parent_id for event in log if isinstance(event, events.Started)] == [None, run.id]


@virtual
async def test_a_plain_function_that_returns_an_awaitable_has_it_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a decorator of somebody else's leaves one."""

    async def inner() -> str:
        return "awaited"

    def outer() -> Any:
        return inner()

    async def blocking(self: Any, fn: Any, *args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    monkeypatch.setattr(ToolContext, "blocking", blocking)  # no threads in virtual time
    assert await told(outer) == "awaited"


@virtual
async def test_an_object_whose_call_is_async_runs_on_the_loop() -> None:
    """It has the time to clean up that an async tool has, not the short patience with a thread."""
    cleaned: list[str] = []

    class Look:
        async def __call__(self) -> str:
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(1)
                cleaned.append("cleaned")
            return "never"

    run = Agent(Scripted(calls("look")), tools=[tool(Look(), name="look")]).run("hi", grace=5).start()
    await asyncio.sleep(1)
    run.cancel()
    result = await run.finished()
    assert cleaned == ["cleaned"]
    assert result.receipt is not None
    assert result.receipt.confirmed


class Release:
    def __init__(self, undone: list[str]) -> None:
        self._undone = undone

    async def __call__(self) -> None:
        await asyncio.sleep(0)
        self._undone.append("undone")


@pytest.mark.real_loop
@pytest.mark.parametrize("form", ["object", "plain", "gives-a-coroutine"])
async def test_undoing_is_done_whatever_form_its_function_has(form: str) -> None:
    """The model is told that it was undone: a coroutine that nobody awaits would make that a lie."""
    undone: list[str] = []
    release = Release(undone)

    def gives_a_coroutine() -> Any:
        return release()

    forms: dict[str, Any] = {
        "object": release,
        "plain": lambda: undone.append("undone"),
        "gives-a-coroutine": gives_a_coroutine,
    }

    async def work() -> None:
        await asyncio.sleep(60)

    async with Agent(Scripted(calls("work")), tools=[tool(work, compensate=forms[form])]).run("hi") as run:
        async for event in run:
            if event.type == "tool.started":
                await asyncio.sleep(0)  # its first step
                run.cancel()
    assert undone == ["undone"]
    assert run.outcome is not None
    (part,) = run.outcome.messages[-1].parts
    assert isinstance(part, ToolResult)
    assert part.content.endswith("What it had done was undone.")


# --- what it gives ------------------------------------------------------------------------------------------


class Place(msgspec.Struct):
    city: str
    at: datetime.date | None = None


@dataclasses.dataclass
class Size:
    width: int


class Person(pydantic.BaseModel):
    age: int
    born: datetime.date = datetime.date(2000, 1, 1)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        ("", ""),
        (None, ""),
        (True, "true"),
        (1.5, "1.5"),
        ([1, "ä"], '[1,"ä"]'),
        ({"a": None}, '{"a":null}'),
        (Place("Kyoto", datetime.date(2026, 1, 31)), '{"city":"Kyoto","at":"2026-01-31"}'),
        (Size(3), '{"width":3}'),
        (Person(age=5), '{"age":5,"born":"2000-01-01"}'),
        ([Person(age=5)], '[{"age":5,"born":"2000-01-01"}]'),
        (b"\x00", '"AA=="'),
    ],
    ids=lambda value: type(value).__name__,
)
@virtual
async def test_text_goes_to_the_model_as_it_is_and_anything_else_as_json(value: Any, text: str) -> None:
    """Nothing is the empty text."""

    async def give() -> Any:
        return value

    assert await told(give) == text


@virtual
async def test_what_is_no_json_is_an_error_that_says_so() -> None:
    """Objects, and what contains itself; the run goes on."""
    endless: list[Any] = []
    endless.append(endless)
    for value in (object(), endless, {1j: 2}):
        with pytest.raises(ToolError, match="no JSON"):
            as_text(value)

    async def give() -> Any:
        return [object()]

    assert await told(give) == "The tool has returned what is no JSON (list): object has no form in JSON"


@virtual
async def test_a_result_that_is_too_long_is_cut_in_its_middle() -> None:
    """Head and tail, and how much is missing."""

    @tool(max_result=100)
    async def give() -> str:
        return "a" * 5_000 + "b" * 5_000

    text = await told(give)
    assert text.startswith("a" * 50 + "\n")
    assert text.endswith("\n" + "b" * 50)
    assert "9,900 characters left out" in text


@virtual
async def test_half_a_surrogate_pair_in_a_result_harms_no_event_and_no_request() -> None:
    """As file names have them that are no UTF-8: in results and in errors."""

    async def give() -> str:
        return "bad \udcff näme"

    async def fail() -> str:
        raise FileNotFoundError("bad \udcff näme")

    async def show(ctx: ToolContext) -> None:
        ctx.progress("bad \udcff näme")
        await ctx.ask("bad \udcff näme?", options=("bad \udcff näme",))

    run = Agent(Scripted((calls("give"), calls("fail"), calls("show")), "done"), tools=[give, fail, show]).run("hi")
    async for event in run:
        if isinstance(event, events.InputRequested):
            run.answer(event.request_id, event.options[0])
    result = await run
    written = [event async for event in run.events()]
    assert all(msgspec.json.encode(event) for event in written), "without the fallback of `events.encode`"
    assert [event.text for event in written if isinstance(event, events.ToolProgress)] == ["bad \ufffd näme"]
    assert [event.prompt for event in written if isinstance(event, events.InputRequested)] == [r"bad \udcff näme?"]
    assert msgspec.json.encode(result.messages)
    parts = [part.content for part in result.messages[2].parts if isinstance(part, ToolResult)]
    assert parts == ["bad \ufffd näme", "FileNotFoundError: bad \ufffd näme", ""]


@virtual
async def test_a_tool_has_no_voice_in_the_answer() -> None:
    """`ctx.text` is refused with a word on what to use."""

    async def speak(ctx: ToolContext) -> None:
        ctx.text("me too")

    assert (await told(speak)).startswith("UsageError: a tool has no voice")

    async def stammer(ctx: ToolContext) -> None:
        with pytest.raises(UsageError):
            ctx.progress(b"bytes")  # type: ignore[arg-type]

    assert await told(stammer) == ""


@virtual
async def test_progress_after_the_end_of_its_call_is_dropped() -> None:
    """Nothing of a call comes behind its `tool.finished`."""
    kept: list[ToolContext] = []

    async def first(ctx: ToolContext) -> None:
        kept.append(ctx)

    async def second() -> None:
        kept[0].progress("too late")

    run = Agent(Scripted(calls("first"), calls("second"), "done"), tools=[first, second]).run("hi")
    await run
    assert not [event async for event in run.events() if isinstance(event, events.ToolProgress)]


@virtual
async def test_what_a_call_leaves_open_is_closed_at_its_end() -> None:
    """The newest first; its tasks are cancelled; the run goes on."""
    ended: list[str] = []

    async def lie_low() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("task")

    async def leave(ctx: ToolContext) -> None:
        ctx.resource("thing", "first", lambda: ended.append("first"))
        ctx.resource("thing", "second", lambda: ended.append("second"))
        ctx.on_cancel(lambda: ended.append("on_cancel"))
        ctx.spawn(lie_low())
        await asyncio.sleep(0)

    run = Agent(Scripted(calls("leave"), "one two", pace=1), tools=[leave]).run("hi")
    await run
    assert ended == ["second", "first", "task"]


@virtual
async def test_descriptions_may_stand_at_the_types() -> None:
    """As in a signature that says it all."""

    async def look(city: Annotated[str, "Where to look."]) -> None: ...

    assert tool(look).spec.parameters["properties"]["city"] == {"type": "string", "description": "Where to look."}
