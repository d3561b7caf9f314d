"""Fronts: the same runs, in the words of other people's clients. None has a path of its own.

A front translates its requests into `StartBody` and `Extras`, and events into its frames. Starting, reading, presence,
limits, keys, tenants, audit and metrics are those of every route: `starting.py`, `run_stream.py`, `server.py`.

- `front.py`: what all fronts use: rules from events to frames, conversations as history and input
- `openai/`: chat completions, Responses, conversations and models
"""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter

from halter.server.fronts.adk.routes import adk_router
from halter.server.fronts.openai.router import openai_router
from halter.server.server import Server

FRONTS: tuple[Callable[[Server], APIRouter], ...] = (openai_router, adk_router)
