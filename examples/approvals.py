"""Somebody is asked before a tool runs: a question in the terminal, yes or no.

    python examples/approvals.py              # a scripted model, needs no key
    python examples/approvals.py openai:gpt-5.2

Looking is free, deleting asks. The end of the input is a no. There is no asyncio here: a plain `for` follows the run,
`input()` may take its time, and Ctrl-C stops both.
"""

import sys

from halter import Agent, tool
from halter.events import InputRequested, ToolFinished
from halter.models.scripted import Scripted, calls

FILES = ["notes.md", "old.log"]


@tool
def list_files() -> list[str]:
    """Lists the files."""
    return FILES


def question(name: str) -> str:
    """What somebody is asked, of the same arguments as the tool."""
    return f"Delete {name}?"


@tool(approval="always", approval_prompt=question, approval_timeout=None)
def delete_file(name: str) -> str:
    """Deletes a file.

    Args:
        name: As it is listed.
    """
    FILES.remove(name)
    return f"{name} is gone"


script = Scripted(calls("list_files"), calls("delete_file", name="old.log"), "That is all I could do.")
agent = Agent(sys.argv[1] if sys.argv[1:] else script, tools=[list_files, delete_file])


def answer_to(request: InputRequested) -> str:
    """What somebody says, once that is one of the answers."""
    try:
        while (said := input(f"{request.prompt} [yes/no] ")) not in request.options:
            pass
    except EOFError:
        return "no"
    return said


def main() -> None:
    with agent.run("Delete the log file.") as run:
        for event in run:
            if isinstance(event, InputRequested):
                run.answer(event.request_id, answer_to(event))
            if isinstance(event, ToolFinished):
                print(f"{event.name}: {event.outcome}: {event.result}")
    print(run.text)
    print(f"files: {FILES}")


if __name__ == "__main__":
    main()
