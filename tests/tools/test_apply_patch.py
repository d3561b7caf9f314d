"""Patches of several files: read as models write them, applied all or not at all, and shown before."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from halter import Agent, events
from halter.core.run import Run
from halter.errors import ConfigurationError, ToolError
from halter.messages import ToolResult
from halter.models.scripted import Scripted, calls
from halter.outcome import RunResult
from halter.tools.filesystem import apply_patch

from ..bounds import T, assert_within

pytestmark = pytest.mark.real_loop

GREETER = 'import os\n\n\ndef greet(name):\n    print("Hi")\n\n\ndef part(name):\n    print("Bye")\n'


@pytest.fixture
def house(tmp_path: Path) -> Path:
    house = tmp_path / "house"
    (house / "src").mkdir(parents=True)
    (house / "src" / "app.py").write_text(GREETER)
    (house / "old.txt").write_text("old\n")
    return house


def there(house: Path) -> dict[str, str]:
    return {
        str(path.relative_to(house)): path.read_text()
        for path in house.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }


def apply(house: Path, patch: str) -> str:
    return apply_patch(house, approval="never")(patch=patch)


def refused(house: Path, patch: str) -> str:
    before = there(house), sorted(house.rglob("*"))
    with pytest.raises(ToolError) as caught:
        apply(house, patch)
    assert (there(house), sorted(house.rglob("*"))) == before, "nothing has changed"
    return str(caught.value)


def results(result: RunResult[Any]) -> list[ToolResult]:
    return [part for message in result.messages for part in message.parts if isinstance(part, ToolResult)]


async def answering(run: Run[Any], answer: str) -> list[str]:
    asked: list[str] = []
    async for event in run:
        if isinstance(event, events.InputRequested):
            asked.append(event.prompt)
            run.answer(event.request_id, answer)
    return asked


# -- the format of Codex

WHOLE = """*** Begin Patch
*** Add File: docs/hello.txt
+Hello
+
+world
*** Update File: src/app.py
*** Move to: src/main.py
@@ def part(name):
-    print("Bye")
+    print(f"Bye, {name}")
*** Delete File: old.txt
*** End Patch
"""


def test_a_patch_of_codex_adds_changes_moves_and_deletes(house: Path) -> None:
    (house / "src" / "app.py").chmod(0o750)
    told = apply(house, WHOLE)
    assert there(house) == {
        "docs/hello.txt": "Hello\n\nworld\n",
        "src/main.py": GREETER.replace('"Bye"', 'f"Bye, {name}"'),
    }
    assert (house / "src" / "main.py").stat().st_mode & 0o777 == 0o750
    assert told.split("\n") == [
        "Made docs/hello.txt: it has 3 lines, 13 bytes now.",
        "Moved src/app.py to src/main.py: it has 9 lines, 89 bytes now.",
        "Removed old.txt.",
    ]


@pytest.mark.parametrize(
    "patch",
    [
        f"apply_patch <<'EOF'\n{WHOLE}EOF\n",
        f"```\n{WHOLE}```",
        f"  \n{WHOLE}\n\n",
        WHOLE.replace("*** Begin Patch", " *** Begin Patch ").replace("*** End Patch", " *** End Patch "),
        WHOLE.replace("\n", "\r\n"),
    ],
    ids=["here-document", "fence", "blank lines", "spaces", "line ends"],
)
def test_what_models_put_around_a_patch_is_passed_over(house: Path, patch: str) -> None:
    apply(house, patch)
    assert sorted(there(house)) == ["docs/hello.txt", "src/main.py"]


def update(*lines: str, path: str = "src/app.py") -> str:
    return "\n".join(["*** Begin Patch", f"*** Update File: {path}", *lines, "*** End Patch"])


FUZZY = {
    "without a header": (update(" def greet(name):", '-    print("Hi")', '+    print("Ho")'), ('"Hi"', '"Ho"')),
    "white space at the ends": (
        update("@@", " def greet(name):  ", '-    print("Hi") ', '+    print("Ho")'),
        ('"Hi"', '"Ho"'),
    ),
    "white space around": (update("@@", " def greet(name):", '-print("Hi")', '+    print("Ho")'), ('"Hi"', '"Ho"')),
    "typographic signs": (update("@@", "-    print(“Hi”)", '+    print("Ho")'), ('"Hi"', '"Ho"')),
    "two headers": (
        update("@@ def part(name):", '@@     print("Bye")', "+    return 1"),
        ('"Bye")\n', '"Bye")\n    return 1\n'),
    ),
    "an addition at the end": (update("@@", "+# end"), ('"Bye")\n', '"Bye")\n# end\n')),
    "the end of the file": (
        update("@@", " def part(name):", '-    print("Bye")', "+    pass", "*** End of File"),
        ('print("Bye")', "pass"),
    ),
    "an empty line before the next": (
        update("@@", "-import os", "+import sys", "", "", "", "@@", '-    print("Bye")', "+    pass"),
        None,
    ),
    "an empty line at the end": (update("@@", '     print("Bye")', "+# end", ""), ('"Bye")\n', '"Bye")\n# end\n')),
    "numbers of a unified diff": (
        update("@@ -4,2 +4,2 @@", " def greet(name):", '-    print("Hi")', '+    print("Ho")'),
        ('"Hi"', '"Ho"'),
    ),
}


@pytest.mark.parametrize("name", FUZZY)
def test_context_is_found_as_codex_finds_it(house: Path, name: str) -> None:
    patch, change = FUZZY[name]
    apply(house, patch)
    expected = (
        GREETER.replace("import os", "import sys").replace('print("Bye")', "pass")
        if change is None
        else GREETER.replace(*change)
    )
    assert there(house)["src/app.py"] == expected


def test_lines_of_context_stay_as_they_are_in_the_file(house: Path) -> None:
    (house / "tabs.txt").write_text("\tone  \n\ttwo\n")
    apply(house, update("@@", " one", "-two", "+\tthree", path="tabs.txt"))
    assert there(house)["tabs.txt"] == "\tone  \n\tthree\n"


def test_an_exact_place_is_taken_before_one_that_only_resembles(house: Path) -> None:
    (house / "a.txt").write_text("  x\nx\n")
    apply(house, update("@@", "-x", "+y", path="a.txt"))
    assert there(house)["a.txt"] == "  x\ny\n"


@pytest.mark.parametrize(("raw", "made"), [(b"\xef\xbb\xbfa\r\nb\r\n", b"\xef\xbb\xbfa\r\nc\r\n"), (b"a\nb", b"a\nc")])
def test_a_patched_file_keeps_its_line_ends_and_its_byte_order_mark(house: Path, raw: bytes, made: bytes) -> None:
    (house / "a.txt").write_bytes(raw)
    apply(house, update("@@", " a", "-b", "+c", path="a.txt"))
    assert (house / "a.txt").read_bytes() == made


WRONG = {
    "not a patch": ("hello", "this is no patch"),
    "cut off": (WHOLE.removesuffix("*** End Patch\n"), "may have been cut off"),
    "an unknown head": ("*** Begin Patch\n*** Change File: a\n*** End Patch", "line 2 of the patch"),
    "nothing in it": ("*** Begin Patch\n*** End Patch", "changes no file"),
    "no path": ("*** Begin Patch\n*** Add File: \n+a\n*** End Patch", "followed by no path"),
    "no lines": (update("@@"), "begins with a space, + or -"),
    "no change": (update("@@", " import os"), "changes nothing"),
    "a line that is not there": (
        update("@@", " import os", "-import sys", "+x"),
        "'import sys' is not found after the 1 before it",
    ),
    "a header that is not there": (update("@@ class X", "-import os", "+x"), "'class X' behind @@ is not there"),
    "the wrong order": (
        update("@@", '-    print("Bye")', "+x", "@@", "-import os", "+y"),
        "stand in the order of its lines",
    ),
    "a file that is not there": (update("@@", "-a", "+b", path="no.txt"), "there is no no.txt"),
    "a file that is there": (
        "*** Begin Patch\n*** Add File: old.txt\n+a\n*** End Patch",
        "there is a file old.txt already",
    ),
    "a target that is there": (update("*** Move to: old.txt"), "there is a file old.txt already"),
    "a way out": ("*** Begin Patch\n*** Add File: ../a\n+a\n*** End Patch", "is outside of"),
    "a move out": (update("*** Move to: /etc/a"), "is outside of"),
    "a directory": ("*** Begin Patch\n*** Delete File: src\n*** End Patch", "directory"),
    "a good change and a bad one": (WHOLE.replace("old.txt", "none.txt"), "there is no none.txt"),
    "too many files": (
        "*** Begin Patch\n" + "".join(f"*** Add File: new/{n}\n+a\n" for n in range(60)) + "*** End Patch",
        "50 are the most",
    ),
    "too long": (update("@@", "+" + "a" * 2_000_001), "2,000,000 are the most"),
    "a mode": ("diff --git a/old.txt b/old.txt\nold mode 100644\nnew mode 100755\n", "changes the mode of a file"),
    "a link": ("diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+x\n", "makes a link"),
    "a binary file": ("diff --git a/old.txt b/old.txt\nGIT binary patch\nliteral 1\n", "changes a binary file"),
    "an addition anywhere": ("--- a/old.txt\n+++ b/old.txt\n@@ -1,0 +2 @@\n+x\n", "could belong anywhere"),
    "a deletion of a part": (
        "--- a/src/app.py\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-import os\n",
        "more lines than the patch removes",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_patch_that_cannot_be_applied_changes_nothing_and_says_why(house: Path, name: str) -> None:
    patch, words = WRONG[name]
    assert words in refused(house, patch)


def test_a_patch_takes_no_longer_than_its_text_and_the_file_are_long(house: Path) -> None:
    """Lines that are all alike, and hunks that are found in the last form or not at all."""
    (house / "big.txt").write_text("a\n" * 20_000)
    since = time.thread_time()
    assert "is not found after the 2000 before it" in refused(
        house, update("@@", *[" a"] * 2_000, "-b", path="big.txt")
    )
    apply(house, update(*["@@", "- a", "+b"] * 100, path="big.txt"))
    assert_within(8 * T, time.thread_time() - since, "in processor time, both")
    (house / "big.txt").write_text("a\n" * 200_002)
    assert "more than 200,000 lines" in refused(house, update("@@", "-a", "+b", path="big.txt"))


def test_several_steps_about_one_file_follow_each_other(house: Path) -> None:
    apply(
        house,
        "*** Begin Patch\n*** Delete File: old.txt\n*** Add File: old.txt\n+new\n"
        "*** Update File: old.txt\n*** Move to: moved.txt\n@@\n-new\n+newer\n*** End Patch",
    )
    assert sorted(there(house)) == ["moved.txt", "src/app.py"]
    assert there(house)["moved.txt"] == "newer\n"


# -- unified diffs


def git(house: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@y", *arguments]
    return subprocess.run(command, cwd=house, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("context", [3, 1])
def test_what_git_makes_is_applied_as_git_would(house: Path, context: int) -> None:
    """Changes, new and removed files, empty ones, renames, names that are quoted, and no line end at the end."""
    (house / "no-end.txt").write_text("a\nb")
    (house / "long.txt").write_text("".join(f"{number % 7}\n" for number in range(200)))
    (house / "minus.txt").write_text("-- a\n++ b\n")
    git(house, "init", "-q")
    git(house, "add", "-A")
    git(house, "commit", "-qm", "first")
    before = there(house)
    (house / "src" / "app.py").rename(house / "src" / "main.py")
    (house / "src" / "main.py").write_text(GREETER.replace('"Hi"', '"Ho"'))
    (house / "old.txt").unlink()
    (house / "new dir").mkdir()
    (house / "new dir" / "ünï code.txt").write_text("new\n\n")
    (house / "empty.txt").touch()
    (house / "no-end.txt").write_text("a\nb\nc")
    (house / "minus.txt").write_text("-- b\n++ c\n")
    lines = (house / "long.txt").read_text().split("\n")
    (house / "long.txt").write_text("\n".join([*lines[:50], "x", *lines[52:150], "y", *lines[150:]]))
    git(house, "add", "-A")
    after = there(house)
    patch = git(house, "diff", "--cached", "-M", f"-U{context}")
    git(house, "reset", "-q", "--hard")
    assert there(house) == before
    apply(house, patch)
    assert there(house) == after


def test_the_nearest_of_several_places_is_taken(house: Path) -> None:
    (house / "a.txt").write_text("x\n" * 9)
    apply(house, "--- a.txt\n+++ a.txt\n@@ -5,1 +5,1 @@\n-x\n+y\n@@ -8 +8 @@\n-x\n+z\n")
    assert there(house)["a.txt"] == "x\nx\nx\nx\ny\nx\nx\nz\nx\n"


def test_wrong_counts_and_wrong_numbers_are_mended(house: Path) -> None:
    patch = (
        "--- a/src/app.py\n+++ b/src/app.py\n@@ -40,9 +40,2 @@ def greet(name):\n def greet(name):\n"
        '-    print("Hi")\n+    print("Ho")\n\n@@ -90,1 +90,1 @@\n-    print("Bye")\n+    pass\n+    pass\n'
        "--- a/old.txt\n+++ b/old.txt\n@@ -1 +1 @@\n-old\n+new\n"
    )
    apply(house, patch)
    expected = GREETER.replace('"Hi"', '"Ho"').replace('    print("Bye")\n', "    pass\n    pass\n")
    assert there(house) == {"src/app.py": expected, "old.txt": "new\n"}


def test_a_mail_with_a_patch_is_applied(house: Path) -> None:
    patch = (
        "From 0123 Mon Sep 17 00:00:00 2001\nSubject: [PATCH] x\n\n---\n old.txt | 2 +-\n\n"
        "diff --git a/old.txt b/old.txt\nindex 1..2 100644\n"
        "--- a/old.txt\n+++ b/old.txt\n@@ -1 +1 @@\n-old\n+new\n-- \n2.40.0\n\n"
    )
    apply(house, patch)
    assert there(house)["old.txt"] == "new\n"


# -- asking first


def changing(house: Path, patch: str, **options: Any) -> Agent[Any]:
    return Agent(Scripted(calls("apply_patch", patch=patch), "done"), tools=[apply_patch(house, **options)])


@pytest.mark.scenario("K104")
async def test_somebody_is_asked_with_the_diff_of_every_file(house: Path) -> None:
    run = changing(house, WHOLE).run("Go on")
    [asked] = await answering(run, "yes")
    assert asked.startswith(f"apply_patch wants to change 3 files in {house}:\n\n")
    assert "--- /dev/null\n+++ docs/hello.txt\n@@ -0,0 +1,3 @@\n+Hello\n+\n+world" in asked
    assert "--- old.txt\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-old" in asked
    assert "renamed from src/app.py\n--- src/main.py\n+++ src/main.py\n@@ -6,4 +6,4 @@" in asked
    assert asked.count("greet") == 0, "of a renamed file only what changes is shown"
    assert sorted(there(house)) == ["docs/hello.txt", "src/main.py"]


async def test_a_patch_that_was_refused_changes_nothing(house: Path) -> None:
    before = there(house)
    await answering(run := changing(house, WHOLE).run("Go on"), "no")
    assert results(await run)[0].is_error
    assert there(house) == before
    assert not (house / "docs").exists()


async def test_nobody_is_asked_about_a_patch_that_cannot_be_applied(house: Path) -> None:
    assert await answering(changing(house, WHOLE.replace("old.txt", "none.txt")).run("Go on"), "yes") == []


def is_old(path: str, patch: str) -> bool:
    return path == "old.txt"


def is_never(path: str, patch: str) -> bool:
    return False


@pytest.mark.scenario("K103")
@pytest.mark.parametrize(
    ("approval", "is_asked"),
    [
        (("src/*", "docs/*", "old.txt"), False),
        ({"path": ("src/*", "docs/*")}, True),
        (("docs/*", "old.txt", "src/app.py"), True),
        (is_old, True),
        (is_never, False),
    ],
    ids=["all fit", "one does not", "not where it moves", "predicate", "predicate of none"],
)
async def test_a_patch_runs_unasked_only_if_each_of_its_files_may(house: Path, approval: Any, is_asked: bool) -> None:
    (house / "link").symlink_to("src")
    patch = WHOLE.replace("File: src/app.py", "File: link/app.py")
    asked = await answering(changing(house, patch, approval=approval).run("Go on"), "no")
    assert bool(asked) is is_asked
    assert (house / "src" / "main.py").exists() is not is_asked


@pytest.mark.scenario("K103")
async def test_files_that_have_changed_since_somebody_saw_them_are_left_alone(house: Path) -> None:
    run = changing(house, WHOLE).run("Go on")
    async for event in run:
        if isinstance(event, events.InputRequested):
            (house / "old.txt").write_text("precious\n")
            run.answer(event.request_id, "yes")
    [told] = results(await run)
    assert "has changed since the change was approved" in told.content
    assert there(house) == {"src/app.py": GREETER, "old.txt": "precious\n"}


@pytest.mark.scenario("K103")
async def test_a_link_swapped_in_after_the_patch_was_approved_leads_nowhere(house: Path) -> None:
    (house / "other").mkdir()
    (house / "other" / "app.py").write_text(GREETER)
    run = changing(house, WHOLE).run("Go on")
    async for event in run:
        if isinstance(event, events.InputRequested):
            (house / "src").rename(house / "away")
            (house / "src").symlink_to("other")
            run.answer(event.request_id, "yes")
    [told] = results(await run)
    assert "has changed since the change was approved" in told.content
    assert sorted(os.listdir(house)) == ["away", "old.txt", "other", "src"]


@pytest.mark.scenario(36)
async def test_a_stop_while_somebody_is_asked_about_a_patch_changes_nothing(house: Path) -> None:
    before = there(house)
    async with changing(house, WHOLE).run("Go on") as run:
        async for event in run:
            if isinstance(event, events.InputRequested):
                run.cancel()
    assert run.is_cancelled
    assert there(house) == before


def test_a_pattern_for_another_argument_is_refused_when_the_tool_is_made(house: Path) -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'path'"):
        apply_patch(house, approval={"paths": "src/*"})
