"""A payment that must finish: the stop waits for it, and ends everything else at once.

    python examples/payment.py                # a scripted model, needs no key
    python examples/payment.py openai:gpt-5.2

The model pays an invoice and tracks a parcel at the same time, and somebody presses stop in the middle. The tracking is
cut. The payment, once begun, is done: its result is in the conversation, so that nobody pays twice. The model is not
asked again.
"""

import asyncio
import sys

from halter import Agent, tool
from halter.events import ToolFinished, ToolStarted
from halter.models.scripted import Scripted, calls
from halter.tools import ToolContext

PAID: list[str] = []


@tool(cancel="must_finish")
async def pay(invoice: str, cents: int, ctx: ToolContext) -> str:
    """Pays an invoice.

    Args:
        invoice: Its number.
        cents: How much, in cents.
    """
    ctx.progress("the bank has been asked")
    await asyncio.sleep(0.5)  # half done is the one thing that this must never be
    PAID.append(invoice)
    return f"{invoice}: {cents / 100:.2f} EUR paid"


@tool
async def track(parcel: str) -> str:
    """Waits until a parcel has arrived.

    Args:
        parcel: Its number.
    """
    await asyncio.sleep(60)
    return f"{parcel} has arrived"


script = Scripted(
    ("I pay, and wait for it.", calls("pay", invoice="R-17", cents=4200), calls("track", parcel="P-9")),
    "It is all done.",
)
agent = Agent(sys.argv[1] if sys.argv[1:] else script, tools=[pay, track])


async def main() -> None:
    async with agent.run("Pay invoice R-17 over 42 EUR, and tell me when parcel P-9 is here.") as run:
        async for event in run:
            match event:
                case ToolStarted():
                    run.cancel("the stop button")
                case ToolFinished(name=name, outcome=outcome, result=told, elapsed=elapsed):
                    print(f"{name}: {outcome} after {elapsed:.2f} s: {told}")
                case _:
                    pass
    result = await run.finished()
    print(f"paid: {PAID}")
    print(result.why())
    print(result.receipt)


if __name__ == "__main__":
    asyncio.run(main())
