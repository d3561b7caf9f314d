"""A crew of two is stopped in the middle of its second task, and a next run goes on where it was.

    python examples/crew.py                   # a scripted model, needs no key
    python examples/crew.py openai:gpt-5.2

The research is not done again: its output is in the state of the run that was stopped, which could have been stored.
"""

import asyncio
import sys

from halter.crews import Crew, Member, Task
from halter.events import TextDelta
from halter.models import Scripted

model = sys.argv[1] if len(sys.argv) > 1 else Scripted("A river begins almost nowhere, in the rain.", pace=0.02)

researcher = Member(model, role="Researcher", goal="Find out what is known of {topic}")
writer = Member(model, role="Writer", goal="Be read", backstory="You were a journalist.")
research = Task(description="Find three facts on {topic}.", agent=researcher, name="research")
write = Task(description="Write a line on {topic}.", expected_output="One line", agent=writer, name="write")
crew = Crew([research, write])


async def main() -> None:
    run = crew.run({"topic": "rivers"})
    written = 0
    async for event in run:
        if isinstance(event, TextDelta):
            print(f"{event.task:>8}, {event.agent}: {event.text}")
            written += event.task == "write"
        if written == 3:
            await run.aclose()
    result = await run.finished()
    print(f"{result.why()} It had written: {result.text!r}")
    print(f"done: {', '.join(result.state.outputs)}; cut short: {', '.join(result.state.open)}")

    async with crew.run({"topic": "rivers"}, state=result.state) as run:
        asked = [event.task async for event in run if event.type == "model.requested"]
        print(f"asked again: {', '.join(asked)}")
        print(run.text)


if __name__ == "__main__":
    asyncio.run(main())
