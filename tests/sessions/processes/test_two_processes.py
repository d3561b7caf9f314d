"""D47 between processes: two runs on one session, each in a process of its own, on SQLite and on PostgreSQL.

Who comes second waits, goes first, adds to what is being said, or is told no, before anything is answered; and whoever
was killed, or has slept longer than its lease, is in nobody's way.
"""

from __future__ import annotations

import time

import pytest

from halter.core.history import LOST, MAY_HAVE_RUN
from halter.outcome import CancelReason, RunStatus

from ...bounds import T, assert_within
from .children import Child
from .recordings import mode
from .scene import Scene, results_in, said_by, users_in

HEARD = 1.5  # seconds in which one process hears of another: it looks every half second
# Who sleeps too long neither renews its turn nor looks around: it must not fall asleep while it has the file's lock.
SLEEPER = {"lease": 0.6, "hears_every": 60.0}

pytestmark = pytest.mark.scenario("D47")


# --- who comes second ---------------------------------------------------------------------------------------


def test_who_is_not_to_wait_is_told_who_has_the_turn(scene: Scene) -> None:
    """Before anything is asked or stored."""
    first = scene.start("first", mode("forever"))
    first.until("began")
    second = scene.start("second", mode("last"), on_busy="reject")
    ended = second.until("ended")
    assert ended.status == "failed"
    assert ended.error.startswith("SessionBusy")
    assert "first" in ended.error
    assert scene.requests("second") == 0
    first.kill()
    assert users_in(scene.history()) == ["I am first."]


def test_who_waits_goes_next_and_knows_what_was_said(scene: Scene) -> None:
    """The second turn begins when the first has ended; nothing is lost of either."""
    first = scene.start("first", mode("gate"), mode("last"))
    first.until("began")
    second = scene.start("second", mode("last"), on_busy="enqueue")
    second.until("queued")
    first.open_gate()
    assert first.until("ended").status == "completed"
    ended = second.until("ended")
    assert ended.status == "completed"
    assert users_in(scene.history()) == ["I am first.", "I am second."]
    assert scene.history()[: len(first.told[-1].messages)] == first.told[-1].messages
    assert scene.history() == ended.messages


def test_three_wait_in_their_order(scene: Scene) -> None:
    """Nobody overtakes."""
    first = scene.start("first", mode("gate"), mode("last"))
    first.until("began")
    waiting: list[Child] = []
    for name in ("second", "third", "fourth"):
        waiting.append(scene.start(name, mode("last"), on_busy="enqueue"))
        waiting[-1].until("queued")
    first.open_gate()
    for child in (first, *waiting):
        assert child.until("ended").status == "completed"
    assert users_in(scene.history()) == ["I am first.", "I am second.", "I am third.", "I am fourth."]


def test_who_waits_for_one_that_is_killed_goes_next_at_once(scene: Scene) -> None:
    """The dead owner's lease is not waited for: on one machine that it is dead is certain."""
    first = scene.start("first", mode("forever"))
    first.until("began")
    second = scene.start("second", mode("last"), on_busy="enqueue")
    second.until("queued")
    first.kill()
    killed = time.monotonic()
    ended = second.until("ended")
    assert_within(HEARD, ended.at - killed, "the turn after one whose process was killed")
    assert ended.status == "completed"
    assert users_in(scene.history()) == ["I am first.", "I am second."]
    assert results_in(scene.history()) == [LOST]
    lost = scene.record("first")
    assert lost.cancellation is not None
    assert lost.cancellation.reason is CancelReason.OWNER_LOST


def test_who_was_killed_while_it_waited_is_in_nobodys_way(scene: Scene) -> None:
    """Its place in the queue ends with it."""
    first = scene.start("first", mode("gate"), mode("last"))
    first.until("began")
    second = scene.start("second", mode("last"), on_busy="enqueue")
    second.until("queued")
    third = scene.start("third", mode("last"), on_busy="enqueue")
    third.until("queued")
    second.kill()
    first.open_gate()
    assert first.until("ended").status == "completed"
    assert third.until("ended").status == "completed"
    assert users_in(scene.history()) == ["I am first.", "I am third."]


def test_who_interrupts_stops_the_run_of_the_other_process(scene: Scene) -> None:
    """It ends as superseded, its provider's socket is closed, and the turn passes on; what it had said is kept."""
    first = scene.start("first", "steady(5000,5)")
    scene.wire.wire.wait("token", tag=f"{scene.wire.tag}.first")
    second = scene.start("second", mode("last"), on_busy="interrupt")
    asked = second.until("queued").at
    stopped = first.until("ended")
    assert (stopped.status, stopped.reason) == ("cancelled", "superseded")
    assert_within(HEARD, stopped.at - asked, "the other's run, interrupted,")
    (request,) = scene.wire.wire.wait("closed", tag=f"{scene.wire.tag}.first")
    assert request.closed_how in ("eof", "reset")
    assert request.closed_at is not None
    assert_within(T, request.closed_at - stopped.at, "closing the provider's socket")
    assert second.until("ended").status == "completed"
    said = scene.history()
    assert users_in(said) == ["I am first.", "I am second."]
    assert said[1].interrupted
    assert said[1].text.startswith("t0 ")


def test_who_interrupts_goes_before_those_who_wait(scene: Scene) -> None:
    first = scene.start("first", mode("forever"))
    first.until("began")
    second = scene.start("second", mode("last"), on_busy="enqueue")
    second.until("queued")
    third = scene.start("third", mode("last"), on_busy="interrupt")
    for child in (second, third):
        assert child.until("ended").status == "completed"
    assert users_in(scene.history()) == ["I am first.", "I am third.", "I am second."]
    assert results_in(scene.history()) == [MAY_HAVE_RUN]


def test_what_is_steered_is_said_in_the_other_process_and_both_end_alike(scene: Scene) -> None:
    """It is heard at the next step; the second run asks no model of its own."""
    first = scene.start("first", mode("gate"), mode("last"))
    first.until("began")
    second = scene.start("second", mode("one"), on_busy="steer")
    first.until("heard")
    first.open_gate()
    mine, theirs = first.until("ended"), second.until("ended")
    assert (theirs.status, theirs.text) == (mine.status, mine.text) == ("completed", said_by("last"))
    assert scene.requests("second") == 0
    assert users_in(scene.history()) == ["I am first.", "I am second."]
    assert scene.history() == mine.messages


def test_who_has_steered_a_run_that_is_stopped_afterwards_is_stopped_as_well(scene: Scene) -> None:
    """What it was to say had been said; the stop is told as the other's."""
    first = scene.start("first", mode("gate"), "steady(5000,5)")
    first.until("began")
    second = scene.start("second", mode("last"), on_busy="steer")
    first.until("heard")
    first.open_gate()
    first.until("requested")
    first.cancel()
    mine, theirs = first.until("ended"), second.until("ended")
    assert (theirs.status, theirs.reason) == (mine.status, mine.reason) == ("cancelled", "user_stop")
    assert scene.requests("second") == 0
    assert users_in(scene.history()) == ["I am first.", "I am second."]


def test_what_a_stopped_run_had_not_taken_up_is_said_in_a_turn_of_its_own(scene: Scene) -> None:
    """It was heard, and waited for the next step."""
    first = scene.start("first", mode("gate"), mode("last"))
    first.until("began")
    second = scene.start("second", mode("last"), on_busy="steer")
    first.until("heard")
    first.cancel()
    assert first.until("ended").status == "cancelled"
    assert second.until("ended").status == "completed"
    assert users_in(scene.history()) == ["I am first.", "I am second."]


def test_what_is_steered_too_late_is_said_in_a_turn_of_its_own(scene: Scene) -> None:
    """The first had ended before it heard of it: the message is not lost."""
    first = scene.start("first", mode("gate"), mode("last"), hears_every=60.0)
    first.until("began")
    second = scene.start("second", mode("last"), on_busy="steer")
    second.until("sent")
    first.open_gate()
    assert first.until("ended").status == "completed"
    assert second.until("ended").status == "completed"
    assert users_in(scene.history()) == ["I am first.", "I am second."]


def test_what_was_steered_into_one_that_is_killed_is_said_in_a_turn_of_its_own(scene: Scene) -> None:
    first = scene.start("first", mode("forever"))
    first.until("began")
    second = scene.start("second", mode("last"), on_busy="steer")
    second.until("sent")
    first.kill()
    assert second.until("ended").status == "completed"
    assert users_in(scene.history()) == ["I am first.", "I am second."]


# --- who has slept too long ---------------------------------------------------------------------------------


def test_a_process_that_has_slept_longer_than_its_lease_writes_nothing_more(scene: Scene) -> None:
    """Another has taken the turn: what the sleeper says when it wakes up reaches nobody, and its run is lost."""
    first = scene.start("first", mode("gate"), mode("last"), **SLEEPER)
    first.until("began")
    first.stop()
    second = scene.start("second", mode("one"), mode("last"), on_busy="enqueue", lease=0.6)
    assert second.until("ended").status == "completed"
    said = scene.history()
    first.go_on()
    first.open_gate()
    ended = first.until("ended")
    assert (ended.status, ended.reason) == ("cancelled", "owner_lost")
    assert scene.history() == said
    assert users_in(said) == ["I am first.", "I am second."]
    assert results_in(said)[0] == LOST
    assert scene.record("first").status is RunStatus.CANCELLED


def test_a_process_that_has_slept_goes_on_if_nobody_has_taken_its_turn(scene: Scene) -> None:
    """A lease that has run out is lost only to another."""
    first = scene.start("first", mode("gate"), mode("last"), **SLEEPER)
    first.until("began")
    first.stop()
    time.sleep(1.0)
    first.go_on()
    first.open_gate()
    assert first.until("ended").status == "completed"
    assert users_in(scene.history()) == ["I am first."]
    assert scene.record("first").status is RunStatus.COMPLETED
