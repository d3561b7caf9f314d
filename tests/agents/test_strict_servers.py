"""K96: after a stop, a failure or a malformed call, wherever it comes, the next request passes a strict server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from halter import Agent, tool
from halter.core.history import for_model
from halter.messages import Message, Opaque, Part, Text, ToolCall, ToolResult
from halter.models import OpenAIResponses
from halter.models.calls import arguments_text, told_apart
from halter.testing.wire_probe import WireProbe

from ..stopping.adapters import ADAPTERS, Adapter
from .conversations import bodies_of, check_bodies, check_by_sdk
from .strict import CHECKS

pytestmark = pytest.mark.scenario("K96")

BROKEN = [
    *('{"city": "Ky', "[1]", "null", '"text"', "{'city': 1}", '{"a": NaN}', '{"a": 1} and', '{"a": 1e999}'),
    *('{"a": "\ud800"}', '{"a":' * 9999),
]
WHOLE = '{"city": "Kyoto", "n": [1, 2.5, null]}'
LONG = "call_" + "x" * 90


def called(*calls: tuple[str, str], **fields: Any) -> Message:
    return Message("assistant", tuple(ToolCall(id, "look", arguments) for id, arguments in calls), **fields)


def answered(*ids: str) -> Message:
    return Message("tool", tuple(ToolResult(id, f"result {number}") for number, id in enumerate(ids)))


@pytest.mark.parametrize("arguments", ["", " ", WHOLE, *BROKEN], ids=range(3 + len(BROKEN)))
def test_arguments_are_json_in_every_format(arguments: str) -> None:
    """Whole ones go as the model wrote them; broken ones so that it sees what it wrote."""
    said = (Message.user("q"), called(("c1", arguments)), answered("c1"))
    bodies = bodies_of(said)
    check_bodies(bodies, 1)
    sent = next(m["tool_calls"][0] for m in bodies["chat"]["messages"] if "tool_calls" in m)["function"]["arguments"]
    if arguments == WHOLE:
        assert sent == WHOLE
    elif arguments in ('{"city": "Ky', "[1]", '{"a": 1} and'):
        assert json.loads(sent) == {"INVALID_JSON": arguments}
    check_by_sdk(bodies)


@pytest.mark.parametrize("id", ["", LONG, "a b", "ü" * 40, "x" * 65, "x" * 64, "fc:1/2"])
def test_ids_are_short_in_every_format_and_a_result_has_its_calls(id: str) -> None:
    check_bodies(bodies_of((Message.user("q"), called((id, "{}")), answered(id))), 1)


def test_two_calls_of_one_id_have_a_result_each() -> None:
    """In one answer and in the next; the results are not mixed up."""
    said = (
        Message.user("q"),
        Message("assistant", (ToolCall("0", "look", "{}"), ToolCall("0", "hear", "{}"))),
        answered("0", "0"),
        called(("0", "{}")),
        answered("0"),
    )
    bodies = bodies_of(said)
    check_bodies(bodies, 3)
    parts = [part for content in bodies["gemini"]["contents"] for part in content["parts"]]
    named = {part["functionCall"]["id"]: part["functionCall"]["name"] for part in parts if "functionCall" in part}
    results = [part["functionResponse"] for part in parts if "functionResponse" in part]
    assert [result["name"] for result in results] == ["look", "hear", "look"] == [named[r["id"]] for r in results]
    assert [result["response"]["output"] for result in results] == ["result 0", "result 1", "result 0"]


def test_what_was_sent_before_keeps_its_ids() -> None:
    """A provider's prompt cache stays valid, also for ids that count anew in each answer."""
    said = [Message.user("q")]
    before: list[Any] = []
    for _ in range(4):
        said += [called(("0", "{}"), ("0_2", "{}")), answered("0", "0_2")]
        messages = told_apart(said).messages
        assert list(messages[: len(before)]) == before
        before = list(messages)


def test_thousands_of_calls_of_one_id_are_told_apart_in_no_time() -> None:
    said = [each for _ in range(5_000) for each in (called(("0", "{}")), answered("0"))]
    ids = [call.id for message in told_apart(said).messages for call in message.tool_calls]
    assert len(set(ids)) == 5_000


def test_a_result_without_a_call_is_left_out() -> None:
    said = (Message.user("q"), answered("1"), called(("1", "{}")), answered("1", "1", "2"), answered("1"))
    check_bodies(bodies_of(said), 1)


def test_an_item_of_responses_is_found_again_though_its_calls_id_is_another_here() -> None:
    """What else the server has given with it goes back: two items with one id, and one whose id is too long."""
    mark = OpenAIResponses("m", api_key="k", base_url="http://r/v1")._wire.provider

    def item(name: str, id: str) -> tuple[Part, Part]:
        return Opaque(mark, {"type": "function_call", "id": name, "call_id": id}), ToolCall(id, "look", "{}")

    answer = Message("assistant", (*item("fc_1", "0"), *item("fc_2", "0"), *item("fc_3", LONG)))
    messages = (Message.user("q"), answer, answered("0", "0", LONG), Message.user("so?"))
    from halter.models.responses.input import input_items

    sent = input_items(messages, mark, is_stored=False)
    assert [one["id"] for one in sent if one.get("type") == "function_call"] == ["fc_1", "fc_2", "fc_3"]
    assert len(CHECKS["responses"]({"input": sent})) == 3


def test_extra_content_of_chat_goes_back_with_a_call_whose_id_is_another_here() -> None:
    from halter.models.chat.messages import chat_messages

    extra = Opaque("p", {"extra_content": {LONG: {"google": {"thought_signature": "s"}}}})
    answer = Message("assistant", (ToolCall(LONG, "look", "{}"), extra))
    sent = chat_messages((Message.user("q"), answer, answered(LONG)), "p")
    assert sent[1]["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "s"}}


def test_what_a_user_says_in_a_row_is_one_message_for_chat() -> None:
    """As after a stop before the first word. Pictures and names stay what they are."""
    from halter.messages import Image

    stopped = Message("assistant", (), interrupted=True)
    said = (Message.user("first"), stopped, Message.user("second"), stopped)
    (message,) = [m for m in bodies_of(said)["chat"]["messages"] if m["role"] == "user"]
    assert message["content"].startswith("first\n\n[The previous answer was stopped")
    assert message["content"].count("second") == 1
    picture = Message.user(Image(url="https://x.example/a.png"))
    (mixed,) = chat_users(Message.user("look"), picture)
    assert [part["type"] for part in mixed["content"]] == ["text", "image_url"]
    named = chat_users(Message.user("a", name="ann"), Message.user("b", name="bob"), Message.user("c", name="bob"))
    assert [(each["name"], each["content"]) for each in named] == [("ann", "a"), ("bob", "b\n\nc")]


def chat_users(*messages: Message) -> list[dict[str, Any]]:
    from halter.models.chat.messages import chat_messages

    return chat_messages(messages, "p")


def test_arguments_text_is_what_the_model_wrote_if_it_is_an_object() -> None:
    assert arguments_text(ToolCall("1", "f", ' {"a" : 1} ')) == ' {"a" : 1} '
    assert arguments_text(ToolCall("1", "f", "")) == "{}"


# --- through the provider -----------------------------------------------------------------------------------


@tool
async def look(city: str = "") -> str:
    """Looks out of the window."""
    return "Sunny."


MODES = [
    "no-headers",
    "stall(0)",
    "stall(2)",
    "cut(0)",
    "cut(3)",
    "eof(2)",
    "reset(1)",
    "error-frame(2)",
    "status(503)",
    "status(400)",
    "cut-call(look)",
    "tool-call(look, {})",
    'tool-call(look, {"city": "Kyo)',
    'tool-call(look, {"town": 1})',
    'tool-call(lo ok!, {"city": 1})',
    "tool-call(look, [1])",
]


@pytest.mark.parametrize("format", ["openai-chat", "openai-responses", "anthropic", "gemini"])
def test_the_next_request_is_valid_wherever_a_run_was_stopped_or_has_failed(format: str, wire: WireProbe) -> None:
    """Each way to fail is met after each event of it: stopped there, or left to its end. For every format again."""
    (adapter,) = [adapter for adapter in ADAPTERS if adapter.name == format]
    for history in asyncio.run(_everywhere(adapter, wire)):
        check_next(history)


def check_next(history: Sequence[Message]) -> None:
    for name, body in bodies_of(history).items():
        CHECKS[name](body)


async def _everywhere(adapter: Adapter, wire: WireProbe) -> list[tuple[Message, ...]]:
    modes = MODES if adapter.name != "gemini" else [mode for mode in MODES if "Kyo" not in mode]
    found = await asyncio.gather(*(_histories(adapter, wire.url(mode)) for mode in modes))
    return [history for histories in found for history in histories]


async def _histories(adapter: Adapter, url: str) -> list[tuple[Message, ...]]:
    """What a run leaves, and the one after it, that are stopped at their n-th event, for each n."""
    agent = Agent(adapter.model(url, max_retries=0), tools=[look], max_turns=2)
    found: list[tuple[Message, ...]] = []
    for at in range(1, 24, 2):
        first, was_stopped = await _stopped(agent, at, ())
        second, _ = await _stopped(agent, at + 1, first)
        found += [first, second]
        if not was_stopped:
            break
    return found


async def _stopped(agent: Agent[Any], at: int, history: tuple[Message, ...]) -> tuple[tuple[Message, ...], bool]:
    async with agent.run("Look.", history=history, grace=1, timeout=0.2) as run:
        seen = 0
        async for _ in run.events():
            seen += 1
            if seen == at:
                run.cancel("enough")
        result = await run.finished()
    return result.messages, seen >= at


def test_the_markers_and_the_repair_are_idempotent() -> None:
    said = (Message.user("q"), called(("0", '{"a'), ("0", ""), interrupted=True), Message("assistant", (Text("x"),)))
    assert for_model(for_model(said)) == for_model(said)
