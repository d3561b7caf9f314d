"""Each example does what its docstring says: without a key, and against the provider that records what it saw."""

from __future__ import annotations

import ast
import re
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import msgspec
import pytest

from halter.proof.wire import Record, Wire
from halter.testing.wire_probe import WireProbe

from ..bounds import T, assert_within
from .program import EXAMPLES, LIMIT, NAMES, ROOT, output_of, started

OPENAI, ANTHROPIC = "openai:any", "anthropic:any"

# What each prints without a key; those that wait for a key or a browser have tests of their own below.
SAYS = {
    "agent_in_agent": ("researcher: stopped (parent_cancelled)", "editor: stopped (user_stop)"),
    "approvals": ("delete_file: ok: old.log is gone", "files: ['notes.md']"),
    "chat_session": (
        "assistant: A river begins almost nowhere, [stopped]",
        "assistant: calls post\n     tool: This call was lost with the process that ran it",
        "assistant: I cannot tell: please have a look.",
        "'Write on rivers.': cancelled user_stop (the stop button)\n'Go on, briefly.': completed",
        "'Post it, please.': cancelled owner_lost",
    ),
    "crew": ("done: research; cut short: write", "asked again: write", "A river begins almost nowhere, in the rain."),
    "flow": (
        '"done":["plan","write","judge"],"pending":[{"step":"write"',
        "ended: write\nended: judge\nended: publish",
    ),
    "payment": ("track: cancelled", "pay: ok", "paid: ['R-17']"),
    "race": ("stopped (lost_race)", "the winner says: Rivers run."),
    "remembers": (
        "known of anna: Anna must not eat nuts.",
        "- Anna must not eat nuts.]\\n\\nWhat may Anna eat tonight?",
    ),
    "shell_tree": ("running: []", "process"),
    "team": ("critic: Lovely. APPROVED", "the end: critic has ended with 'APPROVED'"),
    "structured_output": ("missing required field `currency`", "Elbe Paper Ltd. wants 37.50 EUR"),
}
WAITS = {"ctrl_c", "stop_button", "served"}  # the test of docs/server.md serves the last one


def test_no_example_is_left_untested() -> None:
    assert set(NAMES) == SAYS.keys() | WAITS


@pytest.mark.parametrize("name", SAYS)
def test_it_runs_as_it_is_without_a_key(name: str) -> None:
    printed = output_of(name, given="yes\n")
    assert [words for words in SAYS[name] if words not in printed] == [], printed


@pytest.mark.parametrize("name", NAMES)
def test_it_says_in_its_docstring_how_it_is_run(name: str) -> None:
    source = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    command = "halter serve" if name == "served" else "python"
    assert f"{command} examples/{name}.py" in (ast.get_docstring(ast.parse(source)) or "")
    assert f"({name}.py)" in (EXAMPLES / "README.md").read_text(encoding="utf-8")


def closed_by_client(record: Record) -> float:
    """When; it must have been the client, and before the provider was through."""
    assert record.closed_how in ("eof", "reset")
    assert record.closed_at is not None
    assert record.finished_at is None
    return record.closed_at


# --- team.py ------------------------------------------------------------------------------------------------


def test_ctrl_c_stops_the_member_who_speaks_and_nobody_speaks_after_it(wire: WireProbe) -> None:
    """By a plain handler that cancels a token: exit code 130, one request, closed within 250 ms."""
    with started("team", OPENAI, OPENAI_BASE_URL=wire.url("steady(2000,5)")) as program:
        program.read_until("t3 ")
        asked = time.monotonic()
        program.process.send_signal(signal.SIGINT)
        printed = program.rest()
        assert (program.process.returncode, program.errors) == (130, "")
    [record] = wire.assert_closed(since=asked)
    assert record.tokens_sent < 2000
    assert "It was stopped: user_stop (Ctrl-C)" in printed
    assert "whole turns: 0; cut off: writer" in printed


# --- ctrl_c.py ----------------------------------------------------------------------------------------------


def test_ctrl_c_stops_the_agent_and_the_program_goes_on_to_its_end(wire: WireProbe) -> None:
    """A real SIGINT: exit code 130, the receipt is printed, and the provider saw the socket close within 250 ms."""
    with started("ctrl_c", OPENAI, OPENAI_BASE_URL=wire.url("steady(2000,5)")) as program:
        program.read_until("t3 ")
        asked = time.monotonic()
        program.process.send_signal(signal.SIGINT)
        printed = program.rest()
        assert (program.process.returncode, program.errors) == (130, "")
    [record] = wire.assert_closed(since=asked)
    assert record.tokens_sent < 2000
    assert "It was stopped: signal (SIGINT)" in printed
    assert re.search(r"socket +POST .* closed", printed)


def test_without_ctrl_c_the_program_ends_with_zero(wire: WireProbe) -> None:
    printed = output_of("ctrl_c", OPENAI, OPENAI_BASE_URL=wire.url("steady(5,1)"))
    assert "t0 t1 t2 t3 t4 \n\nIt completed." in printed


# --- stop_button.py -----------------------------------------------------------------------------------------


@contextmanager
def post(host: str, path: str) -> Iterator[HTTPResponse]:
    """A request on a connection of its own, which is closed at the end of the block."""
    connection = HTTPConnection(host, timeout=LIMIT)
    connection.request("POST", path)
    with closing(connection), connection.getresponse() as response:
        yield response


@pytest.mark.parametrize("by", ["another connection", "a client that goes away"])
def test_the_stop_button_closes_the_provider_s_socket(wire: WireProbe, by: str) -> None:
    with started("stop_button", OPENAI, PORT="0", OPENAI_BASE_URL=wire.url("steady(2000,5)")) as server:
        host = server.read_errors_until(r"http://(127\.0\.0\.1:\d+)")
        with post(host, "/ask?question=rivers") as answer:
            assert answer.read(3) == b"t0 "
            asked = time.monotonic()
            if by == "another connection":
                with post(host, f"/stop/{answer.headers['Run-Id']}") as stopped:
                    told = msgspec.json.decode(stopped.read())
                assert told["status"] == "cancelled"
                assert re.search("socket .* closed after", told["receipt"])
                assert len(answer.read().split()) < 2000  # it has ended, and ended well
        wire.assert_closed(since=asked)
        with post(host, "/stop/nobody") as stopped:
            assert stopped.status == 404
        server.process.send_signal(signal.SIGINT)
        server.rest()
    assert len(wire.requests()) == 1


def test_the_stop_button_takes_fifteen_lines() -> None:
    source = (EXAMPLES / "stop_button.py").read_text(encoding="utf-8")
    core = source[source.index("app = FastAPI()") : source.index("PAGE =")]
    assert len([line for line in core.splitlines() if line.strip()]) <= 15


# --- payment.py ---------------------------------------------------------------------------------------------


def test_a_payment_that_has_begun_is_done_and_the_model_is_not_asked_again(wire: WireProbe) -> None:
    url = wire.url('tool-call(pay,{"invoice":"R-17","cents":4200})')
    printed = output_of("payment", OPENAI, OPENAI_BASE_URL=url)
    assert "pay: ok" in printed
    assert "R-17: 42.00 EUR paid" in printed
    assert "paid: ['R-17']" in printed
    assert re.search(r"tool +pay +finished", printed)
    assert len(wire.requests()) == 1


# --- race.py ------------------------------------------------------------------------------------------------


def test_the_loser_of_a_race_is_stopped_as_soon_as_there_is_a_winner(wire: WireProbe) -> None:
    fast, slow = wire.url("steady(10,5)"), wire.url("steady(2000,10)").removesuffix("/v1")
    printed = output_of("race", OPENAI, ANTHROPIC, OPENAI_BASE_URL=fast, ANTHROPIC_BASE_URL=slow)
    winner, loser = sorted(wire.wait("closed", 2), key=lambda record: record.finished_at is None)
    assert winner.finished_at is not None
    assert_within(T, closed_by_client(loser) - winner.finished_at, "the loser's socket")
    assert "stopped (lost_race)" in printed
    assert "the winner says: t0 t1" in printed


# --- shell_tree.py ------------------------------------------------------------------------------------------


def test_nothing_of_a_shell_s_tree_is_left(wire: WireProbe) -> None:
    source = (EXAMPLES / "shell_tree.py").read_text(encoding="utf-8")
    [command] = re.findall(r'^COMMAND = "(.*)"$', source, re.MULTILINE)
    asked = msgspec.json.encode({"command": command}).decode()
    printed = output_of("shell_tree", OPENAI, OPENAI_BASE_URL=wire.url(f"tool-call(shell,{asked})"))
    before, after = re.findall(r"^running: \[(.*)\]$", printed, re.MULTILINE)
    pids = re.findall(r"\d+", before)
    assert (len(pids), after) == (3, "")
    assert [pid for pid in pids if "sleep" in command_of(pid)] == []
    assert re.search(r"process +sleep 300 .* (terminated|killed)", printed)
    assert len(wire.requests()) == 1


def command_of(pid: str) -> str:
    try:
        return Path("/proc", pid, "cmdline").read_text()
    except OSError:
        return ""


# --- approvals.py -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "outcome", "left"),
    [
        ("yes\n", "ok: old.log is gone", "files: ['notes.md']"),
        ("maybe\nno\n", "denied: This call was not allowed.", "files: ['notes.md', 'old.log']"),
        ("", "denied: This call was not allowed.", "files: ['notes.md', 'old.log']"),
    ],
    ids=["yes", "no", "end of the input"],
)
def test_what_is_said_in_the_terminal_decides(wire: WireProbe, given: str, outcome: str, left: str) -> None:
    """The tool runs after a yes alone, and the model is told: by its next request."""
    url = wire.url('tool-call(delete_file,{"name":"old.log"})')
    printed = output_of("approvals", OPENAI, given=given, OPENAI_BASE_URL=url)
    assert f"delete_file: {outcome}" in printed
    assert left in printed
    assert printed.count("Delete old.log? [yes/no]") == max(1, given.count("\n"))
    _, told = wire.requests()
    assert outcome.split(": ")[1] in told.body


# --- structured_output.py -----------------------------------------------------------------------------------


def test_an_answer_of_a_type_is_asked_for_with_its_schema(tmp_path: Path) -> None:
    answer = '{"sender": "Elbe", "cents": 1250, "currency": "EUR", "due": null}'
    delta = {"index": 0, "delta": {"role": "assistant", "content": answer}, "finish_reason": "stop"}
    frame = msgspec.json.encode({"id": "1", "object": "chat.completion.chunk", "model": "any", "choices": [delta]})
    (tmp_path / "invoice.sse").write_bytes(b"data: %s\n\ndata: [DONE]\n\n" % frame)
    with Wire.start(recordings=tmp_path) as wire:
        url = wire.url("replay(invoice.sse)", tag="one")
        printed = output_of("structured_output", OPENAI, OPENAI_BASE_URL=url)
        [request] = wire.requests("one")
    assert "Elbe wants 12.50 EUR" in printed
    schema = msgspec.json.decode(request.body)["response_format"]["json_schema"]
    assert schema["name"] == "Invoice"
    assert schema["strict"] is True


# --- agent_in_agent.py --------------------------------------------------------------------------------------


def test_a_stop_of_the_outer_agent_closes_the_inner_one_s_socket(wire: WireProbe) -> None:
    outer = wire.url('tool-call(researcher,{"input":"What is a river?"})')
    inner = wire.url("steady(2000,10)").removesuffix("/v1")
    printed = output_of("agent_in_agent", OPENAI, ANTHROPIC, OPENAI_BASE_URL=outer, ANTHROPIC_BASE_URL=inner)
    asked, answering = wire.wait("closed", 2)
    assert asked.finished_at is not None
    closed_by_client(answering)
    assert answering.tokens_sent < 200
    assert "researcher: t7" in printed
    assert "researcher: stopped (parent_cancelled)" in printed
    assert re.search(r"socket +POST .*/messages +closed", printed)


# --- crew.py ------------------------------------------------------------------------------------------------


def test_the_crew_s_second_task_is_cut_and_it_alone_is_asked_again(wire: WireProbe) -> None:
    printed = output_of("crew", OPENAI, OPENAI_BASE_URL=wire.url("steady(20,10)"))
    assert "It had written: 't0 t1 t2 " in printed
    research, cut, again = wire.requests()
    closed_by_client(cut)
    assert (research.finished_at is not None, again.finished_at is not None) == (True, True)
    assert "interrupted" in again.body


# --- flow.py ------------------------------------------------------------------------------------------------


def test_a_flow_that_goes_on_asks_for_no_step_again_that_had_ended(wire: WireProbe) -> None:
    """The plan is asked for once; the paragraph that was cut, and the one after it, when the flow goes on."""
    printed = output_of("flow", OPENAI, OPENAI_BASE_URL=wire.url("steady(200,2)"))
    assert '"done":["plan"],"pending":[{"step":"write"' in printed
    assert "ended: write\nended: judge\nended: write\nended: judge\nended: publish" in printed
    plan, cut, *rest = wire.requests()
    closed_by_client(cut)
    assert plan.finished_at is not None
    assert [record.finished_at is not None for record in rest] == [True, True]


def test_the_table_of_examples_is_linked_from_the_readme() -> None:
    assert "(examples/README.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
