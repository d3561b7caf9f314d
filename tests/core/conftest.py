"""What the core's tests share: what must hold for every finished log."""

from __future__ import annotations

from collections.abc import Callable

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
