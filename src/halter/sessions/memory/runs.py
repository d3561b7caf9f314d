"""Run records in memory, and what is asked of the runs: stops and mail. Plain data, no lock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import count, islice

import msgspec

from halter.core.owner import is_dead
from halter.messages import Message
from halter.outcome import Cancellation
from halter.sessions.port import Asked, Mail, MailState, RunQuery
from halter.sessions.records import LateResult, RunRecord


@dataclass(slots=True)
class _Letter:
    mail: Mail
    state: MailState = "waiting"
    was_handed_over: bool = False


class KeptRuns:
    """All records by their ids. `live`: of those that are not final, the generation of their lease, if they had one."""

    def __init__(self) -> None:
        self._records: dict[str, RunRecord] = {}
        self.live: dict[str, int | None] = {}
        self._stops: dict[str, Cancellation] = {}
        self._letters: dict[int, _Letter] = {}
        self._numbers = count(1)

    # --- records --------------------------------------------------------------------------------------------

    def get(self, run_id: str) -> RunRecord | None:
        return self._records.get(run_id)

    def put(self, record: RunRecord, generation: int | None = None) -> None:
        """`generation`: of its lease, if it has got one now."""
        self._records[record.run_id] = record
        if record.status.is_final:
            self.live.pop(record.run_id, None)
            self._stops.pop(record.run_id, None)
        elif generation is not None:
            self.live[record.run_id] = generation
        else:
            self.live.setdefault(record.run_id, None)

    def add_late(self, run_id: str, late: LateResult) -> None:
        record = self._records.get(run_id)
        if record is not None:
            self._records[run_id] = msgspec.structs.replace(record, late=(*record.late, late))

    def lost(self, has_turn: Callable[[RunRecord, int], bool], *, of: str | None = None) -> Iterator[RunRecord]:
        """Those that nobody carries any more. `has_turn`: whether a lease of this generation is still its own.

        `of`: of this session only.
        """
        for run_id, generation in self.live.items():
            record = self._records[run_id]
            if of is not None and record.session_id != of:
                continue
            if is_dead(record.owner) or (generation is not None and not has_turn(record, generation)):
                yield record

    def find(self, query: RunQuery) -> list[RunRecord]:
        found = sorted(
            (record for record in self._records.values() if _fits(record, query)),
            key=lambda record: (record.started_at, record.run_id),
            reverse=True,
        )
        return list(islice(found, query.offset, query.offset + query.limit))

    def forget_before(self, before: float) -> int:
        over = [(id, record.ended_at) for id, record in self._records.items() if id not in self.live]
        return self._forget(id for id, ended_at in over if ended_at is not None and ended_at < before)

    def forget_session(self, session_id: str) -> None:
        self._forget([id for id, record in self._records.items() if record.session_id == session_id])

    def forget_user(self, user: str) -> None:
        self._forget([id for id, record in self._records.items() if record.user == user])

    def _forget(self, run_ids: Iterable[str]) -> int:
        gone = set(run_ids)
        for run_id in gone:
            del self._records[run_id]
            self.live.pop(run_id, None)
            self._stops.pop(run_id, None)
        for letter in [letter for letter in self._letters.values() if letter.mail.run_id in gone]:
            del self._letters[letter.mail.id]
        return len(gone)

    # --- stops and mail -------------------------------------------------------------------------------------

    def ask_to_stop(self, run_id: str, cancellation: Cancellation) -> None:
        """Of one that is live, or waits for its turn."""
        before = self._stops.get(run_id, cancellation)
        self._stops[run_id] = before.with_mode(cancellation.mode)

    def drop_stop(self, run_id: str) -> None:
        """It has ended without its turn."""
        self._stops.pop(run_id, None)

    def send(self, run_id: str, messages: Sequence[Message]) -> int:
        number = next(self._numbers)
        if run_id in self.live:
            self._letters[number] = _Letter(Mail(id=number, run_id=run_id, messages=tuple(messages)))
        return number

    def mail_state(self, number: int) -> MailState:
        letter = self._letters.get(number)
        if letter is None or (letter.state == "waiting" and letter.mail.run_id not in self.live):
            return "returned"
        return letter.state

    def sort(self, numbers: Collection[int], state: MailState) -> None:
        for number in numbers:
            if number in self._letters:
                self._letters[number].state = state

    def asked(self, owner: str, waiting: AbstractSet[str]) -> Asked:
        """`waiting`: the owner's runs that wait for their turns."""
        mine = {run_id for run_id in self.live if self._records[run_id].owner == owner}
        letters = [each for each in self._letters.values() if each.mail.run_id in mine and not each.was_handed_over]
        for letter in letters:
            letter.was_handed_over = True
        stops = {run_id: self._stops.pop(run_id) for run_id in (mine | waiting) & self._stops.keys()}
        return Asked(stops=stops, mail=tuple(letter.mail for letter in letters))


def _fits(record: RunRecord, query: RunQuery) -> bool:
    return (
        query.session_id in (None, record.session_id)
        and query.user in (None, record.user)
        and query.status in (None, record.status)
        and set(query.tags).issubset(record.tags)
        and (query.before is None or (record.started_at, record.run_id) < query.before)
        and (query.since is None or record.started_at >= query.since)
        and (query.until is None or record.started_at < query.until)
    )
