"""Servers at their strictest: what each format's request must be so that nobody refuses it.

1. Each call has exactly one result, directly behind it. 2. No id is used twice or longer than 64 characters.
3. Arguments are a JSON object by the standard's letter. 4. Roles alternate where a server wants that. 5. Nothing is
empty. A check returns the ids of the calls, in their order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

Body = dict[str, Any]
LONGEST_ID = 64


def check_chat(body: Body) -> list[str]:
    """Chat completions, also before a template that wants roles to alternate, as vLLM's of Mistral's or Google's."""
    found: list[str] = []
    waiting: list[str] = []
    before: tuple[str, str | None] = ("", None)
    for message in body["messages"]:
        role = message["role"]
        if role == "tool":
            assert message["tool_call_id"] == waiting.pop(0), "results stand behind their calls, in their order"
            assert isinstance(message["content"], str)
        else:
            assert not waiting, f"{waiting} have no result"
            assert message["content"] or message.get("tool_calls") or message.get("refusal"), f"empty: {message}"
            assert (role, message.get("name")) != before or role not in ("user", "assistant"), f"{role} twice in a row"
            for call in message.get("tool_calls", ()):
                assert role == "assistant"
                assert call["type"] == "function"
                _check_text(call["function"]["arguments"])
                waiting.append(call["id"])
            found += waiting
        before = (role, message.get("name"))
    assert not waiting, f"{waiting} have no result"
    assert before[0] in ("user", "tool"), "there is something to answer"
    _check_ids(found)
    return found


def check_responses(body: Body) -> list[str]:
    """OpenAI's Responses."""
    found: list[str] = []
    waiting: set[str] = set()
    has_results = False
    for item in body["input"]:
        match item.get("type", "message"):
            case "function_call":
                assert not has_results or not waiting, "a result stands between two calls of one answer"
                has_results = False
                _check_text(item["arguments"])
                assert item["call_id"] not in waiting
                waiting.add(item["call_id"])
                found.append(item["call_id"])
            case "function_call_output":
                has_results = True
                assert isinstance(item["output"], str)
                waiting.remove(item["call_id"])
            case "message":
                assert item["content"]
                assert not waiting or (item["role"] == "assistant" and not has_results), "a call without its result"
            case _:
                pass
    assert not waiting, f"{waiting} have no result"
    _check_ids(found)
    return found


def check_anthropic(body: Body) -> list[str]:
    """Anthropic's messages."""
    turns = body["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant"] * (len(turns) // 2) + ["user"], "roles alternate"
    found: list[str] = []
    called: list[str] = []
    for turn in turns:
        assert turn["content"]
        results = [block["tool_use_id"] for block in turn["content"] if block["type"] == "tool_result"]
        assert results == called, f"results {results} behind the calls {called}"
        assert all(block["type"] == "tool_result" for block in turn["content"][: len(results)]), "results come first"
        assert all(block["text"].strip() for block in turn["content"] if block["type"] == "text")
        uses = [block for block in turn["content"] if block["type"] == "tool_use"]
        for use in uses:
            _check_object(use["input"])
            assert re.fullmatch(r"[a-zA-Z0-9_-]+", use["id"])
        called = [use["id"] for use in uses]
        found += called
    _check_ids(found)
    return found


def check_gemini(body: Body) -> list[str]:
    """Google's Gemini API."""
    contents = body["contents"]
    assert contents[0]["role"] == contents[-1]["role"] == "user"
    found: list[str] = []
    called: list[tuple[str, str]] = []
    role = ""
    for content in contents:
        assert content["parts"]
        assert role != "model" or content["role"] == "user", "the model twice in a row"
        role = content["role"]
        results = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        assert not results or len(results) == len(content["parts"]), "words among the results"
        assert [(one["id"], one["name"]) for one in results] == called, f"results {results} behind the calls {called}"
        uses = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        for use in uses:
            _check_object(use["args"])
        called = [(use["id"], use["name"]) for use in uses]
        found += [use["id"] for use in uses]
    assert not called
    _check_ids(found)
    return found


CHECKS: dict[str, Callable[[Body], list[str]]] = {
    "chat": check_chat,
    "responses": check_responses,
    "anthropic": check_anthropic,
    "gemini": check_gemini,
}


def _check_ids(ids: list[str]) -> None:
    assert len(set(ids)) == len(ids), f"an id is used twice: {ids}"
    assert all(0 < len(id) <= LONGEST_ID for id in ids), f"an id is empty or too long: {ids}"


def _check_text(arguments: object) -> None:
    assert isinstance(arguments, str)
    _check_object(json.loads(arguments, parse_constant=_refuse))


def _check_object(value: object) -> None:
    assert isinstance(value, dict), f"arguments are an object, not {value!r}"
    json.dumps(value, allow_nan=False).encode()
    _check_text_in(value.values())


def _check_text_in(values: Iterable[object]) -> None:
    for value in values:
        if isinstance(value, str):
            value.encode()  # half a surrogate pair is no text


def _refuse(word: str) -> NoReturn:
    raise AssertionError(f"{word} is no JSON")
