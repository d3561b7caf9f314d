"""Fronts: the same runs, in the words of other people's clients. None has a path of its own.

A front translates its requests into `StartBody` and `Extras`, and events into its frames. Starting, reading, presence,
limits, keys, tenants, audit and metrics are those of every route: `starting.py`, `run_stream.py`, `server.py`.

- `front.py`: what all fronts use: rules from events to frames, conversations as history and input
- `adk/`: the API server of Google's ADK
- `openai/`: chat completions, Responses, conversations and models
- `showing.py`: a run as one message, for formats that pair starts with ends; `chats.py`: a client's list of messages
  as the next turn of a session
- `ai_sdk.py`: the AI SDK's `useChat`; `ai_sdk_frames.py`: its chunks; `ai_sdk_history.py`: a
  session as its messages
- `ag_ui.py`: AG-UI's `HttpAgent`, and so CopilotKit; `ag_ui_frames.py`: its events
"""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter

from halter.server.fronts.adk.routes import adk_router
from halter.server.fronts.ag_ui import ag_ui_router
from halter.server.fronts.ai_sdk import ai_sdk_router
from halter.server.fronts.openai.router import openai_router
from halter.server.server import Server

FRONTS: tuple[Callable[[Server], APIRouter], ...] = (openai_router, adk_router, ai_sdk_router, ag_ui_router)
