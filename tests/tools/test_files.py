"""The file tools as a model calls them: what it reads, what somebody is asked, and what a stop leaves."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from halter import Agent, events
from halter.core.run import Run
from halter.core.tool_context import ToolContext
from halter.errors import ConfigurationError
from halter.messages import ToolCall, ToolResult
from halter.models.scripted import Scripted, calls
from halter.outcome import Ended, RunResult
from halter.tools.changing import FileChange
from halter.tools.filesystem import edit_file, files, glob, grep, read_file, write_file

from ..bounds import T, assert_in_time, assert_within

pytestmark = pytest.mark.real_loop

HARD = "(a+)+$"  # doubles the time it takes with every `a` before a `b`


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "src" / "deep").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("needle\n")
    (root / "README.md").write_text("# Title\n\nneedle in a haystack\n")
    (root / "src" / "one.py").write_text("import os\n\n\ndef needle():\n    return os\n")
    (root / "src" / "deep" / "two.py").write_text("x = 1\nNeedle = 2\n")
    (root / "src" / "deep" / "data.bin").write_bytes(b"needle\0\1\2")
    return root


def script(*answers: ToolCall) -> Scripted:
    """One call after the other, each in a turn of its own."""
    return Scripted(*answers, "done")


def results(result: RunResult[Any]) -> list[ToolResult]:
    return [part for message in result.messages for part in message.parts if isinstance(part, ToolResult)]


async def said(root: Path, *answers: ToolCall, **options: Any) -> list[str]:
    """What the model is told by its calls."""
    result = await Agent(script(*answers), tools=files(root, **options)).run("Go on")
    return [one.content for one in results(result)]


async def answering(run: Run[Any], answer: str | Callable[[events.InputRequested], Awaitable[str]]) -> list[str]:
    """Answers each question; returns what was asked."""
    asked: list[str] = []
    async for event in run:
        if isinstance(event, events.InputRequested):
            asked.append(event.prompt)
            run.answer(event.request_id, answer if isinstance(answer, str) else await answer(event))
    return asked


# -- which tools there are


def test_a_root_gives_tools_to_read_and_only_on_demand_to_write(project: Path) -> None:
    assert [tool.name for tool in files(project)] == ["read_file", "glob", "grep"]
    assert [tool.name for tool in files(project, write=True)] == [
        "read_file",
        "glob",
        "grep",
        "write_file",
        "edit_file",
    ]
    alone = [read_file(project), glob(project), grep(project), write_file(project), edit_file(project)]
    assert [tool.spec for tool in alone] == [tool.spec for tool in files(project, write=True)]
    assert all(tool.spec.description for tool in alone)


def test_a_root_that_is_none_is_refused_when_the_tools_are_made(project: Path) -> None:
    with pytest.raises(ConfigurationError, match="no directory"):
        files(project / "nowhere")


# -- reading and searching


async def test_a_file_is_read_with_the_numbers_of_its_lines(project: Path) -> None:
    whole, part, nothing, outside = await said(
        project,
        calls("read_file", path="src/one.py"),
        calls("read_file", path="src/one.py", offset=4, limit=1),
        calls("read_file", path="src/on.py"),
        calls("read_file", path="../secret"),
    )
    assert whole == "1\timport os\n2\t\n3\t\n4\tdef needle():\n5\t    return os"
    assert part == "4\tdef needle():\n(More lines follow: go on with offset=5.)"
    assert nothing == "there is no src/on.py; did you mean src/one.py?"
    assert outside == f"../secret is outside of {project}: use a path inside, relative to it"


async def test_files_are_found_by_name_the_newest_first(project: Path) -> None:
    for age, name in enumerate(["src/one.py", "README.md", "src/deep/two.py", "src/deep/data.bin", "src/deep", "src"]):
        os.utime(project / name, (1e9 - age, 1e9 - age))
    every, listed, chosen, below, hidden, none = await said(
        project,
        calls("glob", pattern="**/*.py"),
        calls("glob", pattern="*"),
        calls("glob", pattern="**/*.{md,bin}"),
        calls("glob", pattern="*.py", path="src/deep"),
        calls("glob", pattern=".git/*"),
        calls("glob", pattern="*.rs"),
    )
    assert every.split("\n") == ["src/one.py", "src/deep/two.py"]
    assert sorted(listed.split("\n")) == [".git/", "README.md", "src/"]
    assert chosen.split("\n") == ["README.md", "src/deep/data.bin"]
    assert below == "src/deep/two.py"
    assert hidden == ".git/config", "what is skipped can be named"
    assert none == "Nothing matches '*.rs'."


async def test_a_long_list_of_files_is_bounded(project: Path) -> None:
    for number in range(250):
        (project / f"file{number}.txt").touch()
    [shown] = await said(project, calls("glob", pattern="*.txt"))
    assert len(shown.split("\n")) == 201
    assert shown.endswith("(250 match; the newest 200 are shown: use a narrower pattern)")


async def test_lines_are_found_by_an_expression(project: Path) -> None:
    found, around, narrow, paths, few, wrong, missing = await said(
        project,
        calls("grep", pattern="needle"),
        calls("grep", pattern="^def", path="src/one.py", context=1),
        calls("grep", pattern="needle", glob="*.py", ignore_case=True),
        calls("grep", pattern="needle", files_only=True),
        calls("grep", pattern=".", limit=2),
        calls("grep", pattern="(unclosed"),
        calls("grep", pattern="x", path="srd"),
    )
    assert found.split("\n") == [
        "README.md",
        "3:needle in a haystack",
        "",
        "src/one.py",
        "4:def needle():",
        "",
        "(files not searched: 1 binary)",
    ]
    assert around.split("\n")[:4] == ["src/one.py", "3-", "4:def needle():", "5-    return os"]
    assert "src/deep/two.py\n2:Needle = 2" in narrow
    assert "README" not in narrow
    assert paths.split("\n")[:2] == ["README.md", "src/one.py"]
    assert few.split("\n")[:4] == ["README.md", "1:# Title", "3:needle in a haystack", ""]
    assert "the first 2 are shown" in few
    assert wrong.startswith("'(unclosed' is no regular expression: ")
    assert missing == "there is no srd; did you mean src?"


async def test_what_is_too_large_to_search_is_counted_and_long_lines_are_cut(project: Path) -> None:
    (project / "large.log").write_bytes(b"needle\n" * 1_000_000)
    (project / "page.min.js").write_text("x" * 5000 + "needle" + "y" * 5000)
    (project / "link.md").symlink_to("README.md")
    os.mkfifo(project / "pipe.md")
    [found] = await said(project, calls("grep", pattern="needle", path="."))
    assert "(files not searched: 1 binary, 1 larger than 5,000,000 bytes)" in found
    assert "link.md" not in found, "a file is searched once"
    [line] = [line for line in found.split("\n") if line.startswith("1:… x")]
    assert "needle" in line
    assert len(line) < 400


# -- a stop


async def stopped(root: Path, call: ToolCall) -> tuple[RunResult[Any], float]:
    """A run that is stopped while the call is at work, and how many seconds the stop took."""
    run = Agent(script(call), tools=files(root, write=True, approval="never")).run("Go on").start()
    async for event in run.events():
        if isinstance(event, events.ToolStarted):
            break
    await asyncio.sleep(0.4)  # a process has begun, and is in the middle of it
    since = time.monotonic()
    run.cancel()
    result = await run.finished()
    return result, time.monotonic() - since


@pytest.mark.scenario(28)
@pytest.mark.loops
async def test_a_search_that_would_take_for_ever_is_ended_by_a_stop(project: Path) -> None:
    (project / "bad.txt").write_text("a" * 60 + "b\n")
    before = _children()  # such as the provider of other tests
    result, took = await stopped(project, calls("grep", pattern=HARD, path="bad.txt"))
    assert_within(T, took, "the stop")
    assert result.is_cancelled
    assert result.receipt is not None
    assert_in_time(result.receipt.confirmed, "the end of its process")
    [line] = [line for line in result.receipt.resources if line.kind == "process"]
    assert line.ended in (Ended.TERMINATED, Ended.KILLED)
    assert not _children() - before, "its process is gone"


def _children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


async def test_a_search_that_takes_too_long_says_so_and_the_run_goes_on(project: Path) -> None:
    (project / "bad.txt").write_text("a" * 60 + "b\n")
    agent = Agent(script(calls("grep", pattern=HARD)), tools=[grep(project, timeout=0.5)])
    result = await agent.run("Go on")
    [one] = results(result)
    assert one.is_error
    assert one.content.startswith("the search took longer than 0.5 s: use a simpler expression")
    assert result.text == "done"


async def test_a_reader_of_a_huge_file_ends_at_a_stop(project: Path) -> None:
    (project / "huge").write_bytes(b"x" * 300_000)
    os.truncate(project / "huge", 64 << 30)
    result, took = await stopped(project, calls("read_file", path="huge", offset=2))
    assert_within(T, took, "the stop")
    assert result.receipt is not None
    assert_in_time(result.receipt.confirmed, "the end of its thread, by itself")


# -- changing


async def test_a_file_is_made_changed_and_read_again(project: Path) -> None:
    made, edited, read = await said(
        project,
        calls("write_file", path="new/dir/a.txt", content="one\ntwo\n"),
        calls("edit_file", path="new/dir/a.txt", old="two", new="2"),
        calls("read_file", path="new/dir/a.txt"),
        write=True,
        approval="never",
    )
    assert made == "Made new/dir/a.txt: it has 2 lines, 8 bytes now."
    assert edited == "Changed new/dir/a.txt: it has 2 lines, 6 bytes now."
    assert read == "1\tone\n2\t2"


async def test_an_edit_that_cannot_be_made_says_what_to_do(project: Path) -> None:
    (project / "a.txt").write_text("x\n  y\nx\n")
    told = await said(
        project,
        calls("edit_file", path="a.txt", old="x", new="z"),
        calls("edit_file", path="a.txt", old="1\tx", new="z"),
        calls("edit_file", path="a.txt", old=" y", new=" y"),
        calls("edit_file", path="a.txt", old="x\n    y", new="z"),
        calls("edit_file", path="a.txt", old="no such", new="z"),
        calls("edit_file", path="b.txt", old="x", new="z"),
        calls("edit_file", path="nowhere/at/all.txt", old="x", new="z"),
        calls("edit_file", path="src/deep/data.bin", old="x", new="z"),
        calls("write_file", path="src", content="z"),
        calls("write_file", path="../a.txt", content="z"),
        calls("edit_file", path="a.txt", old="x", new="z", all=True),
        write=True,
        approval="never",
    )
    for text, words in zip(
        told,
        (
            "2 times (in lines 1, 3)",
            "numbers before the lines",
            "new another one",
            "But for white space it does",
            "Read the file again",
            "there is no b.txt",
            "there is no nowhere/at/all.txt",
            "is a binary file",
            "src is a directory",
            "is outside of",
            "Changed a.txt",
        ),
        strict=True,
    ):
        assert words in text
    assert (project / "a.txt").read_text() == "z\n  y\nz\n"
    assert sorted(os.listdir(project)) == [".git", "README.md", "a.txt", "src"]


async def test_line_ends_and_a_byte_order_mark_survive_what_a_model_writes(project: Path) -> None:
    (project / "dos.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    (project / "mixed.txt").write_bytes(b"one\r\ntwo\r\nthree\n")
    await said(
        project,
        calls("edit_file", path="dos.txt", old="one\ntwo", new="1\n2"),
        calls("edit_file", path="mixed.txt", old="one\ntwo", new="1\n2"),
        write=True,
        approval="never",
    )
    assert (project / "dos.txt").read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n"
    assert (project / "mixed.txt").read_bytes() == b"1\r\n2\r\nthree\n"
    await said(project, calls("write_file", path="dos.txt", content="all\nnew\n"), write=True, approval="never")
    assert (project / "dos.txt").read_bytes() == b"\xef\xbb\xbfall\r\nnew\r\n"


async def test_edits_of_one_file_at_once_lose_nothing(project: Path) -> None:
    (project / "a.txt").write_text("".join(f"<{number}>\n" for number in range(12)))
    edits = tuple(calls("edit_file", path="a.txt", old=f"<{number}>", new=f"[{number}]") for number in range(12))
    agent = Agent(Scripted(edits, "done"), tools=files(project, write=True, approval="never"))
    result = await agent.run("Go on")
    assert not [one.content for one in results(result) if one.is_error]
    assert (project / "a.txt").read_text() == "".join(f"[{number}]\n" for number in range(12))


# -- asking first


async def test_somebody_is_asked_with_a_diff(project: Path) -> None:
    agent = Agent(
        script(
            calls("edit_file", path="src/one.py", old="return os", new="return None"),
            calls("write_file", path="new/b.txt", content="hello\n"),
        ),
        tools=files(project, write=True),
    )
    run = agent.run("Go on")
    first, second = await answering(run, "yes")
    assert first == (
        f"edit_file wants to change {project}/src/one.py:\n\n"
        "--- src/one.py\n+++ src/one.py\n@@ -2,4 +2,4 @@\n \n \n def needle():\n-    return os\n+    return None"
    )
    assert second == (
        f"write_file wants to change {project}/new/b.txt:\n\n--- /dev/null\n+++ new/b.txt\n@@ -0,0 +1,1 @@\n+hello"
    )
    assert (project / "new" / "b.txt").read_text() == "hello\n"
    assert "return None" in (project / "src" / "one.py").read_text()


async def test_what_was_refused_is_not_done_and_makes_no_directory(project: Path) -> None:
    before = (project / "README.md").read_bytes()
    agent = Agent(
        script(calls("write_file", path="README.md", content=""), calls("write_file", path="new/b.txt", content="x")),
        tools=files(project, write=True),
    )
    await answering(run := agent.run("Go on"), "no")
    result = await run
    assert [one.is_error for one in results(result)] == [True, True]
    assert (project / "README.md").read_bytes() == before
    assert not (project / "new").exists()


async def test_nobody_is_asked_about_what_cannot_be_done(project: Path) -> None:
    agent = Agent(
        script(calls("edit_file", path="README.md", old="no such text", new="x")), tools=files(project, write=True)
    )
    run = agent.run("Go on")
    assert await answering(run, "yes") == []


async def _somebody_edits(project: Path) -> None:
    (project / "README.md").write_text("# Title\n\nneedle in a haystack, and more\n")


async def _somebody_swaps_a_link_in(project: Path) -> None:
    (project / "other.md").write_bytes((project / "README.md").read_bytes())
    (project / "README.md").unlink()
    (project / "README.md").symlink_to("other.md")


@pytest.mark.parametrize("meanwhile", [_somebody_edits, _somebody_swaps_a_link_in])
async def test_what_was_approved_is_not_done_to_another_file(
    project: Path, meanwhile: Callable[[Path], Awaitable[None]]
) -> None:
    async def answer(_: events.InputRequested) -> str:
        await meanwhile(project)
        return "yes"

    agent = Agent(script(calls("edit_file", path="README.md", old="needle", new="pin")), tools=[edit_file(project)])
    await answering(run := agent.run("Go on"), answer)
    [one] = results(await run)
    assert one.is_error
    assert "has changed since the change was approved" in one.content
    assert "needle" in (project / "README.md").read_text()


async def test_patterns_are_compared_with_the_real_path(project: Path) -> None:
    """Neither `..` nor a link makes a path look allowed; a new file below what is allowed runs unasked."""
    (project / "src" / "out").symlink_to("../.git")
    agent = Agent(
        script(
            calls("write_file", path="src/new/c.py", content="x"),
            calls("write_file", path=f"{project}/src/one.py", content="x"),
            calls("write_file", path="src/../README.md", content="x"),
            calls("write_file", path="src/out/config", content="x"),
            calls("write_file", path="src/out/hooks/pre-commit", content="x"),
        ),
        tools=files(project, write=True, approval=("src/*",)),
    )
    asked = await answering(agent.run("Go on"), "no")
    assert [one.split(":\n")[0].rpartition(f"{project}/")[2] for one in asked] == [
        "README.md",
        ".git/config",
        ".git/hooks/pre-commit",
    ]
    assert (project / "src" / "new" / "c.py").read_text() == (project / "src" / "one.py").read_text() == "x"


@pytest.mark.scenario("K103")
@pytest.mark.parametrize("approval", [("src/*",), {"path": ("src/*",)}, lambda path, **_: not path.startswith("src/")])
@pytest.mark.parametrize("name", ["src/one.py", "src/new/c.py"])
async def test_a_directory_swapped_for_a_link_after_its_path_fit_a_pattern_changes_no_other_file(
    project: Path, approval: Any, name: str
) -> None:
    """The path is resolved once: what it led to then is what may be changed."""
    (project / ".git" / "one.py").write_text("precious")

    class Swap(FileChange):
        async def call(self, arguments: dict[str, Any], ctx: ToolContext) -> str:
            (project / "src").rename(project / "away")
            (project / "src").symlink_to(".git")
            return await super().call(arguments, ctx)

    tool = write_file(project, approval=approval)
    tool.__class__ = Swap
    run = Agent(script(calls("write_file", path=name, content="x")), tools=[tool]).run("Go on")
    assert await answering(run, "no") == []
    [one] = results(await run)
    assert one.is_error
    assert "has changed since the change was approved" in one.content
    assert sorted(each.name for each in (project / ".git").iterdir()) == ["config", "one.py"]
    assert (project / ".git" / "one.py").read_text() == "precious"


async def test_a_link_inside_the_root_is_resolved_before_its_pattern_is_compared(project: Path) -> None:
    """And what it led to is changed, even if the link leads elsewhere by then."""
    (project / "code").symlink_to("src")
    agent = Agent(
        script(calls("write_file", path="code/one.py", content="x")),
        tools=[write_file(project, approval=("src/*",))],
    )
    assert await answering(agent.run("Go on"), "no") == []
    assert (project / "src" / "one.py").read_text() == "x"


@pytest.mark.scenario("K103")
async def test_a_predicate_gets_the_real_path_and_all_defaults(project: Path) -> None:
    seen: list[dict[str, Any]] = []

    def asks(**given: Any) -> bool:
        seen.append(given)
        return False

    change = calls("edit_file", path="src/../README.md", old="needle", new="pin")
    await Agent(script(change), tools=[edit_file(project, approval=asks)]).run("Go on")
    assert seen == [{"path": "README.md", "old": "needle", "new": "pin", "all": False}]


async def test_a_name_hides_nothing_of_what_is_asked(project: Path) -> None:
    """As the lines of the diff do not."""
    name = "new\r--- README.md\x1b[K"
    agent = Agent(script(calls("write_file", path=name, content="x")), tools=files(project, write=True))
    (asked,) = await answering(agent.run("Go on"), "no")
    assert asked.count(r"new\u000d--- README.md\u001b[K") == 2
    assert not set(asked) & set("\r\x1b")


@pytest.mark.scenario(36)
async def test_a_stop_while_somebody_is_asked_changes_nothing(project: Path) -> None:
    before = (project / "README.md").read_bytes()
    agent = Agent(script(calls("write_file", path="README.md", content="")), tools=files(project, write=True))
    async with agent.run("Go on") as run:
        async for event in run:
            if isinstance(event, events.InputRequested):
                run.cancel()
    assert run.is_cancelled
    assert (project / "README.md").read_bytes() == before


async def test_wherever_a_stop_comes_a_write_is_whole_or_has_not_been(project: Path) -> None:
    """Stopped at many instants around it: the file is old or new, nothing lies beside it, and a change is told."""
    old, new = "o" * 400_000, "n" * 600_000
    path = project / "file"
    agent = Agent(script(calls("write_file", path="file", content=new)), tools=[write_file(project, approval="never")])
    seen: set[str] = set()
    for delay in range(30):
        path.write_text(old)
        run = agent.run("Go on").start()
        async for event in run.events():
            if isinstance(event, events.ToolCalled if delay % 2 else events.ToolStarted):
                break
        await asyncio.sleep(delay * 0.0004)
        run.cancel()
        result = await run.finished()
        there = path.read_text()
        assert there in (old, new)
        told = [one.content for one in results(result)]
        if there == new:
            assert told in (["Changed file: it has 1 lines, 600,000 bytes now."],), "a change that was made is told"
        seen.add("new" if there == new else "old")
        assert sorted(os.listdir(project)) == [".git", "README.md", "file", "src"]
    assert "new" in seen


KILLED = """
import sys
from halter.tools.changing import FileChange
from halter.tools.filesystem import write_file
write = write_file(sys.argv[1], approval="never")
print("ready", flush=True)
number = 0
while True:
    number += 1
    write(path="file", content=chr(ord("a") + number % 26) * 3_000_000)
"""


def test_a_process_that_is_killed_in_the_middle_of_a_write_leaves_the_file_old_or_new(project: Path) -> None:
    (project / "file").write_text("a" * 3_000_000)
    for delay in (0.003, 0.011, 0.023, 0.031, 0.047):
        with subprocess.Popen([sys.executable, "-c", KILLED, str(project)], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            time.sleep(delay)
            child.send_signal(signal.SIGKILL)
        text = (project / "file").read_text()
        assert len(text) == 3_000_000
        assert len(set(text)) == 1
