"""CrewAI: a crew of one agent and one task, streamed. Run with the interpreter that has it; prints µs per token."""

import asyncio
import os
import sys

os.environ |= {"OTEL_SDK_DISABLED": "true", "CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false"}

from cpu import measured
from crewai import LLM, Agent, Crew, Task


async def main(url: str, tokens: int) -> None:
    llm = LLM(model="openai/bench", base_url=url, api_key="none", stream=True)
    agent = Agent(role="Writer", goal="Write.", backstory="You write.", llm=llm, verbose=False)
    task = Task(description="Go.", expected_output="Text.", agent=agent)
    crew = Crew(agents=[agent], tasks=[task], stream=True, verbose=False)

    async def read() -> int:
        return sum([1 async for chunk in await crew.akickoff() if chunk.content])

    await measured(read, tokens)


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
