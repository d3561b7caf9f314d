"""What of a run's tree is shown as one message, and what of it is open: for formats that pair starts with ends.

1. A run speaks by its own text, and by that of the runs that it is made of (members of a crew, steps of a flow). What
an agent's tools start in turn is their own work, and not shown. 2. A call has one id in the whole stream, though
providers count from 0 in each answer. 3. A run **pauses** where it can do nothing more without an answer: a question is
open, and so is no call but those that wait for one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from halter import events
from halter.events import Event
from halter.server.frames import merged
from halter.server.fronts.front import RuledFormat
from halter.server.names import Names
from halter.server.port import RunInfo

# Kinds whose children do not speak for them, and kinds that never speak.
ALONE = frozenset(("agent", "runnable"))
SILENT = frozenset(("memory", "compaction"))


class ShownCall(msgspec.Struct, kw_only=True):
    """One tool call. `id`: as it is shown. `pieces`: of its arguments, until their tool has a name.

    `is_begun`: its start is shown; `is_whole`: so are its arguments. `stage`: of the message, in which it was begun.
    `waits_for`: the question that it has asked.
    """

    id: str
    run_id: str
    name: str = ""
    arguments: str = ""
    pieces: list[str] = msgspec.field(default_factory=list[str])
    is_begun: bool = False
    is_whole: bool = False
    stage: int = 0
    waits_for: str | None = None
    was_asked: bool = False


class Showing:
    """What a format knows of the run that it shows.

    Args:
        answered: ids of the questions that the client has just answered: no pause waits for them.
        now: the run as it is: of the questions asked before, no pause waits for those that are closed.
    """

    def __init__(self, answered: frozenset[str] = frozenset(), now: RunInfo | None = None) -> None:
        self._seen = now.seq if now is not None else 0
        self._open = frozenset(each.request_id for each in now.inputs) if now is not None else frozenset[str]()
        self.root = ""
        self.stage = 0
        self.has_spoken = False
        self.questions: dict[str, events.InputRequested] = {}
        self._answered = answered
        self._kinds: dict[str, str] = {}  # of the runs that are shown
        self._calls: dict[tuple[str, str], ShownCall] = {}  # that are open, those of other runs too
        self._ids: set[str] = set()

    # --- runs -----------------------------------------------------------------------------------------------

    def begin(self, run_id: str) -> None:
        """The run that is shown."""
        self.root = run_id
        self._kinds.setdefault(run_id, "agent")

    def take_run(self, event: events.Started) -> bool:
        """A run has started. True if it is shown, as a part of the root."""
        if event.run_id == self.root:
            self._kinds[event.run_id] = event.kind
            return False
        above = self._kinds.get(event.parent_id or "")
        if above is None or above in ALONE or event.kind in SILENT:
            return False
        self._kinds[event.run_id] = event.kind
        return True

    def shows(self, run_id: str) -> bool:
        """True if what this run says is shown."""
        return run_id in self._kinds

    # --- calls ----------------------------------------------------------------------------------------------

    def call(self, run_id: str, call_id: str, name: str = "") -> ShownCall:
        """The open call of this id; a new one if there is none."""
        found = self._calls.get((run_id, call_id))
        if found is None:
            found = self._calls[run_id, call_id] = ShownCall(id=self._new_id(call_id), run_id=run_id, stage=self.stage)
        found.name = found.name or name
        return found

    def _new_id(self, call_id: str) -> str:
        id, number = call_id, 1
        while id in self._ids:
            number += 1
            id = f"{call_id}~{number}"
        self._ids.add(id)
        return id

    def show_call(self, call: ShownCall) -> None:
        """The call's start is shown from here on."""
        call.is_begun, call.stage = True, self.stage

    def asking(self, event: events.InputRequested) -> ShownCall | None:
        """The call that a question is about, shown or not."""
        return self._calls.get((event.run_id, event.call_id)) if event.call_id is not None else None

    def finish_call(self, run_id: str, call_id: str) -> ShownCall | None:
        """The call that has ended; `None` if its beginning was never told."""
        return self._calls.pop((run_id, call_id), None)

    @property
    def open_calls(self) -> list[ShownCall]:
        """The calls that are shown and have no end."""
        return [call for call in self._calls.values() if call.is_begun]

    # --- questions ------------------------------------------------------------------------------------------

    def ask(self, event: events.InputRequested, call: ShownCall | None) -> None:
        """A question is open."""
        self.questions[event.request_id] = event
        if call is not None:
            call.waits_for, call.was_asked = event.request_id, True
        elif event.run_id != self.root:
            self.stage += 1  # the call that this run works for cannot end before the answer

    def hear(self, event: events.InputReceived) -> events.InputRequested | None:
        """The question that is closed now."""
        for call in self._calls.values():
            if call.waits_for == event.request_id:
                call.waits_for = None
        return self.questions.pop(event.request_id, None)

    @property
    def is_stuck(self) -> bool:
        """True if nothing goes on without an answer."""
        return bool(self.questions) and all(
            call.waits_for is not None for call in self.open_calls if call.stage == self.stage
        )

    @property
    def is_answered(self) -> bool:
        """True if the client has answered one of the questions that are open."""
        return not self._answered.isdisjoint(self.questions)

    @property
    def unanswered(self) -> list[events.InputRequested]:
        """The open questions that nobody has answered."""
        return [
            each
            for id, each in self.questions.items()
            if id not in self._answered and (each.seq > self._seen or id in self._open)
        ]


class MessageFormat(RuledFormat, abstract=True):
    """A format that shows a run as one message, always from its first event on, and may end where the run pauses.

    Args:
        names: of the tenant who reads.
        pauses: whether the response ends where the run waits for answers that its client brings with its next request.
            Otherwise it stays open, and somebody answers by `POST /v1/runs/{id}/input`.
        answered: ids of the questions that the client has just answered. The response begins behind the pause in which
            they were asked.
        now: the run as it is: pauses that are over are passed.
    """

    has_cursors: ClassVar[bool] = False

    def __init__(
        self,
        names: Names,
        *,
        pauses: bool = False,
        answered: frozenset[str] = frozenset(),
        now: RunInfo | None = None,
    ) -> None:
        super().__init__(names)
        self.is_paused = False
        self._showing = Showing(answered, now)
        self._pauses = pauses
        self._is_silent = bool(answered)

    @abstractmethod
    def _resumed(self) -> bytes:
        """The first frames of a response that begins behind a pause."""

    @abstractmethod
    def _paused(self) -> bytes:
        """The last frames before a pause."""

    def batch(self, found: Sequence[Event]) -> bytes:
        """The frames of these events, up to a pause."""
        frames = bytearray()
        for event in merged(found):
            show = self._shown.get(type(event))
            if show is None:
                continue
            if self._is_silent and event.is_terminal and event.run_id == self._showing.root:
                self._is_silent = False  # the answers were to no pause that is left: the end is told all the same
                frames = bytearray(self._resumed())
            frames += show(self, self._names.in_event(event))
            if self._pauses and type(event) in _MAY_PAUSE and self._showing.is_stuck:
                if self._is_silent and self._showing.is_answered:
                    self._is_silent = False
                    frames = bytearray(self._resumed())
                elif not self._is_silent and self._showing.unanswered:
                    self.is_paused = True
                    return bytes(frames + self._paused())
        return b"" if self._is_silent else bytes(frames)


_MAY_PAUSE = (events.InputRequested, events.ToolFinished)
