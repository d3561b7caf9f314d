"""Which calls somebody is asked about: never, always, by a predicate, or all that fit no pattern."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from halter import Agent, RunResult, events, runnable, tool
from halter.core.call import LONGEST_QUESTION
from halter.core.tool_context import ToolContext
from halter.errors import ConfigurationError
from halter.messages import ToolCall, ToolResult
from halter.models.scripted import Scripted
from halter.outcome import Ended
from halter.tools.approval import Rule
from halter.tools.process import shell

pytestmark = pytest.mark.virtual_time
NO_RUN: Any = None  # patterns need none


async def asks(given: Any, **arguments: Any) -> bool:
    @runnable
    async def body(ctx: Any) -> bool:
        return await Rule(given, tuple(arguments)).asks(arguments, ctx)

    return (await body.run()).output


async def test_never_and_always_are_what_they_say() -> None:
    """Whatever the arguments."""
    assert not await asks("never", command="rm")
    assert await asks("always", command="ls")


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_a_predicate_gets_the_arguments_by_name_and_says_where_to_ask(is_async: bool) -> None:
    """Plain or async; what it returns is taken for true or false."""

    def predicate(path: str, force: bool) -> Any:
        return force and path

    async def predicate_async(path: str, force: bool) -> Any:
        await asyncio.sleep(1)
        return predicate(path, force)

    given = predicate_async if is_async else predicate
    assert await asks(given, path="/", force=True)
    assert not await asks(given, path="/", force=False)
    assert not await asks(given, path="", force=True)


@pytest.mark.parametrize(
    ("command", "does_ask"),
    [
        ("git status", False),
        ("git status -s", False),
        ("GIT STATUS", True),
        (" git status", True),
        ("git push", True),
        ("ls", False),
        ("ls -l", True),
        ("", True),
    ],
)
async def test_calls_that_fit_a_pattern_run_unasked_and_all_others_ask(command: str, does_ask: bool) -> None:
    """The whole subject, case and spaces included."""
    assert await asks(("git status*", "ls"), command=command) is does_ask


async def test_a_call_without_a_text_to_compare_always_asks() -> None:
    """No arguments, a first one that is no text."""
    assert await asks(("*",))
    assert await asks(("*",), number=1)
    assert await asks(("*",), nothing=None, command="ls")


@pytest.mark.scenario("K103")
async def test_patterns_name_the_arguments_that_they_are_compared_with() -> None:
    """Each named one must fit, wherever it stands; a key that the tool does not have is never allowed."""
    rule = Rule({"path": ("src/*", "docs/*"), "mode": "read"}, ("mode", "path", "comment"))
    assert not await rule.asks({"mode": "read", "path": "docs/a", "comment": 1}, NO_RUN)
    assert not await rule.asks({"comment": "", "path": "src/a", "mode": "read"}, NO_RUN)
    assert await rule.asks({"mode": "write", "path": "src/a"}, NO_RUN)
    assert await rule.asks({"mode": "read", "path": "/etc"}, NO_RUN)
    assert await rule.asks({"path": "src/a"}, NO_RUN)
    assert await rule.asks({"mode": "read", "path": "src/a", "paths": "/etc"}, NO_RUN)


@pytest.mark.scenario("K103")
async def test_patterns_without_a_name_are_about_the_first_argument_of_the_schema() -> None:
    """In whatever order a model writes them."""
    rule = Rule(("src/*",), ("path", "comment"))
    assert not await rule.asks({"path": "src/a", "comment": "/etc"}, NO_RUN)
    assert await rule.asks({"comment": "src/a", "path": "/etc"}, NO_RUN)
    assert await rule.asks({"comment": "src/a"}, NO_RUN)
    assert await rule.asks({"aside": "src/a", "path": "src/a"}, NO_RUN)


@pytest.mark.scenario("K103")
@pytest.mark.parametrize(
    ("text", "pattern", "does_ask"),
    [
        ("notes/../secret", "notes/*", True),
        ("notes/..", "notes/*", True),
        ("..\\secret", "*", True),
        ("../secret", "../*", False),
        ("git diff HEAD..main", "git diff*", False),
        ("notes/a..b", "notes/*", False),
    ],
)
async def test_a_path_that_leads_up_fits_only_a_pattern_that_does(text: str, pattern: str, does_ask: bool) -> None:
    assert await asks((pattern,), path=text) is does_ask


async def test_patterns_for_an_argument_that_the_tool_does_not_have_are_refused() -> None:
    """With the name that was probably meant."""

    async def delete(path: str, force: bool = False) -> None: ...

    with pytest.raises(ConfigurationError, match="'pth', which delete does not have: did you mean 'path'"):
        tool(delete, approval={"pth": ("/tmp/*",)})
    with pytest.raises(ConfigurationError, match="there are: force, path"):
        tool(delete, approval={"xyz": ("/tmp/*",)})


@pytest.mark.scenario("K103")
async def test_a_subject_stands_for_the_first_argument_also_where_patterns_name_it() -> None:
    """The shell's rule of plain commands holds in both forms."""
    sh = shell(approval={"command": ("git log*",)})
    rule = sh._rule
    assert not await rule.asks({"command": "git log -1", "timeout": None}, NO_RUN)
    assert await rule.asks({"command": "git log; rm -rf ~", "timeout": None}, NO_RUN)


@pytest.mark.parametrize("wrong", ["sometimes", "", (), [], (1,), ("ls", None), 7, {}, {"a": ()}, {1: "ls"}])
async def test_what_is_no_rule_is_refused_where_the_tool_is_made(wrong: Any) -> None:
    """A text that is no rule is no pattern either: it would be taken for its letters."""
    with pytest.raises(ConfigurationError, match="approval"):
        Rule(wrong, ("command",))


# --- in a run -----------------------------------------------------------------------------------------------


async def outcome_of(*arguments: str, **options: Any) -> tuple[list[str], list[events.InputRequested], list[str]]:
    """What has run, what was asked (and never answered), and what the model was told."""
    ran: list[str] = []

    async def delete(path: str = "/", comment: str = "", force: bool = False) -> str:
        ran.append(path)
        return "deleted"

    made = tool(delete, approval_timeout=1, **options)
    script = Scripted(tuple(ToolCall("", "delete", each) for each in arguments), "done")
    run = Agent(script, tools=[made]).run("hi")
    result = await run
    asked = [event async for event in run.events() if isinstance(event, events.InputRequested)]
    told = [part.content for part in result.messages[2].parts if isinstance(part, ToolResult)]
    return ran, asked, told


@pytest.mark.scenario("C38")
async def test_patterns_are_about_the_first_parameter_also_where_the_model_leaves_it_out() -> None:
    """Its default is what the call would use; another argument never stands in for it, in whatever order written."""
    ran, asked, _ = await outcome_of(
        '{"path": "/tmp/a"}',
        '{"comment": "/tmp/b"}',
        '{"comment": "/tmp/c", "path": "/etc"}',
        "{}",
        approval=("/tmp/*",),
    )
    assert ran == ["/tmp/a"]
    assert [event.prompt.count('"path":"/"') for event in asked] == [1, 0, 1]


@pytest.mark.scenario("C38")
async def test_a_predicate_that_raises_keeps_the_call_from_running() -> None:
    """It fails closed, and the model is told."""

    def broken(**_: Any) -> bool:
        raise LookupError("no such rule")

    ran, asked, told = await outcome_of("{}", approval=broken)
    assert (ran, asked, told) == ([], [], ["LookupError: no such rule"])


async def test_a_predicate_gets_defaults_as_well() -> None:
    """It need not have its own."""

    def asks_by_force(path: str, comment: str, force: bool) -> bool:
        return force

    ran, asked, _ = await outcome_of('{"path": "/a"}', '{"path": "/b", "force": true}', approval=asks_by_force)
    assert (ran, len(asked)) == (["/a"], 1)


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_the_prompt_may_be_ones_own(is_async: bool) -> None:
    """Made of the arguments."""

    def prompt(path: str, comment: str, force: bool) -> str:
        return f"Delete {path}?"

    async def prompt_async(path: str, comment: str, force: bool) -> str:
        return prompt(path, comment, force)

    _, asked, _ = await outcome_of("{}", approval="always", approval_prompt=prompt_async if is_async else prompt)
    assert [event.prompt for event in asked] == ["Delete /?"]


@pytest.mark.parametrize("option", ["approval", "approval_prompt"])
@pytest.mark.real_loop
async def test_a_function_that_decides_in_a_thread_has_its_line_in_the_receipt_of_a_stop(option: str) -> None:
    """Nobody can end a thread: the receipt names the one that was left behind."""
    working, over = threading.Event(), threading.Event()

    def decides(**_: object) -> bool:
        working.set()
        return over.wait(10)

    async def delete(path: str = "/") -> str:
        return "deleted"

    made = tool(delete, **{"approval": "always", option: decides})  # pyright: ignore[reportArgumentType, reportCallIssue]
    run = Agent(Scripted(ToolCall("", "delete", "{}"), "done"), tools=[made]).run("hi").start()
    await asyncio.to_thread(working.wait, 10)
    run.cancel()
    result = await run.finished()
    over.set()
    assert result.receipt is not None
    assert not result.receipt.confirmed
    (line,) = [line for line in result.receipt.resources if line.kind == "thread"]
    assert (line.ended, "decides" in line.label) == (Ended.ABANDONED, True)


def deletion(path: str, **_: object) -> str:
    return f"Delete {path}?"


def number(**_: object) -> Any:
    return 7


@pytest.mark.scenario("K104")
async def test_a_question_shows_all_of_long_arguments() -> None:
    """The middle is where the trick would be."""
    trick = f"{'x' * 40_000}; rm -rf ~; {'x' * 40_000}"
    _, (asked,), _ = await outcome_of(f'{{"path": "{trick}"}}', approval="always")
    assert trick in asked.prompt


@pytest.mark.scenario("K104")
@pytest.mark.parametrize("prompt", [None, deletion], ids=["ours", "ones-own"])
async def test_a_call_that_is_too_long_to_be_shown_is_refused_and_nobody_is_asked(prompt: Any) -> None:
    """The model is told to do it in parts."""
    huge = "x" * LONGEST_QUESTION
    ran, asked, told = await outcome_of(f'{{"path": "{huge}"}}', approval="always", approval_prompt=prompt)
    assert (ran, asked) == ([], [])
    assert "100,000 are the most. Do it in smaller parts." in told[0]


@pytest.mark.scenario("K104")
async def test_what_a_tool_asks_by_itself_hides_nothing_either() -> None:
    """Its question, and the answers that it takes."""

    @tool
    async def clean(ctx: ToolContext) -> str:
        await ctx.approve("Delete \u202egpj.tac?", timeout=1)
        return "deleted"

    @tool
    async def ask(ctx: ToolContext) -> str:
        return await ctx.ask("Which\u200b?", options=("a\U000e0041",), timeout=1)

    run = Agent(Scripted((ToolCall("", "clean", "{}"), ToolCall("", "ask", "{}")), "done"), tools=[clean, ask]).run(
        "hi"
    )
    asked: list[tuple[str, tuple[str, ...]]] = []
    async for event in run:
        if isinstance(event, events.InputRequested):
            asked.append((event.prompt, event.options))
            run.answer(event.request_id, event.options[0])
    assert asked == [("Delete \\u202egpj.tac?", ("yes", "no")), ("Which\\u200b?", ("a\\U000e0041",))]


@pytest.mark.parametrize("prompt", [None, deletion], ids=["ours", "ones-own"])
async def test_a_prompt_shows_what_would_hide_a_part_of_it(prompt: Any) -> None:
    """A carriage return would overwrite what is approved, the other ones move the cursor or turn the direction."""
    hiding = r"/etc\r\u001b[2K\u009b2K\u202e/tmp"
    _, (asked,), _ = await outcome_of(f'{{"path": "{hiding}"}}', approval="always", approval_prompt=prompt)
    assert "/etc" in asked.prompt
    assert not set(asked.prompt) & set("\r\x1b\x9b\u202e")


async def test_a_prompt_that_is_no_text_keeps_the_call_from_running() -> None:
    """The model is told, nobody is asked."""
    ran, asked, told = await outcome_of("{}", approval="always", approval_prompt=number)
    assert (ran, asked) == ([], [])
    assert "must give text" in told[0]


async def test_wrong_arguments_are_told_before_anybody_is_asked() -> None:
    """Nobody is bothered with a call that cannot be made."""
    ran, asked, told = await outcome_of('{"path": 7}', approval="always")
    assert (ran, asked) == ([], [])
    assert told[0].startswith("The call was not made")


# --- asked by the tool itself -------------------------------------------------------------------------------


async def approving(answer: object) -> tuple[list[str], events.ToolFinished, RunResult[Any]]:
    """What the tool has done, and how its call and the run ended; `answer`: `None` gives none, `cancel` stops it."""
    did: list[str] = []

    @tool(timeout=5)
    async def clean(ctx: ToolContext) -> str:
        did.append("looked")
        await asyncio.sleep(4)
        await ctx.approve("Delete all 3,000?", timeout=60)
        await asyncio.sleep(0.9)
        did.append("deleted")
        return "deleted"

    run = Agent(Scripted(ToolCall("", "clean", "{}"), "done"), tools=[clean]).run("hi")
    finished: list[events.ToolFinished] = []
    async for event in run:
        if isinstance(event, events.InputRequested):
            assert (event.kind, event.prompt) == ("approval", "Delete all 3,000?")
            await asyncio.sleep(30)
            if answer == "cancel":
                run.cancel()
            elif answer is not None:
                run.answer(event.request_id, answer)
        elif isinstance(event, events.ToolFinished):
            finished.append(event)
    return did, finished[0], await run.finished()


async def test_a_tool_may_ask_while_it_runs_and_the_wait_is_not_its_time() -> None:
    """Five seconds are its own: four before the question, and less than one after it."""
    did, finished, _ = await approving(True)
    assert (did, finished.outcome) == (["looked", "deleted"], "ok")


@pytest.mark.parametrize(
    ("answer", "told"),
    [("no", "This call was not allowed."), (None, "This call was not allowed. Nobody answered in time.")],
)
async def test_without_a_yes_a_call_that_asks_ends_as_denied(answer: object, told: str) -> None:
    did, finished, _ = await approving(answer)
    assert (did, finished.outcome, finished.result) == (["looked"], "denied", told)


async def test_a_stop_ends_a_call_that_waits_for_its_yes() -> None:
    did, finished, result = await approving("cancel")
    assert (did, finished.outcome, result.is_cancelled) == (["looked"], "cancelled", True)
