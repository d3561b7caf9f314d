"""A stop ends a whole tree of processes: also what hides behind `nohup`, `setsid` and `&`.

    python examples/shell_tree.py             # a scripted model, needs no key
    python examples/shell_tree.py openai:gpt-5.2

**The shell tool is no sandbox.** It runs unasked here, since this file says what it runs; leave `approval` alone where
a model writes the commands.
"""

import asyncio
import re
import sys
from pathlib import Path

from halter import Agent
from halter.events import ToolProgress
from halter.models.scripted import Scripted, calls
from halter.tools import shell

COMMAND = "sleep 300 & echo $!; nohup sleep 300 & echo $!; setsid sleep 300 & echo $!; wait"
script = Scripted(("I start three.", calls("shell", command=COMMAND)), "They have ended.")
agent = Agent(sys.argv[1] if sys.argv[1:] else script, tools=[shell(approval="never")])


def is_running(pid: str) -> bool:
    """By /proc, where a process that has ended and was not yet collected does not count."""
    stat = Path("/proc", pid, "stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


async def main() -> None:
    pids: list[str] = []
    async with agent.run(f"Run exactly this, and nothing else: {COMMAND}") as run:
        async for event in run:
            if isinstance(event, ToolProgress):
                pids += re.findall(r"\d+", event.text)
            if len(pids) == 3:
                print(f"running: {[pid for pid in pids if is_running(pid)]}")
                run.cancel("the stop button")
                break
    result = await run.finished()
    print(f"running: {[pid for pid in pids if is_running(pid)]}")
    print(result.why())
    print(result.receipt)


if __name__ == "__main__":
    asyncio.run(main())
