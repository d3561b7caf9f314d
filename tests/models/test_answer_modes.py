"""An answer is held to its schema natively, by a tool, or by words: whatever the model takes."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import msgspec
import pytest

from halter import Agent, tool
from halter.codec import Unfit
from halter.events import TextDelta
from halter.models import Anthropic, Gemini, OpenAIChat, Settings
from halter.models.answer_mode import ANSWER_TOOL, fits
from halter.models.compatible import compatible
from halter.models.limits import SchemaLimits
from halter.outputs import AnswerType
from halter.schemas import strict_schema
from halter.testing import Answer, MemorySource

KEY = "k"


class City(msgspec.Struct):
    name: str
    people: int


class Node(msgspec.Struct):
    name: str
    children: list[Node] = []


class Tagged(msgspec.Struct):
    tags: dict[str, int]


class Word(msgspec.Struct):
    text: Annotated[str, msgspec.Meta(pattern=r"^\bUlm\b$")]


Many = msgspec.defstruct("Many", [(f"f{n}", int | None, None) for n in range(17)])
ULM = {"name": "Ulm", "people": 126000}


@tool
def lookup(city: str) -> str:
    """Looks a city up."""
    return f"{city}: 126000"


# --- answers of each format ---------------------------------------------------------------------------------


def sse(*events: dict[str, Any]) -> Answer:
    body = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    return Answer(body=((0.0, body),))


def chat(*calls: tuple[str, str], text: str = "") -> Answer:
    """A streamed answer of chat completions, each call's arguments in two fragments."""
    deltas: list[dict[str, Any]] = [{"content": text}] if text else []
    for index, (name, arguments) in enumerate(calls):
        half = len(arguments) // 2
        first = {"index": index, "id": f"call_{index}", "function": {"name": name, "arguments": arguments[:half]}}
        deltas.append({"tool_calls": [first]})
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": arguments[half:]}}]})
    finish = {"choices": [{"delta": {}, "finish_reason": "tool_calls" if calls else "stop"}]}
    return sse(*({"choices": [{"delta": delta}]} for delta in deltas), finish)


def gemini(*parts: dict[str, Any]) -> Answer:
    return sse({"candidates": [{"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP"}]})


def gemini_call(name: str, args: Any) -> Answer:
    return gemini({"functionCall": {"name": name, "args": args}, "thoughtSignature": "sig"})


def claude(*blocks: dict[str, Any]) -> Answer:
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {}}]
    for index, block in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": {"stop_reason": "tool_use"}})
    return sse(*events)


def claude_call(name: str, made: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": "toolu_1", "name": name, "input": made, "caller": {"type": "direct"}}


async def result_of(model: Any, output: Any, **options: Any) -> Any:
    result = await Agent(model, output=output, **options).run("Where?").finished()
    assert result.is_completed, result.why()
    return result


# --- by a tool ----------------------------------------------------------------------------------------------


@pytest.mark.virtual_time
async def test_groq_answers_by_a_tool_where_a_stream_or_tools_exclude_its_schemas() -> None:
    """The arguments are the answer: shown as text, as they come, and kept as text for the next request."""
    source = MemorySource(chat(("lookup", '{"city":"Ulm"}')), chat((ANSWER_TOOL, json.dumps(ULM))))
    model = compatible("groq", "openai/gpt-oss-120b", api_key=KEY, source=source)
    run = Agent(model, output=City, tools=[lookup]).run("Where?")
    shown = [event.text async for event in run if isinstance(event, TextDelta)]
    assert len(shown) > 1
    assert json.loads("".join(shown)) == ULM
    result = await run
    assert result.output == City("Ulm", 126000)
    for request in source.requests:
        assert "response_format" not in request.json
        assert [each["function"]["name"] for each in request.json["tools"]] == ["lookup", ANSWER_TOOL]
        assert request.json["tool_choice"] == "required"


@pytest.mark.virtual_time
async def test_groq_holds_an_answer_in_one_piece_to_the_schema_itself() -> None:
    """Where neither a stream nor tools are in the way, and the model is one of those that can."""
    body = {"choices": [{"message": {"content": json.dumps(ULM)}, "finish_reason": "stop"}]}
    for name, is_native in (("openai/gpt-oss-20b", True), ("llama-3.3-70b-versatile", False)):
        answer = Answer(headers={"content-type": "application/json"}, body=((0.0, json.dumps(body).encode()),))
        source = MemorySource(answer)
        model = compatible("groq", name, api_key=KEY, stream=False, source=source)
        assert (await result_of(model, City)).output == City("Ulm", 126000)
        assert ("response_format" in source.requests[0].json) is is_native


@pytest.mark.virtual_time
async def test_gemini_2_answers_by_a_tool_beside_tools_and_gemini_3_by_its_schema() -> None:
    source = MemorySource(gemini_call("lookup", {"city": "Ulm"}), gemini_call(ANSWER_TOOL, ULM))
    result = await result_of(Gemini("gemini-2.5-flash", api_key=KEY, source=source), City, tools=[lookup])
    assert result.output == City("Ulm", 126000)
    for request in source.requests:
        assert "generationConfig" not in request.json
        names = [each["name"] for each in request.json["tools"][0]["functionDeclarations"]]
        assert names == ["lookup", ANSWER_TOOL]
        assert request.json["toolConfig"] == {"functionCallingConfig": {"mode": "ANY"}}
    source = MemorySource(gemini({"text": json.dumps(ULM)}))
    await result_of(Gemini("gemini-3-flash", api_key=KEY, source=source), City, tools=[lookup])
    assert "responseJsonSchema" in source.requests[0].json["generationConfig"]
    source = MemorySource(gemini({"text": json.dumps(ULM)}))
    await result_of(Gemini("gemini-2.5-flash", api_key=KEY, source=source), City)
    assert "responseJsonSchema" in source.requests[0].json["generationConfig"]


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("output", "made"),
    [
        (Node, {"name": "a", "children": [{"name": "b", "children": []}]}),
        (Tagged, {"tags": {"x": 1}}),
        (dict[str, int], {"x": 1}),
        (Many, {f"f{n}": n for n in range(17)}),
    ],
    ids=["recursive", "dict field", "dict", "17 unions"],
)
async def test_claude_answers_by_a_tool_where_its_schemas_do_not_reach(output: Any, made: Any) -> None:
    """What the API has added to the call stays out of the conversation."""
    words = {"type": "text", "text": "Here it is."}
    source = MemorySource(claude(words, claude_call(ANSWER_TOOL, made)))
    result = await result_of(Anthropic("claude-haiku-4-5", api_key=KEY, source=source), output)
    assert msgspec.to_builtins(result.output) == made
    sent = source.requests[0].json
    assert "output_config" not in sent
    assert sent["tool_choice"] == {"type": "any"}
    assert sent["tools"][0]["name"] == ANSWER_TOOL
    assert "strict" not in sent["tools"][0]


@pytest.mark.virtual_time
async def test_a_model_that_cannot_be_forced_is_told_to_call_the_tool() -> None:
    """Because it always thinks, or thinks by a budget."""
    for name, settings in (
        ("claude-opus-5-5", Settings()),
        ("claude-sonnet-4-5", Settings(reasoning_effort="low")),
    ):
        source = MemorySource(claude(claude_call(ANSWER_TOOL, {"tags": {"x": 1}})))
        model = Anthropic(name, api_key=KEY, source=source)
        await result_of(model, Tagged, settings=settings, instructions="Be brief.")
        sent = source.requests[0].json
        assert "tool_choice" not in sent
        assert sent["system"].startswith("Be brief.")
        assert ANSWER_TOOL in sent["system"]


@pytest.mark.virtual_time
async def test_claude_before_4_5_answers_by_a_tool() -> None:
    """It has no structured outputs."""
    source = MemorySource(claude(claude_call(ANSWER_TOOL, ULM)))
    assert (await result_of(Anthropic("claude-sonnet-4-0", api_key=KEY, source=source), City)).output.name == "Ulm"


@pytest.mark.virtual_time
async def test_a_forced_call_comes_before_the_answer() -> None:
    """As long as the agent has to call a tool, the answer's own is not among them."""
    source = MemorySource(chat(("lookup", '{"city":"Ulm"}')), chat((ANSWER_TOOL, json.dumps(ULM))))
    model = compatible("groq", "llama-3.3-70b-versatile", api_key=KEY, source=source)
    await result_of(model, City, tools=[lookup], tool_choice="required")
    first, second = (len(request.json["tools"]) for request in source.requests)
    assert (first, second) == (1, 2)


@pytest.mark.virtual_time
async def test_an_answer_beside_calls_is_not_the_last_one_and_a_second_one_is_left_out() -> None:
    both = chat((ANSWER_TOOL, json.dumps(ULM)), ("lookup", '{"city":"Ulm"}'))
    twice = chat((ANSWER_TOOL, json.dumps(ULM)), (ANSWER_TOOL, '{"name":"Bonn","people":1}'))
    source = MemorySource(both, twice)
    model = compatible("groq", "llama-3.3-70b-versatile", api_key=KEY, source=source)
    assert (await result_of(model, City, tools=[lookup])).output == City("Ulm", 126000)
    said = source.requests[1].json["messages"][-2]
    assert [call["function"]["name"] for call in said["tool_calls"]] == ["lookup"]


@pytest.mark.virtual_time
async def test_a_tool_of_the_same_name_keeps_it() -> None:
    @tool(name=ANSWER_TOOL)
    def mine() -> str:
        """Mine."""
        return "x"

    source = MemorySource(chat((f"{ANSWER_TOOL}_2", json.dumps(ULM))))
    model = compatible("groq", "llama-3.3-70b-versatile", api_key=KEY, source=source)
    assert (await result_of(model, City, tools=[mine])).output == City("Ulm", 126000)


@pytest.mark.virtual_time
async def test_an_answer_by_a_tool_that_does_not_fit_is_repaired_like_any_other() -> None:
    source = MemorySource(chat((ANSWER_TOOL, '{"name":"Ulm"}')), chat((ANSWER_TOOL, json.dumps(ULM))))
    model = compatible("groq", "llama-3.3-70b-versatile", api_key=KEY, source=source)
    assert (await result_of(model, City)).output == City("Ulm", 126000)
    roles = [(message["role"], message.get("tool_calls")) for message in source.requests[1].json["messages"]]
    assert roles == [("user", None), ("assistant", None), ("user", None)]


# --- by words -----------------------------------------------------------------------------------------------


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("output", "made"),
    [(Node, {"name": "a", "children": []}), (Tagged, {"tags": {"x": 1}})],
    ids=["recursive", "dict"],
)
async def test_gemini_is_told_the_schemas_that_it_cannot_hold_an_answer_to(output: Any, made: Any) -> None:
    for name in ("gemini-2.5-pro", "gemini-3-flash"):
        source = MemorySource(gemini({"text": f"```json\n{json.dumps(made)}\n```"}))
        model = Gemini(name, api_key=KEY, source=source)
        result = await result_of(model, output, tools=[lookup], instructions="Be brief.")
        assert msgspec.to_builtins(result.output) == made
        sent = source.requests[0].json
        assert "generationConfig" not in sent
        told = sent["systemInstruction"]["parts"][0]["text"]
        assert told.startswith("Be brief.\n\nGive your final answer as JSON")
        assert '"$defs"' in told or '"tags"' in told


@pytest.mark.virtual_time
async def test_gemini_2_with_googles_own_tools_is_told_the_schema() -> None:
    source = MemorySource(gemini({"text": json.dumps(ULM)}))
    more = {"tools": [{"googleSearch": {}}]}
    await result_of(Gemini("gemini-2.5-pro", api_key=KEY, source=source, extra_body=more), City)
    assert source.requests[0].json["tools"] == more["tools"]
    assert "systemInstruction" in source.requests[0].json


# --- rewritten ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "is_kept"),
    [
        (r"^a+$", True),
        (r"^\d{3}$", True),
        (r"^(?:ab)+$", True),
        (r"^\\b$", True),
        (r"^\(?\d\)?$", True),
        (r"^a\b", False),
        (r"\Ba", False),
        (r"\\\bx", False),
        (r"^(?=a)", False),
        (r"(a)\1", False),
        (r"(?P<n>a)", False),
    ],
)
def test_a_pattern_that_no_grammar_has_is_said_in_words(pattern: str, *, is_kept: bool) -> None:
    """Word boundaries, look-arounds and references back; an escaped backslash or parenthesis is none of them."""
    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": pattern}}, "required": ["x"]}
    sent = strict_schema(schema).schema["properties"]["x"]
    assert ("pattern" in sent) is is_kept
    assert is_kept or "pattern" in sent["description"]


@pytest.mark.virtual_time
async def test_gemini_gets_no_keyword_that_it_does_not_list() -> None:
    class Bounded(msgspec.Struct):
        code: Annotated[str, msgspec.Meta(pattern="^[A-Z]+$")]
        share: Annotated[float, msgspec.Meta(gt=0, le=1)]

    source = MemorySource(gemini({"text": '{"code":"A","share":1}'}))
    await result_of(Gemini("gemini-3-flash", api_key=KEY, source=source), Bounded)
    sent = source.requests[0].json["generationConfig"]["responseJsonSchema"]["properties"]
    assert sent["code"] == {"type": "string", "description": 'pattern: "^[A-Z]+$"'}
    assert sent["share"] == {"type": "number", "maximum": 1, "description": "exclusiveMinimum: 0"}


@pytest.mark.virtual_time
async def test_what_the_model_takes_is_sent_as_it_was() -> None:
    """OpenAI takes recursion, and as many unions as there are."""
    source = MemorySource(chat(text='{"name":"a","children":[]}'))
    model = OpenAIChat("gpt-4o", api_key=KEY, source=source)
    await result_of(model, Node, tools=[lookup])
    assert source.requests[0].json["response_format"]["json_schema"]["strict"] is True
    assert len(source.requests[0].json["tools"]) == 1


def test_the_limits_of_a_schema_are_found_wherever_they_are() -> None:
    strictest = SchemaLimits(recursion=False, open_objects=False, unions=1)
    for given, is_fit in (
        (City, True),
        (list[City], True),
        (Literal["a", "b"], True),
        (int | None, True),
        (tuple[int | None, str | None], False),
        (list[dict[str, int]], False),
        (list[Any], False),
        (Node, False),
        (list[Node], False),
        (Word, True),
    ):
        assert fits(AnswerType(given).schema.schema, strictest) is is_fit, given
        assert fits(AnswerType(given).schema.schema, SchemaLimits())


def test_words_before_the_last_part_are_no_part_of_the_answer() -> None:
    from halter.messages import Message, Text

    kind = AnswerType(City)
    assert kind.read(Message("assistant", (Text("Well: "), Text(json.dumps(ULM))))) == City("Ulm", 126000)
    with pytest.raises(Unfit):
        kind.read(Message("assistant", (Text("Well: "), Text("no"))))
