"""A conversation that survives a stop, a restart and a killed process: it lies in one SQLite file.

    python examples/chat_session.py           # a scripted model, needs no key
    python examples/chat_session.py openai:gpt-5.2

Each question is asked by a process of its own. The first answer is stopped in the middle; its words stay, and the next
process goes on behind them. The third process is killed, with no chance to say a word, while a tool runs: the next one
finds the conversation repaired, and the model is told that the call was lost.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile

from halter import Agent, tool
from halter.events import TextDelta, ToolStarted
from halter.messages import ToolResult
from halter.models.scripted import Scripted, calls
from halter.sessions import Sessions

QUESTIONS = ("Write on rivers.", "Go on, briefly.", "Post it, please.", "Is it out?")
SCRIPT = Scripted(
    "A river begins almost nowhere, high on a hillside, in the rain.",
    "From there it runs to the sea.",
    calls("post", text="Rivers run."),
    "I cannot tell: please have a look.",
    pace=0.01,
)


@tool
async def post(text: str) -> str:
    """Posts a text on the web page."""
    await asyncio.sleep(60)
    return "posted"


async def ask(model: str, file: str, question: str) -> None:
    agent = Agent(model or SCRIPT, tools=[post])
    words = 0
    async with Sessions(file) as chats, agent.run(question, session=chats.session("anna")) as run:
        async for event in run:
            match event:
                case TextDelta(text=text):
                    words += len(text.split())
                    if question == QUESTIONS[0] and words >= 5:
                        run.cancel("the stop button")
                case ToolStarted():
                    os.kill(os.getpid(), signal.SIGKILL)  # no clean-up, no last write
                case _:
                    pass


async def show(file: str) -> None:
    async with Sessions(file) as chats:
        for message in await chats.history("anna"):
            results = [part.content for part in message.parts if isinstance(part, ToolResult)]
            said = " ".join([message.text, *(f"calls {call.name}" for call in message.tool_calls), *results])
            print(f"{message.role:>9}: {said.strip()}{' [stopped]' if message.interrupted else ''}")
        for record in reversed(await chats.runs(session="anna")):
            print(f"{record.input!r}: {record.status}", record.cancellation or "")


def main(model: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = os.path.join(directory, "chats.db")
        for question in QUESTIONS:
            subprocess.run([sys.executable, __file__, model, file, question], check=False)
        asyncio.run(show(file))


if __name__ == "__main__":
    if len(sys.argv) == 4:
        asyncio.run(ask(*sys.argv[1:]))
    else:
        main(sys.argv[1] if sys.argv[1:] else "")
