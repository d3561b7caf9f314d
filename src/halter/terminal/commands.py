"""What begins with a slash: one table of commands."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from halter.errors import HalterError
from halter.messages import Message
from halter.outcome import CancelMode
from halter.terminal.receipts import in_full, tokens_and_cost
from halter.terminal.safe import safe_line

if TYPE_CHECKING:
    from halter.terminal.chat import Chat

Work: TypeAlias = Callable[["Chat", str], Awaitable[None]]
SHOWN_MESSAGES = 6


@dataclass(frozen=True)
class Command:
    """`needs_idle`: it waits for the end of a turn."""

    name: str
    arguments: str
    about: str
    work: Work
    needs_idle: bool


COMMANDS: dict[str, Command] = {}


def command(name: str, arguments: str = "", *, needs_idle: bool = False) -> Callable[[Work], Work]:
    """Puts a function into the table; its docstring is the help."""

    def added(work: Work) -> Work:
        COMMANDS[name] = Command(name, arguments, (work.__doc__ or "").rstrip("."), work, needs_idle)
        return work

    return added


async def run_command(chat: Chat, text: str) -> None:
    """Runs `/name arguments`; a mistake is a line on the screen."""
    name, _, rest = text[1:].partition(" ")
    found = COMMANDS.get(name)
    if found is None:
        chat.tell(f"there is no command /{name}: /help lists them")
    elif found.needs_idle and chat.turn is not None:
        chat.tell(f"/{name} waits for the turn: stop it first, with Esc")
    else:
        try:
            await found.work(chat, rest.strip())
        except HalterError as error:
            chat.tell(safe_line(str(error)), "red")


# --- the turn -----------------------------------------------------------------------------------------------


@command("stop", "[after-turn|drain|kill]")
async def _stop(chat: Chat, rest: str) -> None:
    """Stop the turn; after-turn lets it finish, drain lets its tools finish."""
    modes = {"": CancelMode.IMMEDIATE, "after-turn": CancelMode.AFTER_TURN, "drain": CancelMode.DRAIN_TOOLS}
    mode = {**modes, "kill": CancelMode.KILL}.get(rest)
    if mode is None:
        chat.tell("/stop, /stop after-turn, /stop drain or /stop kill")
    elif not chat.stop("/stop", mode):
        chat.tell("nothing is running")


@command("receipt")
async def _receipt(chat: Chat, rest: str) -> None:
    """Show the last stop's receipt in full."""
    result = chat.last_stopped
    receipt = result.receipt if result is not None else None
    chat.tell(in_full(receipt) if receipt is not None else "nothing was stopped yet", "")


@command("retry", needs_idle=True)
async def _retry(chat: Chat, rest: str) -> None:
    """Take the last turn back and ask again."""
    said = await _taken_back(chat)
    if said:
        chat.submit(said)


@command("undo", needs_idle=True)
async def _undo(chat: Chat, rest: str) -> None:
    """Take the last turn back; what you said is in the prompt again."""
    said = await _taken_back(chat)
    if said and not chat.draft:
        chat.draft = said


async def _taken_back(chat: Chat) -> str:
    """What you said in the last turn, which is taken back; empty if there is none."""
    messages = await chat.desk.history()
    at = next((at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "user"), None)
    if at is None:
        chat.tell("nothing was said yet")
        return ""
    await chat.desk.rewind(at)
    chat.tell("the last turn is taken back")
    return messages[at].text


# --- conversations ------------------------------------------------------------------------------------------


@command("sessions")
async def _sessions(chat: Chat, rest: str) -> None:
    """List the conversations of this directory."""
    found = await chat.desk.sessions()
    lines = [
        f"{number:>2}  {_age(each.updated_at):>4}  {each.messages:>4} messages  {safe_line(each.title, 60)}"
        for number, each in enumerate(found, 1)
    ]
    chat.tell("\n".join([*lines, "/resume N goes on with one"]) if lines else "there are none yet", "")


@command("resume", "N or ID", needs_idle=True)
async def _resume(chat: Chat, rest: str) -> None:
    """Go on with another conversation."""
    found = await chat.desk.sessions(100)
    if rest.isdecimal() and 1 <= int(rest) <= len(found):
        rest = found[int(rest) - 1].id
    if not rest:
        chat.tell("/resume N, as /sessions lists them, or /resume ID")
        return
    chat.desk.open(rest)
    await show_history(chat)


async def show_history(chat: Chat) -> None:
    """Shows the last messages of the conversation that was opened."""
    messages = [each for each in await chat.desk.history() if each.role in ("user", "assistant") and each.text]
    if len(messages) > SHOWN_MESSAGES:
        chat.tell(f"… {len(messages) - SHOWN_MESSAGES} earlier messages")
    for message in messages[-SHOWN_MESSAGES:]:
        _show(chat, message)
    if not messages:
        chat.tell("this conversation is empty")


def _show(chat: Chat, message: Message) -> None:
    if message.role == "user":
        chat.view.said(message.text)
    else:
        chat.view.markdown(message.text)
        if message.interrupted:
            chat.tell("(it was stopped here)", "yellow")


@command("new", needs_idle=True)
async def _new(chat: Chat, rest: str) -> None:
    """Begin another conversation."""
    from halter.core.ids import new_id

    chat.desk.open(new_id())
    chat.tell("a new conversation begins")


@command("fork", needs_idle=True)
async def _fork(chat: Chat, rest: str) -> None:
    """Go on in a copy of this conversation."""
    chat.desk.open(await chat.desk.fork())
    chat.tell("you are in a copy; /sessions lists the conversation that it was made of")


@command("compact")
async def _compact(chat: Chat, rest: str) -> None:
    """Summarize the older part of the conversation before the next turn."""
    can = chat.desk.compact_next()
    chat.tell("it is compacted before the next request" if can else "this cannot be asked for here")


@command("export", "[FILE]")
async def _export(chat: Chat, rest: str) -> None:
    """Write the conversation to a new file as JSON."""
    text = json.dumps(await chat.desk.export(), ensure_ascii=False, indent=1)
    chat.tell(_written(Path(rest or f"halter-{chat.desk.session}.json"), text))


def _written(path: Path, text: str) -> str:
    """Writes a new file; whether that went well, in words."""
    try:
        with path.expanduser().open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        return f"{safe_line(str(path))}: {error.strerror}"
    return f"written to {safe_line(str(path))}"


@command("facts")
async def _facts(chat: Chat, rest: str) -> None:
    """List what is known of you."""
    chat.tell("\n".join(f"- {safe_line(fact)}" for fact in await chat.desk.facts()) or "nothing is known of you", "")


# --- what answers -------------------------------------------------------------------------------------------


@command("model", "[NAME]")
async def _model(chat: Chat, rest: str) -> None:
    """Show the model, or have another one answer."""
    if rest:
        chat.desk.use_model(rest)
    chat.tell(f"{safe_line(chat.desk.title)} answers{' from the next turn on' if rest and chat.turn else ''}")


@command("tools")
async def _tools(chat: Chat, rest: str) -> None:
    """List the tools."""
    lines = [f"{safe_line(name)}: {safe_line(about, 100)}" for name, about in chat.desk.tools()]
    chat.tell("\n".join(lines) or "there are none that are known here", "")


@command("ps")
async def _ps(chat: Chat, rest: str) -> None:
    """List the programs that run in the background."""
    chat.tell("\n".join(map(safe_line, await chat.desk.programs())) or "there are none", "")


@command("cost")
async def _cost(chat: Chat, rest: str) -> None:
    """Show tokens and cost since the chat began."""
    chat.tell(f"{tokens_and_cost(chat.usage, chat.cost)}, in {chat.turns} turns")


@command("help")
async def _help(chat: Chat, rest: str) -> None:
    """List keys and commands."""
    lines = [f"/{one.name} {one.arguments}".ljust(34) + one.about for one in COMMANDS.values()]
    chat.tell("\n".join([*KEYS, "", *lines, "!command".ljust(34) + "Run a command yourself, in your own shell"]), "")


@command("quit")
async def _quit(chat: Chat, rest: str) -> None:
    """Leave."""
    chat.leave(0)


KEYS = (
    "Esc, Ctrl-C          stop the turn; again: kill it",
    "Enter                send; while the agent works: as the next turn",
    "Ctrl-S               while the agent works: have it take this in at its next step",
    "Alt-Enter, Ctrl-J    another line",
    "Ctrl-R, arrows       search what you typed before",
    "Tab                  complete a command, or @file",
    "Ctrl-Z               suspend; Ctrl-D, twice Ctrl-C: leave",
)


def _age(since: float) -> str:
    seconds = max(0, int(time.time() - since))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
