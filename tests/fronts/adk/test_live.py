"""`/run_live`, in text: turn after turn, a message that interrupts, frames that cannot be used."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from halter import Agent
from halter.models.scripted import Scripted
from halter.server.fronts.adk import live as live_route
from halter.server.keys import KeyFile
from halter.testing.wire_probe import WireProbe

from .conftest import Adk

MakeAdk = Callable[..., Adk]


class Live:
    """A client."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket

    def say(self, text: str, **fields: Any) -> None:
        self.send({"content": {"role": "user", "parts": [{"text": text}]}, **fields})

    def send(self, frame: Any) -> None:
        self.socket.send(frame if isinstance(frame, str | bytes) else json.dumps(frame))

    def event(self) -> Any:
        return json.loads(self.socket.recv(5))

    def turn(self) -> list[Any]:
        """Up to the end of a turn."""
        found = [self.event()]
        while not found[-1].get("turnComplete"):
            found.append(self.event())
        return found


@contextmanager
def live(asked: Adk) -> Iterator[Live]:
    with connect(asked.live_url) as socket:
        yield Live(socket)


def poet() -> Agent:
    return Agent(Scripted("Hello there.", "And again."), name="agent")


def text_of(events: list[Any]) -> list[str]:
    return [event["content"]["parts"][0]["text"] for event in events if "content" in event]


def test_turn_follows_turn_on_one_session(adk: MakeAdk) -> None:
    asked = adk(poet())
    with live(asked) as client:
        client.say("Hi.", state_delta={"a": 1})
        first = client.turn()
        client.say("More ", partial=True)
        client.say("of it.")
        second = client.turn()
    assert text_of(first) == ["Hello ", "there.", "Hello there."]
    assert text_of(second)[-1] == "And again."
    assert first[-1]["invocationId"] != second[-1]["invocationId"]
    events = asked.session()["events"]
    assert [part["text"] for part in events[2]["content"]["parts"]] == ["More ", "of it."]
    assert asked.session()["state"] == {"a": 1}


def test_a_message_in_the_middle_of_an_answer_interrupts_it(
    adk: MakeAdk, agent_on: Callable[..., Agent], wire: WireProbe
) -> None:
    asked = adk(agent_on("stall"))
    with live(asked) as client:
        client.say("Go.")
        assert client.event()["partial"]
        client.say("Stop that.")
        first = client.turn()
        assert first[-1]["interrupted"]
        assert first[-1]["customMetadata"]["halter"]["reason"] == "superseded"
        assert client.event()["partial"]
    wire.assert_closed(1.0)
    assert len(wire.requests()) == 2


def test_a_client_that_says_that_it_closes_stops_its_run(
    adk: MakeAdk, agent_on: Callable[..., Agent], wire: WireProbe
) -> None:
    asked = adk(agent_on("stall"))
    with live(asked) as client:
        client.say("Go.")
        wire.wait("token")
        client.send({"close": True})
        wire.assert_closed(1.0)
        assert json.loads(list(client.socket)[-1])["partial"]
    assert client.socket.close_code == 1000


FRAMES: list[tuple[Any, str]] = [
    ("{", "invalid"),
    ("[]", "invalid"),
    (b"\xff\xfe", "invalid"),
    ({"content": "Hi."}, "invalid"),
    ({"content": {"parts": []}}, "invalid"),
    ({"blob": {"mime_type": "audio/pcm", "data": ""}}, "unsupported"),
    ({"activity_start": {}}, "unsupported"),
    ({"audioStreamEnd": True}, "unsupported"),
    ({"content": {"parts": [{"functionResponse": {"id": "q", "name": "f"}}]}}, "no_such_question"),
]


def test_frames_that_cannot_be_used_are_answered_and_the_next_one_works(adk: MakeAdk) -> None:
    asked = adk(poet())
    with live(asked) as client:
        for frame, code in FRAMES:
            client.send(frame)
            event = client.event()
            assert event["errorCode"] == code, (frame, event)
            assert event["errorMessage"]
        assert asked.runs() == []
        client.say("Hi.")
        assert text_of(client.turn())[-1] == "Hello there."


def test_a_message_in_pieces_may_be_as_large_as_a_body_and_is_dropped_beyond(
    adk: MakeAdk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_route, "LARGEST_BODY", 1_000)
    with live(adk(poet())) as client:
        for _ in range(3):
            client.say("x" * 300, partial=True)
        assert client.event()["errorCode"] == "too_large"
        client.say("Hi.")
        assert text_of(client.turn())[-1] == "Hello there."


def test_sound_is_refused_with_501_before_the_socket_opens(adk: MakeAdk) -> None:
    asked = adk(poet())
    for modalities in ("AUDIO", "VIDEO", "TEXT&modalities=AUDIO"):
        with pytest.raises(InvalidStatus) as refused, connect(asked.live_url.replace("=TEXT", f"={modalities}")):
            pass
        assert refused.value.response.status_code == 501
        assert b"modalities=TEXT" in (refused.value.response.body or b"")


def test_an_unknown_session_or_app_is_refused_and_not_made(adk: MakeAdk) -> None:
    asked = adk(poet())
    for url in (asked.live_url.replace("=s&", "=t&"), asked.live_url.replace("=agent&", "=nobody&")):
        with connect(url) as socket, pytest.raises(ConnectionClosed):
            socket.recv(5)
        assert socket.close_code == 1002
    assert len(asked.client.get("/v1/sessions").json()["sessions"]) == 1


def test_a_socket_needs_a_key_that_may_run(serve: Any, tmp_path: Any) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    reader = {"Authorization": f"Bearer {keys.add('reader', tenant='t', scopes=('read',))}"}
    url = serve(poet(), auth=keys).url.replace("http", "ws") + "/run_live?app_name=agent&user_id=u&session_id=s"
    for headers, status in (({}, 401), (reader, 403)):
        with pytest.raises(InvalidStatus) as refused, connect(url, additional_headers=headers):
            pass
        assert refused.value.response.status_code == status
