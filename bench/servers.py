"""The servers that are compared, each in a process of its own: `python -m bench.servers NAME PROVIDER`.

All of them take one question by POST and stream the provider's answer as server-sent events. The process prints the
port that it listens on, and ends with its stdin.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import uvicorn

from bench.peers import MODEL, PROMPT

KEY = "none"


def halter_app(provider: str) -> Any:
    """Halter's server: `POST /v1/runs` with `stream`."""
    from halter import Agent
    from halter.models.openai import OpenAIChat
    from halter.server import create_app
    from halter.server.limits import Limits

    agent = Agent(OpenAIChat(MODEL, base_url=provider, api_key=""), name="agent")
    return create_app(agent, max_runs=10_000, limits=Limits(runs=None, streams=None))


def script_app(script: str) -> Any:
    """Halter's server with an agent that has no provider. `script`: `TOKENS,BURST,GAP`, a burst of
    so many tokens every `GAP` milliseconds."""
    from halter import Agent, Message, RunContext
    from halter.models.scripted import Scripted
    from halter.request import ModelRequest
    from halter.server import create_app
    from halter.server.limits import Limits

    tokens, burst, gap = map(int, script.split(","))

    class Script(Scripted):
        async def respond(self, request: ModelRequest, ctx: RunContext) -> Message:
            reply = ctx.reply(ctx.allowance(request, self.price))
            for number in range(tokens):
                if number % burst == 0:
                    await ctx.drain()
                    await asyncio.sleep(gap / 1e3)
                reply.text(f"t{number} ")
            return reply.finish()

    return create_app(Agent(Script("."), name="agent"), max_runs=10_000, limits=Limits(runs=None, streams=None))


def frames_app(script: str) -> Any:
    """No agent and no run: a `StreamingResponse` that writes ready frames of ADK's. What any server has to spend."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

    tokens, burst, gap = map(int, script.split(","))
    frame = b'data: {"content":{"parts":[{"text":"t100 "}],"role":"model"},"partial":true}\n\n'

    async def frames() -> AsyncIterator[bytes]:
        for _ in range(tokens // burst):
            await asyncio.sleep(gap / 1e3)
            yield frame * burst

    async def answer(request: Request) -> StreamingResponse:
        await request.body()
        return StreamingResponse(frames(), media_type="text/event-stream")

    async def make_session(request: Request) -> Response:
        return Response()

    sessions = Route("/apps/{rest:path}", make_session, methods=["POST"])
    return Starlette(routes=[Route("/run_sse", answer, methods=["POST"]), sessions])


def _texts(provider: str) -> AsyncIterator[str]:
    """The answer's tokens, by the official SDK."""
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=provider, api_key=KEY)

    async def read() -> AsyncIterator[str]:
        messages: Any = [{"role": "user", "content": PROMPT}]
        async with await client.chat.completions.create(model=MODEL, messages=messages, stream=True) as stream:
            async for chunk in stream:
                if chunk.choices and chunk.choices[0].delta.content:
                    yield chunk.choices[0].delta.content

    return read()


def starlette_app(provider: str) -> Any:
    """What people write by hand: a `StreamingResponse` over the official SDK."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import StreamingResponse
    from starlette.routing import Route

    async def frames() -> AsyncIterator[str]:
        async for text in _texts(provider):
            yield f"data: {text}\n\n"

    async def answer(request: Request) -> StreamingResponse:
        await request.body()
        return StreamingResponse(frames(), media_type="text/event-stream")

    return Starlette(routes=[Route("/v1/runs", answer, methods=["POST"])])


def sse_starlette_app(provider: str) -> Any:
    """The same with the sse-starlette package."""
    from sse_starlette import EventSourceResponse
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.routing import Route

    async def answer(request: Request) -> EventSourceResponse:
        await request.body()
        return EventSourceResponse(_texts(provider), sep="\n")

    return Starlette(routes=[Route("/v1/runs", answer, methods=["POST"])])


APPS: dict[str, Callable[[str], Any]] = {
    "halter": halter_app,
    "starlette + openai": starlette_app,
    "sse-starlette + openai": sse_starlette_app,
}
ALL = {**APPS, "script": script_app, "frames": frames_app}


def main() -> None:
    name, provider = sys.argv[1:]
    listening = socket.create_server(("127.0.0.1", 0), backlog=2_048)
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    print(listening.getsockname()[1], flush=True)
    config = uvicorn.Config(ALL[name](provider), log_config=None, access_log=False, loop="uvloop", http="httptools")
    uvicorn.Server(config).run(sockets=[listening])


def _end_with_stdin() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
