"""An agent that learns something of its user in one conversation, and knows it in the next.

    python examples/remembers.py              # scripted models, need no key
    python examples/remembers.py openai:gpt-5.2

What there is to know is found after the turn, in the background: nobody waits for it, and a stop of the next turn does
not touch it. What is known can be looked at, corrected, and forgotten.
"""

import asyncio
import sys

from halter import Agent, runtime
from halter.facts import Facts
from halter.hooks import Hooks
from halter.models import Scripted
from halter.sessions import Sessions

model = sys.argv[1] if sys.argv[1:] else None
learner = Scripted('{"add": ["Anna must not eat nuts."], "replace": [], "forget": []}')


class Show(Hooks):
    def before_model(self, ctx, request):
        print(f"the model is told: {request.messages[-1].text!r}")


cook = Agent(model or Scripted("I keep that in mind."), name="cook", memory=Facts(model or learner), hooks=Show())


async def main() -> None:
    async with Sessions() as chats:  # in memory; with a path they would last
        for day in ("monday", "friday"):
            await chats.create(day, user="anna")

        print((await cook.run("I am Anna, and nuts make me ill.", session=chats.session("monday"))).text)
        for run in runtime().runs(tag="memory"):
            await run.finished()

        for fact in await chats.facts.list("anna"):
            print(f"known of anna: {fact.text}")
        print((await cook.run("What may Anna eat tonight?", session=chats.session("friday"))).text)
        print(f"forgotten: {await chats.facts.forget_all('anna')}")


if __name__ == "__main__":
    asyncio.run(main())
