"""What is asked of the runs of other processes: to stop, and to read mail.

A run that waits for its session's turn has no record yet: the stop that is asked of it lies among the mail.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from halter.messages import Message
from halter.outcome import Cancellation, CancelReason
from halter.sessions.port import Asked, Mail, MailState
from halter.sessions.sql.columns import Unreadable, packed, unpacked
from halter.sessions.sql.damaged import tell
from halter.sessions.sql.runs import STOP, is_carried
from halter.sessions.sql.schema import mail, queue, runs
from halter.sessions.sql.transaction import Transaction

KEPT = 3_600.0  # seconds after a run's end for which it is known that mail was taken
_was_unread = mail.c.state == "waiting"
_is_stop = mail.c.state == STOP


def ask_to_stop(tx: Transaction, run_id: str, cancellation: Cancellation) -> bool:
    """False if nobody carries the run. Of several stops that were not handed over yet, the first counts, made as strong
    as the strongest."""
    asked = sa.select(runs.c.stop, runs.c.stop_nonce).where(runs.c.run_id == run_id, runs.c.live == 1)
    row = tx.first(asked.with_for_update())
    if row is None or not is_carried(tx, run_id):
        return _ask_who_waits(tx, run_id, cancellation)
    if row.stop is not None and row.stop_nonce is None:
        before = _stop(run_id, row.stop)
        cancellation = cancellation if before is None else before.with_mode(cancellation.mode)
    change = sa.update(runs).where(runs.c.run_id == run_id)
    tx.execute(change.values(stop=packed(cancellation), stop_nonce=None))
    return True


def _ask_who_waits(tx: Transaction, run_id: str, cancellation: Cancellation) -> bool:
    if not waits(tx, run_id):
        return False
    tx.execute(sa.insert(mail).values(run_id=run_id, state=STOP, data=packed(cancellation)))
    return True


def waits(tx: Transaction, run_id: str) -> bool:
    """Whether somebody has a place for the run in the queue of a session."""
    places = tx.all(sa.select(queue, tx.dialect.lease_clock().label("now")).where(queue.c.run_id == run_id))
    return any(not tx.is_over(place.owner, place.expires_at, place.now) for place in places)


def send(tx: Transaction, run_id: str, said: Sequence[Message], nonce: str) -> int:
    """`nonce`: of this call."""
    if tx.again and (row := tx.first(sa.select(mail.c.key).where(mail.c.nonce == nonce))) is not None:
        return row.key
    is_live = tx.first(sa.select(runs.c.run_id).where(runs.c.run_id == run_id, runs.c.live == 1)) is not None
    letter = {"run_id": run_id, "state": "waiting" if is_live else "returned", "data": packed(tuple(said))}
    made = tx.execute(sa.insert(mail).values(**letter, nonce=nonce)).inserted_primary_key
    assert made is not None
    return made[0]


def mail_state(tx: Transaction, number: int) -> MailState:
    """What waits for a run that is over was not taken into its conversation."""
    joined = mail.outerjoin(runs, runs.c.run_id == mail.c.run_id)
    row = tx.first(sa.select(mail.c.state, runs.c.live).select_from(joined).where(mail.c.key == number))
    if row is None or (row.state == "waiting" and not row.live):
        return "returned"
    return row.state


def sort_mail(tx: Transaction, taken: Collection[int], returned: Collection[int]) -> None:
    """What was sent stands in a conversation now, from which it may be taken back, or nowhere: not here."""
    for state, numbers in (("taken", taken), ("returned", returned)):
        if numbers:
            tx.execute(sa.update(mail).where(mail.c.key.in_(numbers)).values(state=state, data=b""))


def sweep(tx: Transaction) -> None:
    """Removes mail that nobody will read any more: what was not taken by a run that is over, and what was long ago.

    Who has sent it takes mail that is not there as returned, and looks several times a second.
    """
    live = sa.select(runs.c.run_id).where(runs.c.live == 1)
    waiting = sa.select(queue.c.run_id)
    nobody_s = mail.c.run_id.not_in(live) & (_was_unread | (_is_stop & mail.c.run_id.not_in(waiting)))
    tx.execute(sa.delete(mail).where((mail.c.state == "returned") | nobody_s))
    long_over = sa.select(runs.c.run_id).where(runs.c.live == 0, runs.c.ended_at < tx.clock() - KEPT)
    tx.execute(sa.delete(mail).where(mail.c.run_id.in_(long_over)))


def is_anything_asked(tx: Transaction, owner: str) -> bool:
    """A look that changes nothing: this is asked far more often than it is so."""
    mine = (runs.c.owner == owner, runs.c.live == 1)
    stops = sa.select(runs.c.run_id).where(*mine, runs.c.stop.is_not(None), runs.c.stop_nonce.is_(None))
    letters = (
        sa.select(mail.c.run_id)
        .join(runs, runs.c.run_id == mail.c.run_id)
        .where(*mine, _was_unread | _is_stop, mail.c.seen_nonce.is_(None))
    )
    waiting = (
        sa.select(mail.c.run_id)
        .join(queue, queue.c.run_id == mail.c.run_id)
        .where(queue.c.owner == owner, _is_stop, mail.c.seen_nonce.is_(None))
    )
    return tx.first(sa.select(stops.union_all(letters, waiting).limit(1).subquery())) is not None


def hand_over(tx: Transaction, owner: str, nonce: str) -> Asked:
    """Marked with this call's `nonce`: if its answer is lost, it is the same call that asks for them again."""
    mine = (runs.c.owner == owner, runs.c.live == 1)
    stops = sa.update(runs).where(*mine, runs.c.stop.is_not(None), runs.c.stop_nonce.is_(None))
    tx.execute(stops.values(stop_nonce=nonce))
    carried, waiting = sa.select(runs.c.run_id).where(*mine), sa.select(queue.c.run_id).where(queue.c.owner == owner)
    to_us = (mail.c.run_id.in_(carried) & (_was_unread | _is_stop)) | (mail.c.run_id.in_(waiting) & _is_stop)
    tx.execute(sa.update(mail).where(to_us, mail.c.seen_nonce.is_(None)).values(seen_nonce=nonce))
    stopped = [*tx.all(sa.select(runs.c.run_id, runs.c.stop).where(*mine, runs.c.stop_nonce == nonce))]
    sent = tx.all(sa.select(mail).where(mail.c.seen_nonce == nonce).order_by(mail.c.key))
    asked = [(row.run_id, row.stop) for row in stopped]
    asked += [(row.run_id, row.data) for row in sent if row.state == STOP]
    return Asked(
        stops=_strongest((run_id, _stop(run_id, data) or _unknown_stop()) for run_id, data in asked),
        mail=tuple(letter for row in sent if row.state != STOP and (letter := _letter(tx, row)) is not None),
    )


def _strongest(asked: Iterable[tuple[str, Cancellation]]) -> dict[str, Cancellation]:
    """By run, the first stop, made as strong as the strongest."""
    found: dict[str, Cancellation] = {}
    for run_id, stop in asked:
        found[run_id] = found.get(run_id, stop).with_mode(stop.mode)
    return found


def _stop(run_id: str, data: bytes) -> Cancellation | None:
    try:
        return unpacked(data, Cancellation)
    except Unreadable as why:
        return tell(f"the stop that was asked of run {run_id!r}", why)


def _unknown_stop() -> Cancellation:
    """Somebody wants the run to stop, even if nobody can read why."""
    return Cancellation(reason=CancelReason.ADMIN, message="who asked for it cannot be read", at=time.time())


def _letter(tx: Transaction, row: Any) -> Mail | None:
    try:
        return Mail(id=row.key, run_id=row.run_id, messages=unpacked(row.data, tuple[Message, ...]))
    except Unreadable as why:
        sort_mail(tx, taken=(), returned=(row.key,))
        return tell(f"mail {row.key} for run {row.run_id!r}", why)
