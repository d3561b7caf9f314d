"""A Chainlit page for an agent of Halter's server. Its stop button stops the agent, down to the model's connection."""

import os

import chainlit as cl
from openai import AsyncOpenAI

client = AsyncOpenAI(base_url=os.environ.get("HALTER_URL", "http://localhost:8000") + "/v1", api_key="none")
MODEL = os.environ.get("HALTER_AGENT", "poet")


@cl.on_message
async def answer(message: cl.Message) -> None:
    """Chainlit cancels this task when somebody presses stop: leaving the block closes the connection."""
    reply = cl.Message("")
    async with await client.responses.create(
        model=MODEL, input=message.content, previous_response_id=cl.user_session.get("last"), stream=True
    ) as stream:
        async for event in stream:
            if event.type == "response.output_text.delta":
                await reply.stream_token(event.delta)
            elif event.type in ("response.completed", "response.incomplete"):
                cl.user_session.set("last", event.response.id)
    await reply.update()
