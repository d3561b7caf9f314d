"""`shell` and `program`: what they run, what they show, what the model is told, and what asks first."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest

from halter import Agent, events
from halter.errors import ConfigurationError
from halter.models.scripted import Scripted, calls
from halter.outcome import Ended
from halter.tools.process import program, shell

from ..bounds import T, assert_in_time, assert_within
from .processes import agent_calling, alive, begin, call, called, new_name, patient_shell

# --- what the model is told ---------------------------------------------------------------------------------


@pytest.mark.loops
async def test_the_result_is_what_was_said_on_both_streams_in_order() -> None:
    after = await call(shell(approval="never"), command="echo one; echo two >&2; printf three")
    assert (after.finished.outcome, after.text) == ("ok", "one\ntwo\nthree")
    assert after.shown == "one\ntwo\nthree"


@pytest.mark.real_loop
@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("true", ""),
        ("echo hello; exit 3", "hello\n(exit code 3)"),
        ("printf hello; exit 3", "hello\n(exit code 3)"),
        ("exit 3", "(exit code 3)"),
        ("kill -9 $$", "(ended by signal 9, SIGKILL)"),
        ("no-such-program-here 2>/dev/null", "(exit code 127)"),
        (r"printf '\377\342\202'", "��"),
    ],
    ids=["quiet", "code", "no-line-break", "code-alone", "signal", "unknown", "no-utf-8"],
)
async def test_how_it_ended_is_said_in_a_last_line(command: str, text: str) -> None:
    assert (await call(shell(approval="never"), command=command)).text == text


@pytest.mark.real_loop
@pytest.mark.parametrize("asked", [0.5, 60], ids=["the-models", "the-definitions"])
async def test_a_time_out_ends_the_tree_and_returns_what_was_said_so_far(asked: float) -> None:
    """The model may ask for less than the definition gives, and not for more."""
    name = new_name()
    tool = shell(approval="never", timeout=60.0 if asked < 5 else 0.5)
    after = await call(tool, command=f"setsid sleep {name} & echo begun; sleep {name}", timeout=asked)
    assert after.result.is_completed, "the run goes on"
    assert after.finished.outcome == "error"
    assert alive(name) == []
    assert_in_time(after.text.startswith("begun"), "its start")
    assert after.text == "begun\n(not done after 0.5 s: ended, with all it had started)"
    assert_within(1.5, after.finished.elapsed)


@pytest.mark.real_loop
async def test_a_time_that_is_none_is_the_models_mistake() -> None:
    after = await call(shell(approval="never"), command="true", timeout=-1)
    assert (after.finished.outcome, after.text) == ("error", "timeout must be more than 0 seconds, not -1")


@pytest.mark.real_loop
async def test_long_output_keeps_its_head_and_its_tail() -> None:
    after = await call(shell(approval="never", max_output=20), command="seq 1000; exit 1")
    assert after.text == "1\n2\n3\n4\n5\n\n… 3,873 characters left out …\n\n999\n1000\n(exit code 1)"
    assert after.shown.endswith("\n… the rest is not shown as it comes …\n")
    assert len(after.shown) < 100


@pytest.mark.real_loop
async def test_a_gigabyte_of_output_is_read_and_not_kept() -> None:
    """It takes neither memory nor events."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    after = await call(shell(approval="never"), command="head -c 1000000000 /dev/zero; echo over")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 20_000, f"{grown} KiB more"
    assert after.text.endswith("over\n")
    assert len(after.text) < 31_000
    assert after.pieces < 100


@pytest.mark.real_loop
async def test_what_it_says_is_shown_while_it_runs_and_not_piece_by_piece() -> None:
    """At once at first, then some twenty times a second at most."""
    run = await begin(shell(approval="never"), command="echo ready; for i in $(seq 100); do echo $i; sleep 0.005; done")
    after = await called(run)
    assert after.shown == "ready\n" + "".join(f"{i}\n" for i in range(1, 101))
    assert 2 <= after.pieces <= 2 + after.finished.elapsed / 0.05


@pytest.mark.real_loop
@pytest.mark.scenario(29)
async def test_what_was_said_before_a_stop_is_kept_in_the_log() -> None:
    run = await begin(shell(approval="never"), command="echo first; echo ready; sleep 300")
    began = time.monotonic()
    run.cancel()
    after = await called(run)
    assert after.shown == "first\nready\n"
    assert after.finished.outcome == "cancelled"
    assert_within(T, time.monotonic() - began)


# --- where it runs ------------------------------------------------------------------------------------------


@pytest.mark.real_loop
async def test_it_has_no_stdin_no_terminal_and_a_session_of_its_own() -> None:
    line = "cat; test -t 1 || echo no terminal; test $$ = $(ps -o sid= -p $$) && echo leads; (: </dev/tty) 2>&1 | wc -l"
    assert (await call(shell(approval="never"), command=line)).text == "no terminal\nleads\n1\n"


@pytest.mark.real_loop
async def test_api_keys_of_this_process_are_not_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a short list is passed on; `env` adds to it."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("DATABASE_URL", "postgres://user:secret@host")
    after = await call(shell(approval="never", env={"MINE": "1"}), command="env")
    names = {line.partition("=")[0] for line in after.text.splitlines()}
    assert "secret" not in after.text
    assert {"PATH", "HOME", "MINE", "HALTER_CALL", "HALTER_OWNER"} <= names


@pytest.mark.real_loop
async def test_the_directory_is_the_definitions(tmp_path: Path) -> None:
    assert (await call(shell(approval="never", cwd=tmp_path), command="pwd")).text == f"{tmp_path}\n"


@pytest.mark.real_loop
async def test_what_cannot_be_started_is_told_to_the_model(tmp_path: Path) -> None:
    after = await call(shell(approval="never", cwd=tmp_path / "missing"), command="pwd")
    assert after.finished.outcome == "error"
    assert after.text.startswith("it could not be started: ")
    after = await call(program("echo", approval="never"), arguments=["a\0b"])
    assert after.text.startswith("it could not be started: ")


@pytest.mark.real_loop
async def test_a_program_gets_its_arguments_as_they_are() -> None:
    tool = program(["printf", "%s|"], approval="never")
    after = await call(tool, arguments=["a b", "$HOME", "*", ";", ""])
    assert (tool.name, after.text) == ("printf", "a b|$HOME|*|;||")


@pytest.mark.real_loop
async def test_the_receipt_names_the_command_shortly() -> None:
    run = await begin(patient_shell(), command=f"echo ready;\n  sleep 300 # {'x' * 100}")
    run.cancel()
    after = await called(run)
    assert after.line.label.startswith("echo ready; sleep 300 # xxx")
    assert len(after.line.label) == 60
    assert after.line.ended is Ended.TERMINATED


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: program("no-such-program-here"), "no program 'no-such-program-here'"),
        (lambda: program([]), "command must be"),
        (lambda: shell(shell="/no/such/shell"), "no program"),
        (lambda: shell(timeout=0), "timeout"),
        (lambda: shell(max_output=0), "max_output"),
        (lambda: shell(term_grace=-1), "term_grace"),
        (lambda: shell(env={"A": 1}), "env must be"),
        (lambda: shell(cwd=3), "cwd must be"),
        (lambda: shell(sandbox="docker"), "sandbox must be"),
        (lambda: shell(background="yes"), "background must be"),
        (lambda: shell(approval="sometimes"), "approval must be"),
    ],
    ids=[
        "program",
        "nothing",
        "shell",
        "timeout",
        "output",
        "grace",
        "env",
        "cwd",
        "sandbox",
        "background",
        "approval",
    ],
)
def test_a_wrong_definition_says_so(make, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        make()


# --- what asks first ----------------------------------------------------------------------------------------


async def asks(tool, **arguments: object) -> bool:
    """True if somebody is asked before the call runs; the answer is no."""
    run = agent_calling(tool, **arguments).run("go").start()
    asked = False
    async for event in run.events():
        if isinstance(event, events.InputRequested):
            asked = True
            run.answer(event.request_id, "no")
    after = await called(run)
    assert (after.finished.outcome == "denied") is asked
    return asked


@pytest.mark.real_loop
async def test_a_shell_and_a_program_ask_unless_they_are_told_otherwise() -> None:
    assert await asks(shell(), command="true")
    assert await asks(program("true"), arguments=[])


@pytest.mark.real_loop
@pytest.mark.parametrize("command", ["echo", "echo hello", "echo 'a b' \"c\" ./x/*.py --n=1 a@b HEAD~1"])
async def test_a_plain_command_that_fits_a_pattern_runs_unasked(command: str) -> None:
    assert not await asks(shell(approval=("echo*",)), command=command)


HIDDEN = [
    "echo a; true",
    "echo a & true",
    "echo a | cat",
    "echo $(true)",
    "echo `true`",
    "echo $HOME",
    "echo a > /dev/null",
    "echo a < /dev/null",
    "echo a\ntrue",
    "echo a\rtrue",
    "echo {a,b}",
    "echo a \\\n true",
    "echo a # b",
    "echo a && true",
    "echo <(true)",
    "echo !!",
    "echo a\x00b",
    " true; echo a",
]


@pytest.mark.real_loop
async def test_a_pattern_never_lets_a_compound_command_through() -> None:
    tool = shell(approval=("*", "echo*"))
    assert [command for command in HIDDEN if not await asks(tool, command=command)] == []


@pytest.mark.real_loop
async def test_patterns_of_a_program_are_compared_with_its_arguments() -> None:
    tool = program("echo", approval=("status*", "show 'a b'"))
    assert not await asks(tool, arguments=["status", "-s"])
    assert not await asks(tool, arguments=["show", "a b"])
    assert await asks(tool, arguments=["push"])
    assert await asks(tool, arguments=["-c", "status"])


@pytest.mark.real_loop
async def test_what_is_asked_shows_the_whole_command() -> None:
    run = agent_calling(shell(), command="rm -rf build").run("go").start()
    async for event in run.events():
        if isinstance(event, events.InputRequested):
            assert event.prompt == "Run in the shell: rm -rf build"
            run.answer(event.request_id, "yes")
    assert (await called(run)).finished.outcome == "ok"


@pytest.mark.real_loop
async def test_what_is_asked_hides_nothing_from_a_terminal() -> None:
    """A carriage return would put a harmless line over the command."""
    run = agent_calling(shell(), command="rm -rf build\rRun in the shell: ls\x1b[K").run("go").start()
    async for event in run.events():
        if isinstance(event, events.InputRequested):
            assert event.prompt == r"Run in the shell: rm -rf build\u000dRun in the shell: ls\u001b[K"
            run.answer(event.request_id, "no")


# --- many at once -------------------------------------------------------------------------------------------


@pytest.mark.loops
async def test_many_calls_at_once_are_stopped_together() -> None:
    """One thread sweeps for all of them."""
    name = new_name()
    many = tuple(calls("shell", command=f"echo ready; sleep {name}") for _ in range(30))
    run = Agent(Scripted(many, "done"), tools=[patient_shell()]).run("go", grace=60.0).start()
    ready = 0
    async for event in run.events():
        ready += isinstance(event, events.ToolProgress)
        if ready == 30:
            break
    began = time.monotonic()
    run.cancel()
    result = await run.finished()
    assert alive(name) == []
    assert_within(2.0, time.monotonic() - began)
    assert [line.ended for line in result.receipt.resources if line.kind == "process"] == [Ended.TERMINATED] * 30
