"""Ctrl-C stops the agent, not the program: it goes on to print the receipt, and exits as a stopped program does.

    python examples/ctrl_c.py                 # a scripted model, needs no key; press Ctrl-C while it talks
    python examples/ctrl_c.py openai:gpt-5.2

The first Ctrl-C stops, the second kills what has not ended by then, the third is Python's own. SIGTERM does the same.
"""

import asyncio
import sys

from halter import Agent, cancel_on_signals
from halter.models import Scripted

RIVERS = "A river begins almost nowhere, high on a hillside, in the rain. " * 5
agent = Agent(sys.argv[1] if sys.argv[1:] else Scripted(RIVERS, pace=0.08))


async def main() -> int:
    run = agent.run("Write on rivers.")
    with cancel_on_signals(run):
        async for text in run.text_stream():
            print(text, end="", flush=True)
    result = await run.finished()
    print(f"\n\n{result.why()}")
    if result.receipt is None:
        return 0
    print(result.receipt)
    return 130  # 128 + SIGINT, as shells have it


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
