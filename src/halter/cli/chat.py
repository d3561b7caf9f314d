"""`halter chat`: its options."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import termios
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from halter.cli.ask import add_model, runnable_for
from halter.errors import ConfigurationError, UsageError

if TYPE_CHECKING:
    from halter.terminal.config import Config
    from halter.terminal.desk import Desk

HANGUP = 128 + signal.SIGHUP
NEEDED = "prompt_toolkit", "rich", "sqlalchemy"


def add_chat(command: argparse.ArgumentParser) -> None:
    """Adds the options of `halter chat`."""
    command.description = (
        "Talks with an agent in this terminal. Esc or Ctrl-C stops the turn, in whatever phase it is, and shows the "
        "receipt. Without an app it is an assistant with files, a shell and web pages, each with approval."
    )
    command.epilog = 'examples:  halter chat   |   halter chat app.py:agent   |   halter chat --model "scripted:Hello"'
    command.add_argument("app", nargs="?", metavar="TARGET", help="app.py:agent or package.module:agent")
    add_model(command)
    command.add_argument("--no-tools", action="store_true", help="the assistant has no tools")
    command.add_argument("--server", metavar="URL", help="an agent of a Halter server; HALTER_KEY is its key")
    command.add_argument("--agent", default="", metavar="NAME", help="which one of that server")
    which = command.add_mutually_exclusive_group()
    which.add_argument("--session", metavar="ID", help="the conversation of this id, new or not")
    which.add_argument("--continue", dest="is_continued", action="store_true", help="the last one of this directory")
    command.add_argument("--say", default="", metavar="TEXT", help="begin with this")
    command.set_defaults(command=_chat)


def _chat(options: argparse.Namespace) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("halter chat needs a terminal for input and output; in pipes and scripts use: halter ask")
    with _keys_kept():
        code = _talk(options)
    if code == HANGUP:
        from halter.terminal.stopping import discard_output

        # Nobody is there to read what the interpreter would still write.
        discard_output(sys.stdout.fileno())
        discard_output(sys.stderr.fileno())
    return code


@contextmanager
def _keys_kept() -> Generator[None]:
    """What is typed while the program loads reaches the prompt as typed; at the end the terminal is as it was."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    modes = termios.tcgetattr(terminal)
    modes[0] &= ~termios.ICRNL
    modes[3] &= ~(termios.ECHO | termios.ICANON)
    try:
        termios.tcsetattr(terminal, termios.TCSANOW, modes)
        yield
    finally:
        with suppress(termios.error, ValueError):  # the terminal is gone
            termios.tcsetattr(terminal, termios.TCSANOW, before)


def _talk(options: argparse.Namespace) -> int:
    try:
        from halter.terminal.chat import Chat
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in NEEDED:
            raise
        raise ConfigurationError(f"halter chat needs {error.name}: install halter[chat]") from None
    from halter.terminal import config

    found = config.load(
        {
            "model": options.model,
            "base_url": options.base_url,
            "app": options.app,
            "server": options.server,
            "tools": False if options.no_tools else None,
        }
    )

    async def talk() -> int:
        desk = await _desk(options, found)
        return await Chat(desk, found).run(options.say, is_continued=options.is_continued or bool(options.session))

    return asyncio.run(talk())


async def _desk(options: argparse.Namespace, config: Config) -> Desk:
    desk: Desk
    if config.server:
        from halter.terminal.remote import desk_at

        desk = await desk_at(config.server, options.agent)
    else:
        from halter.terminal.local import LocalDesk, sessions_for

        desk = LocalDesk(runnable_for(config), sessions_for(config), config)
    if options.session:
        desk.open(options.session)
    elif options.is_continued:
        found = await desk.sessions(1)
        if not found:
            raise UsageError("there is no conversation of this directory yet: leave --continue out")
        desk.open(found[0].id)
    return desk
