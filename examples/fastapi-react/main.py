"""A FastAPI app of your own, with an agent that a React page talks to. Its README says how to run it."""

from __future__ import annotations

import os

from fastapi import FastAPI

from halter import Agent
from halter.models import Scripted
from halter.server import Guard, mount

RIVER = "A river begins almost nowhere, in the rain, and is in no hurry. " * 8

model = os.environ.get("HALTER_MODEL")  # as in "openai:gpt-5.2"; without one, a script answers
poet = Agent(model or Scripted(RIVER, pace=0.05), name="poet", instructions="You write poems.")

app = FastAPI()
mount(app, poet)
app.add_middleware(Guard, allowed_hosts=("localhost", "127.0.0.1"))


@app.get("/api/hello")
async def hello() -> dict[str, str]:
    """A route of your own, beside the agent's."""
    return {"hello": "there"}
