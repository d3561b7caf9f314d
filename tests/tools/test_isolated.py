"""A blocking function in a process of its own: what crosses, how it is killed, and what it cannot be."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from halter import Run
from halter.errors import ConfigurationError
from halter.outcome import Ended
from halter.testing import leak_check
from halter.tools import isolated
from halter.tools.function import ToolContext, tool
from halter.tools.isolated import check_isolated

from ..bounds import T, assert_within
from .processes import agent_calling, alive, call, called, new_name, until

SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module of the functions, under a name by which another process can import it too."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import isolated_functions

    yield isolated_functions
    del sys.modules["isolated_functions"]


# --- what crosses -------------------------------------------------------------------------------------------


@pytest.mark.loops
async def test_arguments_and_value_cross_and_it_is_another_process(functions: ModuleType) -> None:
    after = await call(functions.whereabouts, point={"x": 2, "y": 3})
    value = json.loads(after.text)
    assert value["sum"] == 5
    assert value["pid"] not in (os.getpid(), os.getppid())
    assert value["group"] == value["pid"]
    assert value["stdin"] == ""


@pytest.mark.real_loop
async def test_a_large_value_and_large_arguments_cross(functions: ModuleType) -> None:
    assert len((await call(tool(functions.much.fn, isolation="process", max_result=4_000_000))).text) == 3_000_000
    upper = tool(functions.plain, isolation="process", max_result=4_000_000)
    assert (await call(upper, text="x" * 1_000_000)).text == "X" * 1_000_000


@pytest.mark.real_loop
async def test_static_methods_are_found_by_their_names(functions: ModuleType) -> None:
    assert (await call(tool(functions.Holder.static, isolation="process"), text="abc")).text == "cba"


@pytest.mark.real_loop
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("fail", "NotFound: no such thing"),
        ("fail_oddly", "RaisedElsewhere: Odd: 12"),
        ("crash", "ProcessDied: the process of crash died: ended by signal 9, SIGKILL"),
        ("leave", "ProcessDied: the process of leave died: exit code 7"),
        ("nothing_that_crosses", "TypeError: nothing_that_crosses has returned what has no form in JSON (function)"),
    ],
)
async def test_what_goes_wrong_there_is_told_here(functions: ModuleType, name: str, text: str) -> None:
    after = await call(getattr(functions, name))
    assert after.finished.outcome == "error"
    assert after.text.startswith(text)


@pytest.mark.real_loop
async def test_threads_that_it_leaves_do_not_hold_it_up(functions: ModuleType) -> None:
    after = await call(functions.linger)
    assert after.text == "done"
    assert_within(5.0, after.finished.elapsed)


@pytest.mark.real_loop
async def test_nothing_that_comes_from_there_is_unpickled(
    functions: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a value, nor an exception, nor bytes that the function writes itself."""
    trace = tmp_path / "trace"
    monkeypatch.setenv("HALTER_TEST_TRACE", str(trace))
    assert (await call(functions.return_armed)).text.startswith("TypeError: return_armed has returned")
    assert (await call(functions.raise_armed)).text.startswith("RaisedElsewhere: Armed: <isolated_functions.Weapon")
    after = await call(functions.answer_by_hand, text="", is_pickle=True)
    assert after.text.startswith("ProcessDied: the process of answer_by_hand gave an answer that cannot be read")
    assert not trace.exists()


@pytest.mark.real_loop
@pytest.mark.parametrize(
    "answer",
    ["", "7", "{}", '{"raised": 1}', '{"raised": {"module": "os", "name": "system"}}', "[" * 100_000, '"returned"'],
    ids=["nothing", "number", "empty", "number-raised", "half", "deep", "text"],
)
async def test_an_answer_of_another_kind_is_an_error(functions: ModuleType, answer: str) -> None:
    after = await call(functions.answer_by_hand, text=answer)
    assert after.text.startswith("ProcessDied: the process of answer_by_hand gave an answer that cannot be read")


@pytest.mark.real_loop
async def test_a_value_crosses_as_json_has_it(functions: ModuleType) -> None:
    """As the model gets it from a tool in a thread, too."""
    here = functions.many_kinds.text(functions.many_kinds.fn())
    assert json.loads((await call(functions.many_kinds)).text) == json.loads(here)


@pytest.mark.real_loop
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tool", "use another path"),
        ("file", "FileNotFoundError: [Errno 2] No such file or directory: '/no/such/file'"),
        ("exit", "RaisedElsewhere: SystemExit: 3"),
        ("wordless", "RaisedElsewhere: Wordless: "),
        ("another", "RaisedElsewhere: JSONDecodeError: wrong: line 1 column 2 (char 1)"),
    ],
)
async def test_exceptions_cross_as_plain_data(functions: ModuleType, name: str, text: str) -> None:
    """Those that are built in, the function's own, and `ToolError`; all others by type and text."""
    assert (await call(functions.raise_one, name=name)).text == text


# --- how it ends --------------------------------------------------------------------------------------------


async def begun(functions: ModuleType, name: str) -> Run[Any]:
    """A run in whose call the function has begun: it has started another program."""
    run = agent_calling(functions.sleep, seconds=300, name=name).run("go").start()
    await until(lambda: alive(name))
    return run


@pytest.mark.loops
@pytest.mark.scenario(28)
async def test_a_stop_ends_the_process_and_all_that_it_has_started(
    functions: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated, "TERM_GRACE", 20.0)
    name = new_name()
    run = await begun(functions, name)
    began = time.monotonic()
    run.cancel()
    after = await called(run)
    assert alive(name) == []
    assert_within(T, time.monotonic() - began)
    assert (after.line.label, after.line.ended) == ("sleep", Ended.TERMINATED)
    assert after.result.receipt.confirmed


@pytest.mark.real_loop
@pytest.mark.scenario(28)
async def test_one_that_ignores_term_is_killed(functions: ModuleType) -> None:
    name = new_name()
    run = agent_calling(functions.deaf, seconds=300, name=name).run("go").start()
    await until(lambda: alive(name))
    began = time.monotonic()
    run.cancel()
    after = await called(run)
    assert after.line.ended is Ended.KILLED
    assert_within(2 * T, time.monotonic() - began)
    assert alive(name) == []


@pytest.mark.real_loop
async def test_a_time_out_of_the_tool_ends_it(functions: ModuleType) -> None:
    name = new_name()
    slow = tool(functions.sleep.fn, isolation="process", timeout=1.0)
    after = await call(slow, seconds=300, name=name)
    assert after.result.is_completed
    assert after.finished.outcome == "error"
    assert alive(name) == []


def test_nothing_of_ours_is_left_after_a_call(functions: ModuleType) -> None:
    async def main() -> None:
        await call(functions.fail)

    with leak_check(ignore_threads=("halter-watchdog", "halter-observers"), warmup=lambda: asyncio.run(main())):
        asyncio.run(main())


# --- what it cannot be --------------------------------------------------------------------------------------


def test_what_another_process_cannot_find_is_refused_where_it_is_defined(functions: ModuleType) -> None:
    def local() -> None: ...

    for fn, said in (
        (local, "is local"),
        (lambda: None, "is local"),
        (functions.Holder().method, "no function of a module"),
        (functools.partial(functions.plain, "a"), "no function of a module"),
        (functions.Holder, "no function of a module"),
        (functions.asynchronous, "is async"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            check_isolated(fn)

    def with_context(ctx: ToolContext) -> None: ...

    with pytest.raises(ConfigurationError, match="context"):
        tool(with_context, isolation="process")


MAIN = """
import asyncio, sys
from halter import Agent
from halter.models.scripted import Scripted, calls
from halter.tools.function import tool

@tool(isolation="process")
def shout(text: str) -> str:
    return text.upper() + " in " + __name__

async def main():
    run = Agent(Scripted(calls("shout", text="hello"), "done"), tools=[shout]).run("go").start()
    async for event in run.events():
        if event.type == "tool.finished":
            print(event.result)

{start}
"""


def run_program(path: Path, start: str) -> subprocess.CompletedProcess[str]:
    path.write_text(textwrap.dedent(MAIN).format(start=start))
    return subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        env={"PYTHONPATH": str(SOURCE), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_a_function_of_the_main_program_works_as_with_multiprocessing(tmp_path: Path) -> None:
    done = run_program(tmp_path / "program.py", 'if __name__ == "__main__":\n    asyncio.run(main())')
    assert (done.stdout, done.stderr) == ("HELLO in __mp_main__\n", "")


def test_a_program_without_a_guard_is_told_about_it(tmp_path: Path) -> None:
    done = run_program(tmp_path / "program.py", "asyncio.run(main())")
    assert "if __name__ == '__main__':" in done.stdout


def test_a_function_that_was_typed_in_is_refused(tmp_path: Path) -> None:
    program = "from halter.tools.function import tool\ndef f() -> None: ...\ntool(f, isolation='process')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "ConfigurationError: f was typed in" in done.stderr
