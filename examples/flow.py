"""A flow is stopped in the middle of a step, kept as JSON, and goes on from there: no step that had ended runs again.

    python examples/flow.py                   # scripted models, need no key
    python examples/flow.py openai:gpt-5.2

It plans, then writes until there are two paragraphs. The stop comes while the writer is writing: his socket is closed,
and what the flow had by then is in `result.state`.
"""

import asyncio
import sys
from typing import Literal

import msgspec

from halter import Agent
from halter.events import Completed, Started, TextDelta
from halter.flows import Flow, listen, or_, router, start
from halter.models import Scripted

paragraph = Scripted("A river begins almost nowhere, high on a hillside, in the rain.", pace=0.02)
model = sys.argv[1] if len(sys.argv) > 1 else None


class Article(msgspec.Struct):
    topic: str
    paragraphs: list[str] = []


class Write(Flow[Article], name="write an article"):
    planner = Agent(model or Scripted("Springs, rapids, the sea."), name="planner")
    writer = Agent(model or paragraph, name="writer", instructions="Write one paragraph.")

    @start()
    async def plan(self) -> str:
        return (await self.planner.run(f"Plan an article on {self.state.topic}.")).text

    @listen(or_(plan, "more"))
    async def write(self, ctx, outline: str) -> str:
        so_far = "\n\n".join(self.state.paragraphs)
        self.state.paragraphs.append((await self.writer.run(f"{outline}\n\nSo far:\n{so_far}")).text)
        return outline

    @router(write)
    def judge(self) -> Literal["more", "enough"]:
        return "more" if len(self.state.paragraphs) < 2 else "enough"

    @listen("enough")
    def publish(self) -> str:
        return "\n\n".join(self.state.paragraphs)


async def main() -> None:
    article, words, steps = Write(), 0, {}

    run = article.run({"topic": "rivers"})
    async for event in run:
        words += isinstance(event, TextDelta) and event.agent == "writer"
        if words == 16:
            run.cancel("enough for now")
    kept = msgspec.json.encode(run.outcome.state)
    print(f"stopped: {run.outcome.cancellation}; kept: {kept.decode()}")

    run = article.run(state=msgspec.json.decode(kept))
    async for event in run:
        if isinstance(event, Started) and event.kind == "step":
            steps[event.run_id] = event.name
        elif isinstance(event, Completed) and event.run_id in steps:
            print(f"ended: {steps[event.run_id]}")
    print((await run).output)


if __name__ == "__main__":
    asyncio.run(main())
