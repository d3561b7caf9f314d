"""Fixtures of the tests of tools: working directories for sandboxes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from halter.tools.sandbox_start import NOBODY


def may_make_namespaces() -> bool:
    """A container may forbid it: that is no missing service, and nothing can be installed for it."""
    argv = ["bwrap", "--ro-bind", "/", "/", "--unshare-all", "true"]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


@pytest.fixture
def namespaces(require: Callable[[str, bool], None]) -> None:
    """Skips where there is no sandbox to be had."""
    require("bwrap", shutil.which("bwrap") is not None)
    if not may_make_namespaces():
        pytest.skip("nobody may make namespaces here")


@pytest.fixture
def sandboxed(namespaces: None, tmp_path: Path) -> Path:
    """A working directory for a sandbox that works."""
    place = tmp_path / "work"
    place.mkdir()
    return place


@pytest.fixture
def bwrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A stand-in, to look at arguments where there is no bwrap; as an ordinary user."""
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    stand_in = tmp_path / "bwrap"
    stand_in.write_text("#!/bin/sh\n")
    stand_in.chmod(0o755)
    return str(stand_in)
