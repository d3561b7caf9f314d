"""An agent that has another agent as a tool: one stream shows both, and one stop reaches the innermost socket.

    python examples/agent_in_agent.py         # scripted models, need no key
    python examples/agent_in_agent.py openai:gpt-5.2 anthropic:claude-sonnet-4-5

The editor asks the researcher, and is stopped while the researcher is still talking. Nobody else's work is touched:
stopping the inner one alone would be told to the editor as an error of its tool, and the editor would go on.
"""

import asyncio
import sys

from halter import Agent
from halter.events import Cancelled, TextDelta
from halter.models.scripted import Scripted, calls

question = calls("researcher", input="What is a river?")
script = Scripted(("I ask somebody. ", question), "Here is what I know.", pace=0.02)
source = Scripted("A river begins almost nowhere, high on a hillside, in the rain. " * 20, pace=0.02)
outer, inner = sys.argv[1:3] if len(sys.argv) > 2 else (script, source)

researcher = Agent(inner, name="researcher", description="Knows rivers.")
editor = Agent(outer, name="editor", instructions="Ask the researcher first.", tools=[researcher])


async def main() -> None:
    words = 0
    async with editor.run("Write on rivers.") as run:
        async for event in run:
            match event:
                case TextDelta(agent=agent, text=text):
                    print(f"{agent:>10}: {text}")
                    words += agent == "researcher"
                    if words == 8:
                        run.cancel("enough")
                case Cancelled(reason=reason):
                    print(f"{'editor' if event.run_id == run.id else 'researcher':>10}: stopped ({reason})")
                case _:
                    pass
    result = await run.finished()
    print(result.why())
    print(result.receipt)


if __name__ == "__main__":
    asyncio.run(main())
