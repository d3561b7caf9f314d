"""Two models race: the first whole answer counts, and the other is stopped in the middle of its sentence.

    python examples/race.py                   # scripted models, need no key
    python examples/race.py openai:gpt-5.2 anthropic:claude-sonnet-4-5

The loser's socket is closed as soon as there is a winner, and the receipt says when.
"""

import asyncio
import sys

from halter import Agent
from halter.compose import Race
from halter.events import Cancelled
from halter.models import Scripted

hare = Scripted("Rivers run.", pace=0.05)
tortoise = Scripted("A river begins almost nowhere, high on a hillside, in the rain. " * 20, pace=0.05)
models = sys.argv[1:3] if len(sys.argv) > 2 else [hare, tortoise]
first, second = (Agent(model, name=name) for model, name in zip(models, ("first", "second"), strict=True))


async def main() -> None:
    run = Race(first, second).run("Write on rivers.")
    async for event in run:
        if isinstance(event, Cancelled):
            print(f"stopped ({event.reason}) after {event.text!r}")
            print(event.receipt)
    print(f"the winner says: {(await run).text}")


if __name__ == "__main__":
    asyncio.run(main())
