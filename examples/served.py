"""Agents behind HTTP: `halter serve examples/served.py`. Scripted models answer, so no key is needed.

    curl -N localhost:8000/v1/runs -H 'Content-Type: application/json' \
      -d '{"agent": "poet", "input": "Write on rivers.", "stream": true, "id": "first"}'
    curl -X POST localhost:8000/v1/runs/first/cancel
"""

from __future__ import annotations

import asyncio

from halter import Agent, tool
from halter.models.scripted import Scripted, calls

RIVER = (
    "A river begins almost nowhere, high on a hillside, in the rain. It finds other water, and it becomes a stream. "
    "Below the last hill it slows down, and it carries the hill with it, grain by grain, to the sea. "
)


@tool
async def deploy(version: str) -> str:
    """Deploys a version."""
    for done in range(0, 101, 5):
        await asyncio.sleep(0.5)
        print(f"deployed {done} %")
    return f"{version} is out"


@tool(approval="always")
async def send_mail(to: str, text: str) -> str:
    """Sends a mail."""
    return f"sent to {to}: {text}"


poet = Agent(Scripted(RIVER * 5, pace=0.1), name="poet", description="Writes on rivers, slowly.")
deployer = Agent(
    Scripted(calls("deploy", version="1.4"), "It is out.", pace=0.1),
    name="deployer",
    description="Has a long tool call to stop.",
    tools=[deploy],
)
clerk = Agent(
    Scripted(calls("send_mail", to="anna@example.com", text="Lunch?"), "Done.", pace=0.1),
    name="clerk",
    description="Asks before it sends a mail.",
    tools=[send_mail],
)
