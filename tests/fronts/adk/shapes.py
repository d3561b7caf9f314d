"""What ADK's clients see of a run, and the run's own account of it, in one form: to be compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from halter import events
from halter.events import Event
from halter.messages import Refusal, Text

Seen: TypeAlias = dict[str, Any]


def seen_in_run(found: Sequence[Event]) -> Seen:
    """What the run says itself: text of whole messages, tools, questions, and how it ended."""
    root = found[0].root_id
    messages = [event for event in found if isinstance(event, events.MessageFinished)]
    end = next(event for event in found if event.is_terminal and event.run_id == root)
    return {
        "texts": [text for event in messages if (text := _said(event))],
        "pieces": "".join(event.text for event in found if isinstance(event, events.TextDelta)),
        "thoughts": "".join(event.text for event in found if isinstance(event, events.ReasoningDelta)),
        "calls": sorted([e.call_id, e.name] for e in found if isinstance(e, events.ToolCalled)),
        "results": sorted([e.call_id, e.outcome == "ok"] for e in found if isinstance(e, events.ToolFinished)),
        "questions": [event.request_id for event in found if isinstance(event, events.InputRequested)],
        "end": {"run.completed": "completed", "run.cancelled": "cancelled"}.get(end.type, "failed"),
    }


def _said(event: events.MessageFinished) -> str:
    return "".join(part.text for part in event.message.parts if isinstance(part, Text | Refusal))


def seen_by_client(found: Iterable[dict[str, Any]]) -> Seen:
    """What a client makes of the events it was sent; they are in ADK's JSON."""
    seen: Seen = {"texts": [], "pieces": "", "thoughts": "", "calls": [], "results": [], "questions": []}
    end = "completed"
    for event in found:
        parts = (event.get("content") or {}).get("parts") or []
        text = "".join(part["text"] for part in parts if "text" in part and not part.get("thought"))
        if event.get("partial"):
            seen["pieces"] += text
            seen["thoughts"] += "".join(part["text"] for part in parts if part.get("thought"))
            continue
        asked = set(event.get("longRunningToolIds") or ())
        seen["texts"] += [text] if text else []
        seen["questions"] += sorted(asked)
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        seen["calls"] += [[call["id"], call["name"]] for call in calls if call["id"] not in asked]
        for part in parts:
            if "functionResponse" in part:
                given = part["functionResponse"]
                seen["results"].append([given["id"], "error" not in given["response"]])
        if event.get("errorCode"):
            end = "failed"
        elif event.get("interrupted") and event.get("turnComplete"):
            end = "cancelled"
    return {**seen, "calls": sorted(seen["calls"]), "results": sorted(seen["results"]), "end": end}


def batches(found: Sequence[Event], sizes: Sequence[int]) -> list[Sequence[Event]]:
    """The events as a reader gets them: so many at once, in turn."""
    pieces: list[Sequence[Event]] = []
    at = 0
    while at < len(found):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(found[at : at + size])
        at += size
    return pieces
