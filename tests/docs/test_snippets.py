"""Every Python block in the README and in docs/ runs.

Blocks of one page share a namespace, in order, in a process of their own where warnings are errors. A block that awaits
runs on the page's own event loop; one marked `python no-run` is compiled only; one marked `python test` is a test file
of its own, run by pytest with Halter's plugin.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import halter

ROOT = Path(__file__).parents[2]
PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if page.exists()]
SOURCES = Path(halter.__file__).parents[1]
TIMEOUT = 50.0  # seconds for all blocks of a page
PLUGIN = ("-p", "no:halter", "-p", "halter.testing.pytest_plugin", "-p", "no:randomly", "-p", "no:cacheprovider")
KINDS = ("", "no-run", "test")
_BLOCK = re.compile(r"^(?P<indent> *)```python(?P<kind>[^\n]*)\n(?P<code>.*?)^(?P=indent)```", re.DOTALL | re.MULTILINE)

# What the page's process does: each block is compiled at its own line, so that a traceback points into the page.
# It is the page's `__main__`, and keeps its own names out of it.
DRIVER = """
def drive(space):
    import ast, asyncio, inspect, json, sys

    with asyncio.Runner() as runner:
        for page, line, kind, code in json.load(sys.stdin):
            print(f"{page}:{line}", file=sys.stderr, flush=True)
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            compiled = compile("\\n" * line + code, page, "exec", flags, dont_inherit=True)
            if kind == "no-run":
                continue
            value = eval(compiled, space)
            if compiled.co_flags & inspect.CO_COROUTINE:
                runner.run(value)

drive(globals())
"""


@dataclass(frozen=True)
class Block:
    """One fenced block. `line`: of its fence, from 1."""

    page: str
    line: int
    kind: str
    code: str


def blocks_of(text: str, page: str) -> list[Block]:
    found: list[Block] = []
    for match in _BLOCK.finditer(text):
        indent = len(match["indent"])
        code = "".join(line[indent:] or "\n" for line in match["code"].splitlines(keepends=True))
        found.append(Block(page, text.count("\n", 0, match.start()) + 1, match["kind"].strip(), code))
    return found


def run(command: list[str], cwd: Path, given: str = "") -> subprocess.CompletedProcess[str]:
    """In a process without keys, and where `halter` is this one."""
    clean = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_ADDOPTS"))}
    env = {**clean, "PYTHONPATH": os.pathsep.join(filter(None, (str(SOURCES), os.environ.get("PYTHONPATH"))))}
    return subprocess.run(
        [sys.executable, "-W", "error", *command],
        input=given,
        cwd=cwd,
        env=env,
        timeout=TIMEOUT,
        capture_output=True,
        text=True,
        check=False,
    )


def run_page(blocks: list[Block], cwd: Path) -> None:
    """Raises `AssertionError` with the output, the last block begun, and the traceback."""
    given = json.dumps([(block.page, block.line, block.kind, block.code) for block in blocks if block.kind != "test"])
    done = run(["-c", DRIVER], cwd, given)
    failed = done.returncode != 0 or "Exception ignored in" in done.stderr  # a warning in a `__del__`
    assert not failed, f"a snippet failed (the line before is its block):\n{done.stderr}{done.stdout}"


def run_test_file(block: Block, cwd: Path) -> None:
    (cwd / "test_snippet.py").write_text(block.code, encoding="utf-8")
    done = run(["-m", "pytest", "-q", *PLUGIN, "--strict-markers", "test_snippet.py"], cwd)
    assert done.returncode == 0, f"{block.page}:{block.line} failed:\n{done.stdout}{done.stderr}"


def read(page: Path) -> list[Block]:
    return blocks_of(page.read_text(encoding="utf-8"), str(page.relative_to(ROOT)))


WITH_BLOCKS = [page for page in PAGES if read(page)]


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: page.stem)
def test_every_block_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    blocks = read(page)
    unknown = [f"{block.page}:{block.line}: {block.kind}" for block in blocks if block.kind not in KINDS]
    assert not unknown, f"a block is `python`, `python no-run` or `python test`: {unknown}"
    run_page(blocks, tmp_path)


TEST_FILES = [block for page in PAGES for block in read(page) if block.kind == "test"]


@pytest.mark.parametrize("block", TEST_FILES, ids=lambda block: f"{Path(block.page).stem}-{block.line}")
def test_every_test_file_shown_passes(block: Block, tmp_path: Path) -> None:
    run_test_file(block, tmp_path)


# -- the reader of pages itself


def page_of(*blocks: str) -> list[Block]:
    return blocks_of("\n\n".join(blocks), "page.md")


def test_blocks_are_found_with_their_line_and_kind() -> None:
    blocks = page_of(
        "# Title\n", "```python\na = 1\n```", "```console\n$ ls\n```", "- x\n\n  ```python no-run\n  b\n\n  ```"
    )
    assert blocks == [Block("page.md", 4, "", "a = 1\n"), Block("page.md", 14, "no-run", "b\n\n")]


def test_blocks_share_a_namespace_and_may_await(tmp_path: Path) -> None:
    run_page(
        page_of(
            "```python\nimport asyncio\na = 1\n```",
            "```python\nawait asyncio.sleep(0)\nloop = asyncio.get_running_loop()\n```",
            "```python\nassert await asyncio.sleep(0, a) == 1 and loop is asyncio.get_running_loop()\n```",
            "```python\nasyncio.run(asyncio.sleep(0))\n```",
        ),
        tmp_path,
    )


FAILING = ("assert False", "1 +", "import warnings; warnings.warn('old')", "open('/dev/null')")


@pytest.mark.parametrize("code", FAILING)
def test_a_failing_block_is_reported_with_its_line(code: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"page\.md.*line 2|page\.md:1"):
        run_page(page_of(f"```python\n{code}\n```"), tmp_path)


def test_a_block_not_to_be_run_must_still_compile(tmp_path: Path) -> None:
    run_page(page_of("```python no-run\nraise SystemExit(1)\n```"), tmp_path)
    with pytest.raises(AssertionError, match="SyntaxError"):
        run_page(page_of("```python no-run\n1 +\n```"), tmp_path)


def test_a_test_file_that_fails_is_a_failure(tmp_path: Path) -> None:
    [block] = page_of("```python test\ndef test_it():\n    assert 1 == 2\n```")
    with pytest.raises(AssertionError, match="1 == 2"):
        run_test_file(block, tmp_path)
