"""Patterns of file names mean what shells and other tools mean by them, whatever is written."""

from __future__ import annotations

import time

import pytest

from halter.errors import ToolError
from halter.tools.bounds import clipped, head_and_tail
from halter.tools.diff import unified
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


def test_a_diff_takes_no_time_and_no_room_whatever_changes() -> None:
    since = time.thread_time()
    shown = unified("a", "\n" * 20_000, "".join(f"\nb{number}\n" for number in range(20_000)))
    assert_within(4 * T, time.thread_time() - since, "in processor time, it")
    assert len(shown.split("\n")) == 403
    assert shown.endswith("lines left out …")


def test_a_diff_hides_nothing_from_who_is_asked() -> None:
    """No character moves the cursor of a terminal, or turns the direction of a line."""
    shown = unified("a", None, "rm -rf / #\r\x1b[2K harmless\u202e\n")
    assert "+rm -rf / #\\u000d\\u001b[2K harmless\\u202e" in shown
