"""What clients send: both spellings, what is refused, and what is left out and says so."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Callable
from typing import Any

from halter import Agent, RunContext, runnable
from halter.messages import File, Image, Message, Text
from halter.models.scripted import Scripted
from halter.testing.wire_probe import WireProbe

from .conftest import Adk

MakeAdk = Callable[..., Adk]
PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", zlib.crc32(b""))
SESSION = "/apps/agent/users/anna/sessions/s"


class Listening(Scripted):
    """Keeps what it is asked."""

    def __init__(self) -> None:
        super().__init__("Yes.")
        self.heard: list[Message] = []

    async def respond(self, request: Any, ctx: Any) -> Message:
        self.heard.append(request.messages[-1])
        return await super().respond(request, ctx)


def poet() -> Agent:
    return Agent(Scripted("Hello there."), name="agent")


def test_the_whole_answer_comes_as_a_list_and_as_a_stream(adk: MakeAdk) -> None:
    asked = adk(poet())
    answer = asked.run(customMetadata={"k": 1})
    assert answer.headers["content-type"] == "application/json"
    [event] = answer.json()
    assert event["content"] == {"parts": [{"text": "Hello there."}], "role": "model"}
    assert (event["customMetadata"], event["author"]) == ({"k": 1}, "agent")
    assert answer.headers["halter-run-id"] == event["invocationId"]
    pieces = asked.events(streaming=True)
    assert [piece["content"]["parts"][0]["text"] for piece in pieces] == ["Hello ", "there.", "Hello there."]
    assert [piece.get("partial") for piece in pieces] == [True, True, None]
    assert len({piece["id"] for piece in pieces}) == 1
    [whole] = asked.events(streaming=False)
    assert whole["content"] == event["content"]


def test_both_spellings_are_understood(adk: MakeAdk) -> None:
    asked = adk(poet())
    body = {"app_name": "agent", "user_id": "anna", "session_id": "s", "new_message": {"parts": [{"text": "Hi."}]}}
    for way in ("/run", "/run_sse"):
        answer = asked.client.post(way, json={**body, "state_delta": {"way": way}, "unknown": 1})
        assert answer.status_code == 200, answer.text
        assert asked.session()["state"] == {"way": way}


def test_an_app_need_not_be_named_where_there_is_one(serve: Any) -> None:
    body = {"userId": "anna", "sessionId": "s", "newMessage": {"parts": [{"text": "Hi."}]}}
    assert Adk(serve(poet())).client.post("/run", json=body).status_code == 200
    several = Adk(serve([poet(), Agent(Scripted("."), name="other")]))
    assert several.client.post("/run", json=body).status_code == 400


def test_images_documents_and_several_texts_reach_the_model(adk: MakeAdk) -> None:
    model = Listening()
    asked = adk(Agent(model, name="agent"))
    data, url_safe = base64.b64encode(PNG).decode(), base64.urlsafe_b64encode(b"%PDF\xff\xfe").decode().rstrip("=")
    parts = [
        {"text": "Look:"},
        {"inlineData": {"mimeType": "image/png", "data": data, "displayName": "a.png"}},
        {"inline_data": {"mime_type": "application/pdf", "data": url_safe}},
        {"fileData": {"mimeType": "image/png", "fileUri": "https://example.com/b.png"}},
        {"text": "What is it?", "thoughtSignature": "abc"},
    ]
    answer = asked.client.post("/run", json=asked.body(newMessage={"role": "user", "parts": parts}))
    assert answer.status_code == 200, answer.text
    assert model.heard[-1].parts == (
        Text("Look:"),
        Image(data=PNG, media_type="image/png"),
        File(data=b"%PDF\xff\xfe"),
        Image(url="https://example.com/b.png", media_type="image/png"),
        Text("What is it?"),
    )
    shown = asked.session()["events"][0]["content"]["parts"]
    assert shown[1] == {"inlineData": {"data": data, "mimeType": "image/png"}}
    assert shown[3] == {"fileData": {"fileUri": "https://example.com/b.png", "mimeType": "image/png"}}


def test_what_is_no_agent_gets_the_text_and_shows_its_result(adk: MakeAdk) -> None:
    @runnable
    async def agent(ctx: RunContext, text: str) -> dict[str, Any]:
        return {"heard": text}

    [event] = adk(agent).run("Hi.").json()
    assert (event["output"], event["content"]["parts"]) == ({"heard": "Hi."}, [{"text": '{"heard":"Hi."}'}])


def test_a_failed_run_is_500_with_its_error_and_a_stream_ends_with_it(adk: MakeAdk) -> None:
    @runnable
    async def agent(ctx: RunContext, text: str) -> str:
        raise ValueError("it is Monday")

    asked = adk(agent)
    answer = asked.run()
    assert (answer.status_code, answer.json()["detail"]) == (500, "ValueError: it is Monday")
    [event] = asked.events()
    assert (event["errorCode"], event["errorMessage"]) == ("ValueError", "it is Monday")


BAD: dict[str, tuple[dict[str, Any], int]] = {
    "no message": ({"newMessage": None}, 400),
    "no parts": ({"newMessage": {"role": "user", "parts": []}}, 400),
    "an empty part": ({"newMessage": {"parts": [{}]}}, 400),
    "the model's role": ({"newMessage": {"role": "model", "parts": [{"text": "Hi."}]}}, 400),
    "no base64": ({"newMessage": {"parts": [{"inlineData": {"mimeType": "image/png", "data": "§"}}]}}, 400),
    "an answer to nothing": ({"newMessage": {"parts": [{"functionResponse": {"id": "q", "name": "f"}}]}}, 400),
    "an answer and text": (
        {"newMessage": {"parts": [{"functionResponse": {"id": "q", "name": "f"}}, {"text": "Hi."}]}},
        400,
    ),
    "sound": ({"newMessage": {"parts": [{"inlineData": {"mimeType": "audio/pcm;rate=16000", "data": ""}}]}}, 501),
    "a function call": ({"newMessage": {"parts": [{"functionCall": {"name": "f"}}]}}, 501),
    "code": ({"newMessage": {"parts": [{"executableCode": {"code": "1"}}]}}, 501),
    "an invocation to resume": ({"invocationId": "e-1"}, 501),
    "an unknown session": ({"sessionId": "t"}, 404),
    "another user's session": ({"userId": "ben"}, 404),
    "an unknown app": ({"appName": "nobody"}, 404),
    "an empty session": ({"sessionId": ""}, 400),
    "a name that is too long": ({"sessionId": "s" * 200}, 400),
    "no session": ({"sessionId": None}, 422),
    "a message that is text": ({"newMessage": "Hi."}, 422),
}


def test_bad_requests_are_refused_in_adks_shape_and_start_nothing(
    adk: MakeAdk, agent_on: Callable[..., Agent], wire: WireProbe
) -> None:
    asked = adk(agent_on())
    for what, (fields, status) in BAD.items():
        for way in ("/run", "/run_sse"):
            answer = asked.client.post(way, json=asked.body(**{"stateDelta": {"a": 1}, **fields}))
            assert answer.status_code == status, (what, answer.text)
            assert answer.headers["content-type"] == "application/json"
            assert answer.json()["detail"]
    assert asked.runs() == []
    assert wire.requests() == []
    assert asked.session()["state"] == {}


def test_a_body_that_is_no_json_is_refused_in_adks_shape(adk: MakeAdk) -> None:
    answer = adk(poet()).client.post("/run", content=b"{", headers={"Content-Type": "application/json"})
    assert (answer.status_code, isinstance(answer.json()["detail"], list)) == (400, True)


LEFT_OUT = [
    ("GET", f"{SESSION}/artifacts"),
    ("GET", f"{SESSION}/artifacts/a/b.png/versions/1"),
    ("POST", f"{SESSION}/artifacts"),
    ("DELETE", f"{SESSION}/artifacts/a.png"),
    ("GET", f"{SESSION}/events/e/graph"),
    ("PATCH", "/apps/agent/users/anna/memory"),
    ("GET", "/apps/agent/eval_sets"),
    ("POST", "/apps/agent/eval-sets/e/run"),
    ("POST", "/apps/agent/trigger/pubsub"),
    ("GET", "/dev/apps/agent/debug/trace/e"),
    ("GET", "/dev/apps/agent/eval_sets"),
    ("GET", "/dev/apps/agent/build_graph"),
    ("GET", "/debug/trace/session/s"),
    ("POST", "/agent-identity/finalize"),
    ("POST", "/api/reasoning_engine"),
]


def test_what_is_left_out_is_501_and_says_so(adk: MakeAdk) -> None:
    asked = adk(poet())
    for method, path in LEFT_OUT:
        answer = asked.client.request(method, path, json={})
        assert (answer.status_code, answer.json()["code"]) == (501, "unsupported"), path
        assert "not" in answer.json()["detail"]


def test_apps_are_listed_with_what_they_are(serve: Any) -> None:
    served = serve([Agent(Scripted("."), name="b", description="Writes."), Agent(Scripted("."), name="a")])
    assert served.client.get("/list-apps?relative_path=./").json() == ["a", "b"]
    about = {"name": "b", "rootAgentName": "b", "description": "Writes.", "language": "python", "isComputerUse": False}
    assert served.client.get("/list-apps?detailed=true").json()["apps"][1] == about
    assert served.client.get("/apps/b/app-info").json() == about
    assert served.client.get("/apps/c/app-info").status_code == 404
    assert served.client.get("/health").json() == {"status": "ok"}
    assert set(served.client.get("/version").json()) == {"version", "language", "language_version"}


def test_requests_as_adks_web_page_makes_them_work(adk: MakeAdk) -> None:
    asked = adk(poet())
    made = asked.client.post(asked.path).json()  # without a body
    body = asked.body(sessionId=made["id"], streaming=False, stateDelta=None)
    response = asked.client.post("/run_sse", json=body, headers={"Accept": "text/event-stream"})
    lines = [line for line in response.text.splitlines() if line]
    assert [json.loads(line.removeprefix("data: "))["author"] for line in lines] == ["agent"]
    assert asked.client.patch(f"{asked.path}/{made['id']}", json={"stateDelta": {"a": 1}}).json()["state"] == {"a": 1}
