"""The commands and their options. A mistake is one line on stderr and exit code 2."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import halter
from halter.cli.ask import add_ask
from halter.cli.chat import add_chat
from halter.cli.doctor import add_config, add_doctor
from halter.cli.runs import add_runs
from halter.cli.serve import add_keys, add_serve
from halter.cli.sessions import add_sessions
from halter.errors import HalterError, UsageError


def run_command(arguments: Sequence[str]) -> int:
    """Parses and runs one command. 0: it did what it should; 1: it failed; 2: it was asked wrongly; 130: stopped."""
    options = _parser().parse_args(arguments)
    try:
        return options.command(options)
    except (HalterError, ExceptionGroup) as error:
        return _complain(error)
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        return 130


def _complain(error: Exception) -> int:
    """One line: of several errors at once, the first says what the others do. Anything that is not ours goes on."""
    first: BaseException = error
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
    if not isinstance(first, HalterError):
        raise error
    print(f"halter: {first}", file=sys.stderr)
    return 2 if isinstance(first, UsageError) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="halter",
        description="Run, stream and really stop LLM agents.",
        epilog="`halter COMMAND --help` says more about a command.",
    )
    parser.add_argument("--version", action="version", version=f"halter {halter.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    add_ask(commands.add_parser("ask", help="ask one question, and print the answer"))
    add_chat(commands.add_parser("chat", help="talk with an agent in this terminal; Esc stops"))
    add_config(commands.add_parser("config", help="show the settings of ask and chat, and where each comes from"))
    add_doctor(commands.add_parser("doctor", help="check keys, servers, the database and the terminal"))
    _add_demo(commands.add_parser("demo", help="stop four streams, and see the provider's record of it"))
    add_sessions(commands.add_parser("sessions", help="look after a database in which sessions are kept"))
    add_serve(commands.add_parser("serve", help="serve the agents of a module over HTTP"))
    add_keys(commands.add_parser("keys", help="make, list and revoke a server's API keys"))
    add_runs(commands.add_parser("runs", help="list, show, watch and stop the runs of a server"))
    return parser


def _add_demo(demo: argparse.ArgumentParser) -> None:
    demo.description = (
        "Streams two answers side by side, stops one half-way from another thread, then stops a stalled provider, "
        "one that never answers, and a blocking loop by a real SIGINT. Without options it needs no key and no "
        "network: a recording provider runs beside it, and every figure is from that provider's own record."
    )
    demo.epilog = (
        "examples:  halter demo   |   OPENAI_API_KEY=... halter demo --model openai:gpt-5.2   |   "
        "halter demo --model openai:llama3 --base-url http://localhost:11434/v1"
    )
    demo.add_argument("--model", help='a real model instead, such as "openai:gpt-5.2" (needs OPENAI_API_KEY)')
    demo.add_argument("--base-url", help="a server of OpenAI's format instead; the model's name goes into --model")
    demo.add_argument(
        "--pace", type=_milliseconds, default=20.0, metavar="MS", help="milliseconds per word (default 20)"
    )
    demo.set_defaults(command=_demo)


def _milliseconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 5 <= value <= 40:
        raise argparse.ArgumentTypeError(f"{text} is not between 5 and 40 milliseconds")
    return value


def _demo(options: argparse.Namespace) -> int:
    from halter.cli.demo import demo  # the only command that starts processes

    return demo(model=options.model, base_url=options.base_url, pace_ms=options.pace)
