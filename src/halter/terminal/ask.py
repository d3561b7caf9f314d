"""`halter ask`: one question, one answer, for pipes and scripts.

The answer goes to stdout, all else to stderr. No escape code is ever written. The run is stopped down to its socket by
SIGINT, SIGTERM, SIGHUP, and when nobody reads stdout any more.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from halter import events
from halter.core.run import Run
from halter.outcome import RunResult
from halter.terminal import logs
from halter.terminal.receipts import in_one_line
from halter.terminal.safe import safe, safe_json, safe_line
from halter.terminal.stopping import Interrupted, StopSignals, discard_output

if TYPE_CHECKING:
    from halter.client.run import RemoteRun  # loads what a request needs, before there is one

FAILED = 1


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """How the answer is given. `approve`: tools that run unasked, `all` for every one."""

    as_json: bool = False
    is_structured: bool = False
    approve: Collection[str] = ()


def answer(run: Run[Any] | RemoteRun[Any], wanted: Wanted) -> int:
    """Runs it and prints what it says; the exit code: 0, 1 (failed), or 128 and the signal that stopped it."""
    return _Answer(run, wanted, sys.stdout).code()


class _Answer:
    def __init__(self, run: Run[Any] | RemoteRun[Any], wanted: Wanted, out: IO[str]) -> None:
        self._run = run
        self._wanted = wanted
        self._out = out
        self._stop = StopSignals(run, out.fileno())
        self._tools: dict[tuple[str, str], str] = {}  # the names of calls, by run and id
        self._said = ""
        self._is_shown = True  # False once nothing more can be written

    def code(self) -> int:
        with self._stop, logs.said(self._note):
            for event in self._run:
                self._take(event)
            result = self._run.outcome
            if result is not None:
                self._end(result)
        if self._stop.is_output_gone or not self._is_shown:
            discard_output(self._out.fileno())
        return FAILED if result is None else self._code_of(result)

    def _code_of(self, result: RunResult[Any]) -> int:
        if result.is_completed:
            return 0 if self._is_shown else FAILED
        stopped_by = self._stop.number
        return 128 + stopped_by if result.is_cancelled and stopped_by is not None else FAILED

    # --- what happens ---------------------------------------------------------------------------------------

    def _take(self, event: events.Event) -> None:
        if self._wanted.as_json:
            self._write(safe_json(events.encode(event).decode()) + "\n")
        elif isinstance(event, events.TextDelta) and self._speaks(event.run_id):
            self._text(event.text)
        if isinstance(event, events.ToolCalled):
            self._tools[event.run_id, event.call_id] = event.name
        elif isinstance(event, events.InputRequested):
            self._decide(event)

    def _speaks(self, run_id: str) -> bool:
        run = self._run
        return run._execution.voice.speaks_as(run_id) if isinstance(run, Run) else run_id == run.id

    def _text(self, text: str) -> None:
        """Shown as it comes, but for JSON: that is shown whole, or not at all."""
        self._said += text
        if not self._wanted.is_structured:
            self._write(safe(text))

    def _end(self, result: RunResult[Any]) -> None:
        if not self._wanted.as_json:
            self._end_text(result)
        if result.is_cancelled:
            self._note(in_one_line(result))
        elif result.is_failed:
            self._note(safe_line(result.why()))

    def _end_text(self, result: RunResult[Any]) -> None:
        if self._wanted.is_structured:
            if result.is_completed:
                self._write(safe_json(result.text) + "\n")
            return
        if not self._said and result.is_completed:
            self._text(result.text)
        if self._said and not self._said.endswith("\n"):
            self._write("\n")

    # --- questions ------------------------------------------------------------------------------------------

    def _decide(self, asked: events.InputRequested) -> None:
        """Nothing is allowed because nobody is there: what was not approved beforehand is refused, and said."""
        if asked.kind != "approval":
            self._note(f"the agent asks, and nobody can answer here: {safe_line(asked.prompt, 200)}")
            self._run.cancel("it asks a question, and nobody can answer in `halter ask`")
            return
        name = self._tools.get((asked.run_id, asked.call_id or ""), "")
        is_allowed = "all" in self._wanted.approve or name in self._wanted.approve
        if not is_allowed:
            self._note(f"not allowed (--approve or --approve-tool {name} allows it): {safe_line(asked.prompt, 200)}")
        self._run.answer(asked.request_id, is_allowed)

    # --- writing --------------------------------------------------------------------------------------------

    def _write(self, text: str) -> None:
        if not self._is_shown:
            return
        try:
            with self._stop.blocking():
                self._out.write(text)
                self._out.flush()
        except Interrupted:
            self._is_shown = False
        except OSError:
            self._is_shown = False
            self._stop.output_gone()

    def _note(self, text: str) -> None:
        try:
            print(f"halter: {text}", file=sys.stderr, flush=True)
        except OSError:
            pass  # nobody reads that either
