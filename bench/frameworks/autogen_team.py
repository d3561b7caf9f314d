"""AutoGen: a round-robin team of one assistant, streamed. Run with the interpreter that has it; prints µs per token."""

import asyncio
import sys

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient
from cpu import measured

INFO = {
    "vision": False,
    "function_calling": True,
    "json_output": False,
    "family": "unknown",
    "structured_output": False,
}


async def main(url: str, tokens: int) -> None:
    client = OpenAIChatCompletionClient(model="bench", base_url=url, api_key="none", model_info=INFO)

    async def read() -> int:
        assistant = AssistantAgent("writer", client, model_client_stream=True)
        team = RoundRobinGroupChat([assistant], max_turns=1)
        return sum([isinstance(event, ModelClientStreamingChunkEvent) async for event in team.run_stream(task="Go.")])

    await measured(read, tokens)
    await client.close()


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
