"""A writer and a critic in one conversation, until the critic approves; Ctrl-C stops whoever is speaking.

    python examples/team.py                   # scripted models, need no key
    python examples/team.py openai:gpt-5.2

The handler is a plain `signal.signal` one that cancels a token. After a stop the state says whose turn it was, and the
next run goes on there: `team.run(state=run.outcome.state)`.
"""

import asyncio
import signal
import sys

from halter import Agent, CancellationToken
from halter.events import Started, TextDelta
from halter.models import Scripted
from halter.teams import RoundRobin
from halter.terminations import MaxMessages, StopMessage

writer_script = Scripted("Rivers are long.", "Rivers remember the rain.", pace=0.05)
critic_script = Scripted("Too plain: say what they do.", "Lovely. APPROVED", pace=0.05)
model = sys.argv[1] if len(sys.argv) > 1 else None

writer = Agent(
    model or writer_script,
    name="writer",
    instructions="You write one sentence on the subject, and rewrite it as the critic asks.",
)
critic = Agent(
    model or critic_script,
    name="critic",
    instructions="You say in one sentence what to do better. When nothing is, you end with APPROVED.",
)
team = RoundRobin([writer, critic], until=StopMessage("APPROVED", by="critic") | MaxMessages(6))


async def main() -> int:
    token = CancellationToken()
    before = signal.signal(signal.SIGINT, lambda *_: token.cancel("Ctrl-C"))
    try:
        run = team.run("Write on rivers.", cancellation=token)
        async for event in run:
            if isinstance(event, Started) and event.parent_id:
                print(f"\n{event.name}: ", end="", flush=True)
            if isinstance(event, TextDelta):
                print(event.text, end="", flush=True)
    finally:
        signal.signal(signal.SIGINT, before)
    result = await run.finished()
    print("\n")
    if result.is_completed:
        print(f"the end: {result.state.stop_reason}")
        return 0
    print(result.why())
    if result.state is not None:
        print(f"whole turns: {len(result.state.turns)}; cut off: {', '.join(result.state.cut)}")
    return 130 if result.is_cancelled else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
