"""`halter ask`: its options."""

from __future__ import annotations

import argparse
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from halter.errors import ConfigurationError, UsageError

if TYPE_CHECKING:
    from halter.client.run import RemoteRun
    from halter.core.run import Run
    from halter.terminal.ask import Wanted
    from halter.terminal.config import Config


def add_ask(command: argparse.ArgumentParser) -> None:
    """Adds the options of `halter ask`."""
    command.description = (
        "Asks one question and prints the answer. What is piped in is put behind the question. Ctrl-C stops the run "
        "down to the provider's socket. Exit codes: 0, 1 failed, 2 asked wrongly, 130 stopped by Ctrl-C, 143 by TERM."
    )
    command.epilog = (
        'examples:  halter ask "What is a halter?"   |   git diff | halter ask "Review this"   |   '
        "halter ask --app app.py:agent --json hello"
    )
    command.add_argument("question", nargs="*", help="the question; what is piped in, if it is left out")
    command.add_argument("--app", metavar="TARGET", help="app.py:agent or package.module:agent, not the assistant")
    add_model(command)
    command.add_argument("--no-tools", action="store_true", help="the assistant has no tools")
    command.add_argument("--json", action="store_true", help="print each event as a line of JSON")
    command.add_argument("--output-schema", metavar="SCHEMA", help="a JSON schema of the answer, or @file")
    command.add_argument("--approve", action="store_true", help="let every tool run unasked")
    command.add_argument("--approve-tool", action="append", default=[], metavar="NAME", help="let this one run")
    command.add_argument("--timeout", type=float, metavar="SECONDS", help="stop it after this time")
    command.set_defaults(command=_ask)


def add_model(command: argparse.ArgumentParser) -> None:
    """The options that say which model answers."""
    command.add_argument("--model", help="as in openai:gpt-5.2, ollama:llama3 or scripted:Hello")
    command.add_argument("--base-url", metavar="URL", help="a server of OpenAI's format; --model is a name it knows")


def _ask(options: argparse.Namespace) -> int:
    from halter.terminal import ask, config
    from halter.terminal.stopping import discard_output

    found = config.load(
        {
            "model": options.model,
            "base_url": options.base_url,
            "app": options.app,
            "tools": False if options.no_tools else None,
        }
    )
    wanted = ask.Wanted(
        as_json=options.json,
        is_structured=options.output_schema is not None,
        approve=("all",) if options.approve else (*found.approve, *options.approve_tool),
    )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        return ask.answer(_run(options, found, wanted), wanted)
    except BrokenPipeError:
        discard_output(sys.stdout.fileno())
        raise


def _run(options: argparse.Namespace, config: Config, wanted: Wanted) -> Run[Any] | RemoteRun[Any]:
    question = _question(options.question)
    runnable = runnable_for(config)
    if options.output_schema is not None:
        runnable = _held_to(runnable, options.output_schema)
    return runnable.run(question, timeout=options.timeout)


def runnable_for(config: Config) -> Any:
    """What answers: the app that the settings name, else the assistant. Raises `ConfigurationError`."""
    if not config.app:
        from halter.terminal.assistant import assistant

        return assistant(config)
    from halter.server.loading import load_runnables

    found = load_runnables(config.app)
    if len(found) > 1:
        raise ConfigurationError(f"{config.app} has {', '.join(found)}: say which, as in {config.app}:NAME")
    return next(iter(found.values()))


def _question(words: list[str]) -> str:
    asked = " ".join(words)
    piped = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read()  # pyright: ignore[reportUnnecessaryComparison]
    question = "\n\n".join(part for part in (asked, piped) if part.strip())
    if not question:
        raise UsageError('there is no question: halter ask "…", or pipe one in')
    return question


def _held_to(runnable: Any, given: str) -> Any:
    from halter.agent import Agent
    from halter.request import OutputSchema

    text = given
    if given.startswith("@"):
        try:
            text = Path(given[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"--output-schema: {error}") from error
    try:
        schema: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"--output-schema is no JSON: {error}; give a file as @schema.json") from error
    if not isinstance(schema, dict):
        raise ConfigurationError("--output-schema must be a JSON object, a schema")
    if not isinstance(runnable, Agent):
        raise ConfigurationError(f"--output-schema needs an agent, and {runnable.name!r} is a {runnable.kind}")
    return runnable.for_request(output=OutputSchema(name="answer", schema=cast("dict[str, Any]", schema)))
