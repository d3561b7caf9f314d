"""What the core's tests share: what must hold for every finished log, and a look at what is left in memory."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from halter import events


@pytest.fixture
def check_log() -> Callable[..., None]:
    """Asserts what must hold for every finished tree, given its root's events."""

    def check(log: list[events.Event]) -> None:
        assert [event.seq for event in log] == list(range(1, len(log) + 1)), "seq is dense"
        assert log[-1].is_terminal
        assert log[-1].parent_id is None
        ended: dict[str, int] = {}
        started: dict[str, int] = {}
        cancelling: dict[str, int] = {}
        parents: dict[str, str | None] = {}
        for event in log:
            assert event.run_id not in ended, f"{event} after its run's terminal event"
            parents[event.run_id] = event.parent_id
            if isinstance(event, events.Started):
                assert event.run_id not in started
                started[event.run_id] = event.seq
            if isinstance(event, events.Cancelling):
                cancelling[event.run_id] = event.seq
            if event.is_terminal:
                ended[event.run_id] = event.seq
            if isinstance(event, events.Cancelled) and event.run_id in started:
                assert event.run_id in cancelling, "cancelled without run.cancelling"
        asked = [event.request_id for event in log if isinstance(event, events.InputRequested)]
        received = [event.request_id for event in log if isinstance(event, events.InputReceived)]
        assert sorted(asked) == sorted(received), "each request for input is resolved, once"
        assert set(ended) == set(parents), "each run that shows up has its terminal event"
        for run_id, parent_id in parents.items():
            if parent_id is not None:
                assert ended[run_id] < ended[parent_id], "children end before their parents"

    return check


@pytest.fixture
def no_garbage() -> Callable[[type, str], list[Any]]:
    """The live objects of a class with this in their repr, after a collection."""

    def look(kind: type, word: str = "") -> list[Any]:
        gc.collect()
        return [thing for thing in gc.get_objects() if isinstance(thing, kind) and word in repr(thing)]

    return look
