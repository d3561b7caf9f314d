"""Answers as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Any

RUN_ID = "0197e2b1-6a4c-7d30-8a55-0c2f3b9d7e11"
AT = 1_790_000_000.0

STOP: dict[str, Any] = {
    "reason": "user_stop",
    "mode": "immediate",
    "actor": "anna",
    "message": "not what I meant",
    "at": AT + 2.1,
}
RUN: dict[str, Any] = {
    "id": RUN_ID,
    "epoch": 1_789_990_000,
    "agent": "poet",
    "kind": "agent",
    "status": "cancelled",
    "session": "trip",
    "user": "ann",
    "tags": ["demo"],
    "text": "A river begins almost nowhere,",
    "output": None,
    "usage": {"input": 12, "output": 7, "cached": 0, "reasoning": 0, "estimated": True},
    "cost": 0.0002,
    "error": None,
    "cancelling": None,
    "cancellation": STOP,
    "receipt": {
        "requested_at": AT + 2.1,
        "stopped_after_ms": 0.8,
        "confirmed": True,
        "resources": [
            {
                "kind": "socket",
                "label": "POST api.openai.com/v1/chat/completions",
                "run_id": RUN_ID,
                "ended": "closed",
                "ended_after_ms": 0.7,
            }
        ],
    },
    "children": [],
    "inputs": [],
    "cursor": "1789990000.14",
    "created_at": AT,
    "started_at": AT,
    "ended_at": AT + 2.2,
    "is_cut": False,
    "effective": True,
}
PROCESSES: dict[str, Any] = {
    "processes": [{"run_id": RUN_ID, "call_id": "call_1", "pid": 4711, "command": "make test", "elapsed": 2.5}]
}
RUNS: dict[str, Any] = {"runs": [RUN], "next": None}
STOPPED: dict[str, Any] = {"runs": [RUN]}
TOMBSTONE: dict[str, Any] = {"id": RUN_ID, "status": "tombstone"}
AGENTS: dict[str, Any] = {
    "agents": [{"name": "poet", "kind": "agent", "description": "Writes on rivers, slowly.", "model": "gpt-5.2"}]
}
SESSION: dict[str, Any] = {
    "id": "trip",
    "user": "ann",
    "title": "A trip to the sea",
    "tags": ["travel"],
    "metadata": {"plan": "free"},
    "messages": 2,
    "running": None,
    "created_at": AT,
    "updated_at": AT + 2.2,
}
SESSIONS: dict[str, Any] = {"sessions": [SESSION]}
MESSAGES: dict[str, Any] = {
    "messages": [
        {"role": "user", "parts": [{"type": "text", "text": "Write on rivers."}]},
        {
            "role": "assistant",
            "parts": [{"type": "text", "text": "A river begins almost nowhere,"}],
            "interrupted": True,
        },
    ]
}
HITS: dict[str, Any] = {"hits": [{"session": "trip", "position": 0, "role": "user", "text": "Write on rivers."}]}
FACTS: dict[str, Any] = {
    "facts": [
        {
            "id": "0197e2b1-7a00-7000-8000-000000000001",
            "text": "Ann likes tea.",
            "session": "trip",
            "created_at": AT,
            "updated_at": AT,
        }
    ]
}
SESSION_EXPORT: dict[str, Any] = {
    "format": "halter.session",
    "version": 1,
    "session": {"id": "trip", "user": "ann", "title": "A trip to the sea", "tags": [], "created_at": AT},
    "messages": MESSAGES["messages"],
    "compaction": None,
}
USER_EXPORT: dict[str, Any] = {
    "format": "halter.user",
    "version": 1,
    "user": "ann",
    "facts": FACTS["facts"],
    "runs": [],
    "sessions": [SESSION_EXPORT],
}
AUDIT: dict[str, Any] = {
    "entries": [
        {
            "at": AT + 2.1,
            "tenant": "acme",
            "actor": "anna",
            "action": "run.cancel",
            "target": RUN_ID,
            "effect": "cancelling",
            "reason": "user_stop",
            "mode": "immediate",
            "message": "not what I meant",
        }
    ],
    "next": None,
}
APPROVALS: dict[str, Any] = {
    "approvals": [
        {
            "id": "0199f0c2a3b17e55",
            "at": AT + 1.2,
            "run": RUN_ID,
            "session": "trip",
            "user": "ann",
            "agent": "clerk",
            "tool": "send_mail",
            "pattern": {"to": "anna@example.com"},
            "answer": "session",
            "by": "ann",
            "reason": None,
            "is_remembered": True,
        }
    ],
    "next": None,
}
LIVE = (
    "event: live\n"
    'data: {"type": "live", "runs": [{"id": "…", "agent": "poet", "status": "running", "tail": "A river ", …}]}\n\n'
    "event: changed\n"
    'data: {"type": "changed", "runs": [{"id": "…", "agent": "poet", "status": "cancelled", "receipt": {…}, …}]}\n\n'
)
EVENTS = (
    "id: 1789990000.0\nevent: snapshot\n"
    'data: {"type": "snapshot", "cursor": "1789990000.0", "run_id": "…", "status": "running", …}\n\n'
    "id: 1789990000.5\nevent: text.delta\n"
    'data: {"type": "text.delta", "seq": 5, "text": "A river ", …}\n\n'
)
METRICS = 'halter_runs_total{agent="poet",status="cancelled",reason="user_stop"} 1.0\nhalter_live_runs 0.0\n'


def problem(status: int, title: str, detail: str, code: str) -> dict[str, Any]:
    """An error (RFC 9457)."""
    return {"type": "about:blank", "title": title, "status": status, "detail": detail, "code": code}
