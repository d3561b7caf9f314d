"""Patterns of file names mean what shells and other tools mean by them, whatever is written."""

from __future__ import annotations

import time
from random import Random

import pytest

from halter.errors import ToolError
from halter.tools.bounds import clipped, head_and_tail
from halter.tools.diff import _Compared, unified
from halter.tools.patterns import Pattern, split

from ..bounds import T, assert_within

MATCHES = (
    ("*.py", "a.py"),
    ("*", ".hidden"),
    ("a?c.[ch]", "abc.h"),
    ("[!a]*", "b"),
    ("**", "a"),
    ("**", "a/b/c"),
    ("**/*.py", "a.py"),
    ("**/*.py", "x/y/a.py"),
    ("src/**", "src/a"),
    ("src/**", "src"),
    ("src/**/test_*.py", "src/test_a.py"),
    ("src/**/test_*.py", "src/x/y/test_a.py"),
    ("**/**/b", "b"),
    ("**/x/**/y", "a/x/b/c/y"),
    ("*.{js,ts}", "a.ts"),
    ("{src,lib}/**/*.{c,h}", "lib/x/a.h"),
    ("a/./b", "a/b"),
    ("{a}", "{a}"),
    ("{a,b{c,d}}", "bd"),
    ("ü*", "über"),
)
MISSES = (
    ("*.py", "x/a.py"),
    ("*", "a/b"),
    ("src/*.py", "src/x/a.py"),
    ("a?c", "ac"),
    ("[!a]*", "a"),
    ("**/b", "bb"),
    ("*.{js,ts}", "a.py"),
    ("../*", "a"),
    ("A", "a"),
)


@pytest.mark.parametrize(("pattern", "path"), MATCHES)
def test_a_pattern_matches(pattern: str, path: str) -> None:
    assert Pattern(pattern).matches(path)


@pytest.mark.parametrize(("pattern", "path"), MISSES)
def test_a_pattern_does_not_match(pattern: str, path: str) -> None:
    assert not Pattern(pattern).matches(path)


def test_no_pattern_takes_long() -> None:
    since = time.thread_time()
    assert not Pattern("/".join(["**", "*a*a*a*a*a*b"] * 30)).matches("/".join(["a" * 200] * 60))
    assert not Pattern("*" * 500 + "b").matches("a" * 250)
    assert_within(4 * T, time.thread_time() - since, "in processor time, it")


@pytest.mark.parametrize("pattern", ["{a,b}" * 10, "a" * 1001, "{" + ",".join("abcdefghij" * 7) + "}"])
def test_a_pattern_that_stands_for_too_many_is_refused(pattern: str) -> None:
    with pytest.raises(ToolError, match="pattern"):
        Pattern(pattern)


def test_a_pattern_says_how_deep_it_looks_and_where_it_begins() -> None:
    assert Pattern("a/*/c").depth == 3
    assert Pattern("{a,b/c}").depth == 2
    assert Pattern("a/**").depth is None
    assert split(["src", "x", "*.py"]) == ("src/x", "*.py")
    assert split(["*", "x"]) == (".", "*/x")
    assert split(["plain"]) == (".", "plain")


# -- what is shown of long texts


def test_a_long_text_keeps_its_head_and_its_tail() -> None:
    assert head_and_tail("abcdef", 6) == "abcdef"
    assert head_and_tail("a" * 3000 + "b" * 3000, 5) == "aaa\n… 5,995 characters left out …\nbb"
    assert head_and_tail("abc", 1) == "a\n… 2 characters left out …\n"
    assert clipped("abcdef", 2) == "ab … 4 characters left out …"


def test_a_diff_is_that_of_the_usual_program() -> None:
    old = "".join(f"line {number}\n" for number in range(1, 41))
    new = old.replace("line 3\n", "line three\n").replace("line 30\n", "") + "line 41"
    assert unified("a/b", old, new).split("\n") == [
        "--- a/b",
        "+++ a/b",
        "@@ -1,6 +1,6 @@",
        " line 1",
        " line 2",
        "-line 3",
        "+line three",
        " line 4",
        " line 5",
        " line 6",
        "@@ -27,7 +27,6 @@",
        " line 27",
        " line 28",
        " line 29",
        "-line 30",
        " line 31",
        " line 32",
        " line 33",
        "@@ -38,3 +37,4 @@",
        " line 38",
        " line 39",
        " line 40",
        "+line 41",
        "\\ No newline at end of file",
    ]
    assert unified("a", "x\n", "") == "--- a\n+++ a\n@@ -1,1 +0,0 @@\n-x"


def test_a_diff_takes_no_time_whatever_changes() -> None:
    since = time.thread_time()
    unified("a", "\n" * 20_000, "".join(f"\nb{number}\n" for number in range(20_000)))
    assert_within(4 * T, time.thread_time() - since, "in processor time, it")


@pytest.mark.scenario("K104")
def test_a_diff_is_whole_however_long_it_and_its_lines_are() -> None:
    """A trick may be anywhere."""
    lines = [f"{number}{'x' * 1_000};rm -rf ~;{'y' * 1_000}" for number in range(1_000)]
    shown = unified("a", "old\n", "\n".join(lines) + "\n")
    assert shown.split("\n")[4:] == [f"+{line}" for line in lines]


def test_distant_changes_of_a_long_text_are_hunks_of_their_own() -> None:
    """What lies between them is not shown as changed."""
    old = [f"line {number}" for number in range(5_000)]
    new = [line.replace("1000", "x").replace("4000", "y") for line in old]
    assert [line for line in unified("a", "\n".join(old), "\n".join(new)).split("\n") if line[0] in "+-@"][2:] == [
        *("@@ -998,7 +998,7 @@", "-line 1000", "+line x", "@@ -3998,7 +3998,7 @@", "-line 4000", "+line y")
    ]


def test_a_diff_makes_the_new_text_of_the_old_one() -> None:
    """Whatever lines are moved, doubled and removed: checked by applying it."""
    random = Random(7)
    for _ in range(200):
        old = [random.choice("abcdefgh") for _ in range(random.randrange(30))]
        new = [
            random.choice("abcdefgh") if random.random() < 0.3 else line
            for line in old
            for _ in range(random.randrange(3))
        ]
        codes = _Compared(old, new).get_opcodes()
        assert [line for _, i1, i2, _, _ in codes for line in old[i1:i2]] == old
        assert [line for _, _, _, j1, j2 in codes for line in new[j1:j2]] == new
        assert all(old[i1:i2] == new[j1:j2] for tag, i1, i2, j1, j2 in codes if tag == "equal")


def test_a_diff_hides_nothing_from_who_is_asked() -> None:
    """No character moves the cursor of a terminal, or turns the direction of a line."""
    shown = unified("a", None, "rm -rf / #\r\x1b[2K harmless\u202e\n")
    assert "+++ b\\u000a+++ c" in unified("b\n+++ c", None, "")
    assert "+rm -rf / #\\u000d\\u001b[2K harmless\\u202e" in shown
