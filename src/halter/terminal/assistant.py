"""The agent that answers when no app is named: files, a shell and web pages, each with approval."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from halter.agent import Agent
from halter.core.approvals import Policy
from halter.core.ports import Model
from halter.terminal.config import Config, data_directory
from halter.terminal.models import model_for

NAME = "assistant"
INSTRUCTIONS = """\
You are a helpful assistant in a terminal, and work in the directory {directory}. Answer briefly, in Markdown. Read
files and run commands where that answers better than guessing. What changes something asks the person first: do not ask
again in words. A call that was not allowed is not to be tried in another way."""


def assistant(config: Config, model: Model | None = None) -> Agent[str]:
    """The assistant, as the settings say. Raises `ConfigurationError`, as where no model is set up."""
    instructions = INSTRUCTIONS.format(directory=Path.cwd())
    if config.instructions:
        instructions += f"\n\n{config.instructions}"
    return Agent(
        model or model_for(config),
        name=NAME,
        instructions=instructions,
        tools=_tools(frozenset(config.approve)) if config.tools else (),
        approvals=Policy(network="ask", remember=data_directory() / "approvals.json"),
    )


def _tools(unasked: Collection[str]) -> tuple[Any, ...]:
    """Reading the files of this directory is free; all else asks, unless the user's own settings name it."""
    # Not at the top: a question without tools needs none of their modules.
    from halter.tools.fetching import http_get
    from halter.tools.filesystem import edit_file, files, write_file
    from halter.tools.jobs import job_tools
    from halter.tools.process import shell

    def asks(name: str) -> Any:
        return "never" if name in unasked or "all" in unasked else None  # as the policy has it

    here = os.getcwd()
    return (
        *files(here),
        write_file(here, approval=asks("write_file")),
        edit_file(here, approval=asks("edit_file")),
        shell(approval=asks("shell"), background=True),
        *job_tools(),
        http_get(approval=asks("http_get")),
    )
