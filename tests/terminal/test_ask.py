"""`halter ask`: what it prints, how it exits, and that each way to stop it reaches the provider."""

from __future__ import annotations

import fcntl
import io
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from halter.cli.main import run_command
from halter.testing.wire_probe import WireProbe

from .conftest import ProbeOf, Start

FULL = 60_000  # bytes; a pipe holds 65,536
Asked = Callable[..., tuple[int, str, str]]
HOSTILE = "Hi \x1b]0;owned\x07\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m \u202elive\r there"

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def ask(home: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Asked:
    """`ask("question", …)`: the exit code, stdout and stderr of the command, in this process."""

    def asked(*arguments: str, piped: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(piped))
        code = run_command(["ask", *arguments])
        shown = capfd.readouterr()
        return code, shown.out, shown.err

    return asked


def test_the_answer_goes_to_stdout_and_nothing_else(ask: Asked) -> None:
    assert ask("--model", "scripted:One **two**.", "Count") == (0, "One **two**.\n", "")


@pytest.mark.scenario("H79", "K104")
def test_what_a_model_says_cannot_steer_the_terminal(ask: Asked) -> None:
    for form in ((), ("--json",)):
        code, out, _ = ask(*form, "--model", f"scripted:{HOSTILE}", "Hi")
        assert code == 0
        assert not {"\x1b", "\x07", "\x9b", "\u202e", "\r"} & set(out)
    assert json.loads(out.splitlines()[-1])["text"] == HOSTILE


def test_what_is_piped_in_comes_behind_the_question(ask: Asked, wire: WireProbe) -> None:
    server = ("--model", "m", "--base-url", wire.url("echo(1,1)"), "--no-tools")
    assert "summarize:\n\nlong text" in ask("summarize:", *server, piped="long text")[1]
    assert "only piped" in ask(*server, piped="only piped")[1]


@pytest.mark.scenario("J87")
def test_exit_codes_tell_a_failure_from_a_mistake(ask: Asked, wire: WireProbe) -> None:
    code, out, err = ask("--model", "m", "--base-url", wire.url("status(401)"), "Hi")
    assert (code, out) == (1, "")
    assert err.startswith("halter: It failed: ")
    assert err.count("\n") == 1
    code, out, err = ask("--model", "scripted:x")
    assert (code, out) == (2, "")
    assert "there is no question" in err
    code, out, err = ask("Hi")
    assert (code, out) == (2, "")
    assert "export ANTHROPIC_API_KEY" in err
    assert ask("Hi", "--model", "scripted:x", "--output-schema", "[")[0] == 2


def test_a_schema_holds_the_answer_which_is_printed_whole(ask: Asked, home: Path) -> None:
    (home / "schema.json").write_text('{"type": "object"}')
    answer = '{"river":"\u202eElbe"}'
    code, out, _ = ask("Hi", "--model", f"scripted:{answer}", "--output-schema", f"@{home}/schema.json")
    assert code == 0
    assert out == '{"river":"\\u202eElbe"}\n'
    assert json.loads(out) == json.loads(answer)


@pytest.mark.scenario("C38")
def test_a_tool_that_asks_is_refused_unless_it_was_approved(ask: Asked, wire: WireProbe, home: Path) -> None:
    call = ("--model", "m", "--base-url", wire.url('tool-call(shell,{"command":"touch made"})'))
    code, _, err = ask("Hi", *call)
    assert code == 0
    assert "not allowed (--approve or --approve-tool shell allows it): Run in the shell: touch made" in err
    assert not (home / "work/made").exists()
    assert ask("Hi", *call, "--approve-tool", "write_file")[0] == 0
    assert not (home / "work/made").exists()
    assert ask("Hi", *call, "--approve-tool", "shell")[0] == 0
    assert (home / "work/made").exists()


@pytest.mark.scenario("H79", "B13", "D49")
def test_every_way_to_stop_it_closes_the_socket_and_says_so_in_the_exit_code(start: Start, probe: ProbeOf) -> None:
    """SIGINT, SIGTERM, SIGHUP; a reader who left a silent stream; a reader who is there and does not read."""

    def asking(word: str, mode: str, state: str, **options: object) -> tuple[subprocess.Popen[bytes], WireProbe, str]:
        seen = probe(word)
        process = start("ask", "--no-tools", "--model", "m", "--base-url", seen.url(mode), "Hi", **options)
        return process, seen, state

    programs = {
        "waiting": asking("waiting", "no-headers", "started"),
        "stalled": asking("stalled", "stall(2)", "token"),
        "term": asking("term", "steady(10000,5)", "token"),
        "hup": asking("hup", "steady(10000,5)", "token"),
        "gone": asking("gone", "stall(2)", "token"),
        "unread": asking("unread", "steady(500000,0)", "token"),
    }
    signals = {"waiting": signal.SIGINT, "stalled": signal.SIGINT, "term": signal.SIGTERM, "hup": signal.SIGHUP}
    for process, seen, state in programs.values():
        seen.wait(state, timeout=30.0)  # type: ignore[arg-type]
        assert process.poll() is None
    assert programs["unread"][0].stdout is not None
    _until_full(programs["unread"][0].stdout)
    for name, (process, seen, _) in programs.items():
        if name == "gone":
            assert process.stdout is not None
            assert process.stdout.read(3) == b"t0 "
            process.stdout.close()
        elif name != "unread":
            process.send_signal(signals[name])
        else:
            process.send_signal(signal.SIGINT)
        seen.assert_closed()
    codes = {name: process.wait(10.0) for name, (process, _, _) in programs.items()}
    assert codes == {"waiting": 130, "stalled": 130, "term": 143, "hup": 129, "gone": 1, "unread": 130}
    errors = {name: process.stderr.read().decode() for name, (process, _, _) in programs.items() if process.stderr}
    for name, error in errors.items():
        assert error.startswith("halter: stopped after "), (name, error)
        assert "1 socket closed" in error
        assert error.count("\n") == 1, error


def _until_full(pipe: IO[bytes]) -> None:
    """Until the program is blocked in its write, as nobody reads."""
    until, held = time.monotonic() + 20.0, 0
    while (now := _held_by(pipe)) != held or now < FULL:
        assert time.monotonic() < until
        held = now
        time.sleep(0.02)


def _held_by(pipe: IO[bytes]) -> int:
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]


def test_a_locale_without_unicode_prints_what_it_can(start: Start) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    process = start("ask", "--model", "scripted:Grüße →", "--no-tools", "Hi", env=environment)
    out, err = process.communicate(timeout=30.0)
    assert (process.returncode, out, err) == (0, b"Gr\\xfc\\xdfe \\u2192\n", b"")
