"""The newcomer's first command, as a newcomer runs it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def halter(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "dev", "-m", "halter", *arguments],
        capture_output=True,
        text=True,
        timeout=45,
        env={**os.environ, **environment},
        check=False,
    )


def test_the_demo_keeps_the_promise_whatever_the_environment_holds() -> None:
    """No key and no proxy of the user's is used; each stop is shown with the provider's figures; nothing is left."""
    shown = halter("demo", "--pace", "8", HTTP_PROXY="http://127.0.0.1:9", OPENAI_API_KEY="a b")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count("the provider saw the socket close") == 4
    assert "went on to its end" in shown.stdout
    assert "Every stop closed its socket" in shown.stdout
    assert "\x1b" not in shown.stdout
    assert "Unclosed" not in shown.stderr


@pytest.mark.scenario("J87")
def test_a_server_that_is_not_there_is_one_clear_line() -> None:
    """Exit code 1, and what could not be reached."""
    shown = halter("demo", "--base-url", "http://127.0.0.1:9/v1", "--model", "openai:any", OPENAI_API_KEY="")
    assert shown.returncode == 1
    assert len(shown.stderr.strip().splitlines()) == 1
    assert "127.0.0.1:9" in shown.stderr


@pytest.mark.parametrize(
    "arguments", [("--pace", "abc"), ("--pace", "0"), ("--base-url", "http://127.0.0.1:9/v1"), ("--model", "nobody:x")]
)
def test_a_mistake_is_told_and_starts_nothing(arguments: tuple[str, ...]) -> None:
    """Exit code 2, without a traceback."""
    shown = halter("demo", *arguments)
    assert shown.returncode == 2
    assert "Traceback" not in shown.stderr
    assert shown.stderr.strip()
