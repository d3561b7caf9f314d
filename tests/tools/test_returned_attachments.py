"""Tools that return images and files: they reach the provider as such, or the call fails; never base64 as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from halter import Agent, events, tool
from halter.errors import ConfigurationError
from halter.features import Features
from halter.messages import File, Image, Message, ToolCall, ToolResult
from halter.models.anthropic.turns import turns_of
from halter.models.chat.messages import chat_messages
from halter.models.gemini.request import gemini_contents
from halter.models.names import as_model
from halter.models.responses.input import input_items
from halter.models.scripted import Scripted, calls
from halter.request import ModelRequest

from . import isolated_functions

pytestmark = pytest.mark.real_loop

PNG = Image(data=b"\x89PNG\r\n\x1a\n-a picture-")
IN_BASE64 = "iVBORw0KGgotYSBwaWN0dXJlLQ=="
PDF = File(data=b"%PDF-1.7", name="report.pdf")


class Seeing(Scripted):
    """Keeps what it was asked."""

    def __init__(self, *answers: Any, features: Features | None = None) -> None:
        super().__init__(*answers)
        self.asked: list[ModelRequest] = []
        if features is not None:
            self.features = features

    async def respond(self, request: ModelRequest, ctx: Any) -> Message:
        self.asked.append(request)
        return await super().respond(request, ctx)


async def result_of(value: Any, features: Features | None = None) -> ToolResult:
    @tool
    def look() -> Any:
        return value

    model = Seeing(calls("look"), "I see.", features=features)
    await Agent(model, tools=[look]).run("look")
    [result] = model.asked[1].messages[-1].parts
    assert isinstance(result, ToolResult)
    assert IN_BASE64 not in result.content
    return result


async def test_an_image_that_a_tool_returns_is_part_of_its_result() -> None:
    result = await result_of(PNG)
    assert result == ToolResult(result.call_id, "[attached: image/png, 19 bytes]", attachments=(PNG,))


async def test_texts_values_images_and_files_may_be_returned_together() -> None:
    result = await result_of(["Before:", PNG, {"seen": 2}, PDF])
    assert result.content == (
        'Before:\n[attached: image/png, 19 bytes]\n{"seen":2}\n[attached: report.pdf, application/pdf, 8 bytes]'
    )
    assert result.attachments == (PNG, PDF)


@dataclass
class Page:
    picture: Image


@pytest.mark.parametrize("value", [{"a": [PNG]}, Page(PNG), [[PNG]], Message.user("this", PNG), {"b": PDF}])
async def test_an_image_inside_of_another_value_fails_the_call_and_says_how_to_return_it(value: Any) -> None:
    result = await result_of(value)
    assert result.is_error
    assert "return it itself, or in a list" in result.content
    assert not result.attachments


async def test_more_than_a_request_can_hold_fails_the_call() -> None:
    result = await result_of(Image(data=b"\x89PNG" + bytes(21_000_000)))
    assert result.is_error
    assert "21,000,004 bytes" in result.content


async def test_a_model_that_takes_no_images_is_told_so_instead() -> None:
    result = await result_of(PNG, Features(settings=frozenset(), tools=True))
    assert result.is_error
    assert "scripted takes no images" in result.content
    assert not result.attachments


async def test_a_model_that_takes_no_images_gets_the_texts_beside_them() -> None:
    result = await result_of(["Text.", PNG], Features(settings=frozenset(), tools=True))
    assert result.content.startswith("Text.\n[not shown: image/png, 19 bytes: scripted takes no images")
    assert not result.is_error
    assert not result.attachments


async def test_a_tool_in_a_process_of_its_own_returns_images_too() -> None:
    model = Seeing(calls("picture"), "I see.")
    given = tool(isolated_functions.picture, isolation="process")
    await Agent(model, tools=[given]).run("look")
    [result] = model.asked[1].messages[-1].parts
    assert isinstance(result, ToolResult)
    assert result.attachments == (Image(data=b"\x89PNG..", media_type="image/png"),)
    assert result.content == "Here it is:\n[attached: image/png, 6 bytes]"


async def test_the_event_of_the_result_has_its_text_alone() -> None:
    @tool
    def look() -> Image:
        return PNG

    run = Agent(Scripted(calls("look"), "I see."), tools=[look]).run("look")
    [finished] = [event async for event in run if isinstance(event, events.ToolFinished)]
    assert finished.result == "[attached: image/png, 19 bytes]"


def test_results_with_attachments_are_stored_and_read_back() -> None:
    message = Message("tool", (ToolResult("a", "text", attachments=(PNG, PDF)), ToolResult("b", "text")))
    written = msgspec.json.encode(message)
    assert msgspec.json.decode(written, type=Message) == message
    old = b'{"role":"tool","parts":[{"type":"tool_result","call_id":"b","content":"text"}]}'
    assert msgspec.json.decode(old, type=Message).parts == (ToolResult("b", "text"),)


# --- as each provider wants them ----------------------------------------------------------------------------

TALK = (
    Message.user("Look."),
    Message("assistant", (ToolCall("c1", "look", "{}"), ToolCall("c2", "read", "{}"))),
    Message("tool", (ToolResult("c1", "seen", attachments=(PNG,)), ToolResult("c2", "read"))),
    Message.user("And?"),
)


def test_chat_completions_get_them_in_a_users_message_behind_all_results() -> None:
    """The format takes nothing but text in a tool's message."""
    *_, first, second, after = chat_messages(TALK, "openai")
    assert (first["content"], second["content"]) == ("seen", "read")
    assert after["role"] == "user"
    assert after["content"] == [
        {"type": "text", "text": "Attached to the result of look (call c1):"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IN_BASE64}"}},
        {"type": "text", "text": "And?"},
    ]


def test_responses_get_them_in_the_output() -> None:
    [_, _, _, first, second, _] = input_items(TALK, "openai", is_stored=False)
    assert first == {
        "type": "function_call_output",
        "call_id": "c1",
        "output": [
            {"type": "input_text", "text": "seen"},
            {"type": "input_image", "image_url": f"data:image/png;base64,{IN_BASE64}", "detail": "auto"},
        ],
    }
    assert second["output"] == "read"


def test_anthropic_gets_them_in_the_result() -> None:
    first, second, _ = turns_of(TALK, "anthropic")[-1]["content"]
    source = {"type": "base64", "media_type": "image/png", "data": IN_BASE64}
    assert first["content"] == [{"type": "text", "text": "seen"}, {"type": "image", "source": source}]
    assert second["content"] == "read"


def test_anthropic_gets_no_images_of_a_failure_which_may_have_text_alone() -> None:
    failed = ToolResult("c1", "broke", is_error=True, attachments=(PNG,))
    talk = (*TALK[:1], Message("assistant", (ToolCall("c1", "look", "{}"),)), Message("tool", (failed,)))
    [block] = turns_of(talk, "anthropic")[-1]["content"]
    assert block["content"] == "broke"


def test_gemini_3_gets_them_in_the_response_and_earlier_ones_behind_it() -> None:
    inline = {"inlineData": {"mimeType": "image/png", "data": IN_BASE64}}
    [_, _, results, said] = gemini_contents(TALK, model="gemini-3-pro")
    assert results["parts"][0]["functionResponse"]["parts"] == [inline]
    assert "parts" not in results["parts"][1]["functionResponse"]
    assert said["parts"] == [{"text": "And?"}]
    [_, _, results, said] = gemini_contents(TALK, model="gemini-2.5-flash")
    assert "parts" not in results["parts"][0]["functionResponse"]
    assert said["parts"] == [{"text": "Attached to the result of look (call c1):"}, inline, {"text": "And?"}]


# --- kinds that a provider refuses --------------------------------------------------------------------------

HEIC = Image(data=b"....ftypheic", media_type="image/heic")
AUDIO = File(data=b"RIFF....WAVE", media_type="audio/wav")


def keyed(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    for provider in ("OPENAI", "ANTHROPIC", "GEMINI", "GROQ"):
        monkeypatch.setenv(f"{provider}_API_KEY", "a-key")
    return as_model(name, "the model")


@pytest.mark.parametrize("part", [HEIC, AUDIO, Image(url="data:image/heic;base64,AAAA")])
@pytest.mark.parametrize("name", ["openai:gpt-5.2", "openai-chat:gpt-5.2", "anthropic:claude-opus-4-5", "groq:llama"])
def test_kinds_that_a_provider_refuses_are_an_error_before_anything_is_sent(
    name: str, part: Image | File, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = keyed(name, monkeypatch)
    for message in (Message.user("Hear", part), Message("tool", (ToolResult("a", "", attachments=(part,)),))):
        with pytest.raises(ConfigurationError, match=r"takes (no files|.*not (audio/wav|image/heic))"):
            model.features.check_parts(model.name, [message])


def test_gemini_takes_both(monkeypatch: pytest.MonkeyPatch) -> None:
    model = keyed("gemini:gemini-3-pro", monkeypatch)
    model.features.check_parts(model.name, [Message.user("Hear", HEIC, AUDIO)])
