"""The compliance tests of Open Responses, after its public description: six requests, each answered by a response with
every required field, and streamed as items with a life of their own.
"""

from __future__ import annotations

from typing import Any

import pytest

from halter import Agent
from halter.models.scripted import Scripted, calls
from halter.testing.wire_probe import WireProbe

from ...server.conftest import Serve, Served
from .conftest import WEATHER, check_event, check_response, raw_events

pytestmark = pytest.mark.scenario("G74")

# A field's name and what it may be: the response resource of the specification.
NUMBER, TEXT, NULL = (int, float), str, type(None)
REQUIRED: dict[str, Any] = {
    "id": TEXT,
    "object": TEXT,
    "created_at": int,
    "completed_at": (int, NULL),
    "status": TEXT,
    "incomplete_details": (dict, NULL),
    "model": TEXT,
    "previous_response_id": (TEXT, NULL),
    "instructions": (TEXT, NULL),
    "output": list,
    "error": (dict, NULL),
    "tools": list,
    "tool_choice": (TEXT, dict),
    "truncation": TEXT,
    "parallel_tool_calls": bool,
    "text": dict,
    "top_p": NUMBER,
    "presence_penalty": NUMBER,
    "frequency_penalty": NUMBER,
    "top_logprobs": int,
    "temperature": NUMBER,
    "reasoning": (dict, NULL),
    "usage": (dict, NULL),
    "max_output_tokens": (int, NULL),
    "max_tool_calls": (int, NULL),
    "store": bool,
    "background": bool,
    "service_tier": TEXT,
    "metadata": dict,
    "safety_identifier": (TEXT, NULL),
    "prompt_cache_key": (TEXT, NULL),
}
USAGE = {
    "input_tokens": int,
    "output_tokens": int,
    "total_tokens": int,
    "input_tokens_details": dict,
    "output_tokens_details": dict,
}
ITEMS: dict[str, dict[str, Any]] = {
    "message": {"id": TEXT, "status": TEXT, "role": TEXT, "content": list},
    "function_call": {"id": TEXT, "call_id": TEXT, "name": TEXT, "arguments": TEXT, "status": TEXT},
    "reasoning": {"id": TEXT, "summary": list},
}
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
IMAGE = f"data:image/png;base64,{DOT}"
REQUESTS: dict[str, dict[str, Any]] = {
    "basic text response": {"input": [{"type": "message", "role": "user", "content": "Say hello in exactly 3 words."}]},
    "system prompt": {
        "input": [
            {"type": "message", "role": "system", "content": "You are a pirate."},
            {"type": "message", "role": "user", "content": "Say hello."},
        ]
    },
    "image input": {
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "What do you see?"},
                    {"type": "input_image", "image_url": IMAGE},
                ],
            }
        ]
    },
    "multi-turn conversation": {
        "input": [
            {"type": "message", "role": "user", "content": "My name is Alice."},
            {"type": "message", "role": "assistant", "content": "Hello Alice!"},
            {"type": "message", "role": "user", "content": "What is my name?"},
        ]
    },
    "tool calling": {
        "model": "caller",
        "tools": [WEATHER],
        "input": [{"type": "message", "role": "user", "content": "What's the weather like in San Francisco?"}],
    },
}


@pytest.fixture
def served(serve: Serve, agent_on: Any) -> Served:
    caller = Agent(Scripted(calls("get_weather", location="San Francisco, CA")), name="caller")
    return serve([agent_on("steady(3,1)"), caller])


def check_resource(response: dict[str, Any]) -> None:
    """Has the response every field that the specification requires?"""
    check_response(response)
    for name, kinds in REQUIRED.items():
        assert isinstance(response.get(name, ...), kinds), (name, response.get(name, "missing"))
    if response["usage"] is not None:
        assert all(isinstance(response["usage"][name], kind) for name, kind in USAGE.items())
    assert all("description" in tool and "parameters" in tool and "strict" in tool for tool in response["tools"])
    for item in response["output"]:
        check_item(item)


def check_item(item: dict[str, Any]) -> None:
    assert all(isinstance(item[name], kind) for name, kind in ITEMS[item["type"]].items()), item
    for part in item.get("content", ()):
        assert (part["type"], part["annotations"]) == ("output_text", [])


def test_the_requests_of_the_compliance_tests_are_answered(served: Served) -> None:
    for name, fields in REQUESTS.items():
        response = served.client.post("/v1/responses", json={"model": "agent", **fields, "stream": False}).json()
        check_resource(response)
        assert response["status"] == "completed"
        assert response["output"]
        assert response["output"][0]["type"] == ("function_call" if name == "tool calling" else "message")


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_of_the_compliance_tests_is_streamed(served: Served, name: str) -> None:
    body = {"model": "agent", **REQUESTS[name], "stream": True}
    with served.client.stream("POST", "/v1/responses", json=body) as response:
        lines = [line for line in response.iter_lines() if line]
        assert response.headers["content-type"].startswith("text/event-stream")
    assert lines[-1] == "data: [DONE]"
    named = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    with raw_events(served, "POST", "/v1/responses", json=body) as found:
        events = list(found)
    assert [each["type"] for each in events] == named
    for each in events:
        check_event(each)
        if "response" in each:
            check_resource(each["response"])
    assert [each["sequence_number"] for each in events] == list(range(len(events)))
    assert events[-1]["type"] == "response.completed"
    check_lives(events)


def check_lives(events: list[dict[str, Any]]) -> None:
    """Each item begins in progress, grows by deltas, and ends as the response has it."""
    final = events[-1]["response"]["output"]
    for index, whole in enumerate(final):
        mine = [each for each in events if each.get("output_index") == index]
        added, done = mine[0], mine[-1]
        assert (added["type"], done["type"]) == ("response.output_item.added", "response.output_item.done")
        assert added["item"]["status"] == "in_progress"
        assert done["item"] == whole
        assert whole["status"] == "completed"
        grown = "".join(each["delta"] for each in mine if each["type"].endswith(".delta"))
        is_call = whole["type"] == "function_call"
        assert grown == (whole["arguments"] if is_call else whole["content"][0]["text"])
        steps = [each["type"].removeprefix("response.") for each in mine if not each["type"].endswith(".delta")]
        parts = ["function_call_arguments.done"]
        if not is_call:
            parts = ["content_part.added", "output_text.done", "content_part.done"]
        assert steps == ["output_item.added", *parts, "output_item.done"]


def test_the_image_reaches_the_provider(served: Served, wire: WireProbe) -> None:
    served.client.post("/v1/responses", json={"model": "agent", **REQUESTS["image input"]})
    assert IMAGE in wire.requests()[0].body
