"""An answer as a value: of a type of yours, checked, and asked for again if it does not fit.

    python examples/structured_output.py      # a scripted model, needs no key
    python examples/structured_output.py openai:gpt-5.2

The scripted model forgets a field in its first answer. It is told what is wrong, and mends it: a turn more.
"""

import asyncio
import sys
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from halter import Agent
from halter.models import Scripted

LETTER = "Elbe Paper Ltd. 3 boxes of paper at 12.50 each. Please pay 37.50 EUR until the first of May."


@dataclass
class Invoice:
    """An invoice, as it was sent to us."""

    sender: str
    cents: Annotated[int, Meta(description="The whole sum, in cents.", ge=0)]
    currency: Literal["EUR", "USD"]
    due: Annotated[str | None, Meta(description="A date as in 2026-05-01.")] = None


script = Scripted(
    '{"sender": "Elbe Paper Ltd.", "cents": 3750}',
    '{"sender": "Elbe Paper Ltd.", "cents": 3750, "currency": "EUR", "due": "2026-05-01"}',
)
agent = Agent(sys.argv[1] if sys.argv[1:] else script, instructions="Read the invoice.", output=Invoice)


async def main() -> None:
    result = await agent.run(LETTER)
    for message in result.messages:
        print(f"{message.role}: {message.text}")
    assert isinstance(result.output, Invoice)
    print(f"\n{result.output.sender} wants {result.output.cents / 100:.2f} {result.output.currency}: {result.output}")


if __name__ == "__main__":
    asyncio.run(main())
