"""`halter config` and `halter doctor`."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from halter.cli.ask import add_model


def add_config(command: argparse.ArgumentParser) -> None:
    """Adds `halter config`."""
    command.description = "Shows every setting of halter ask and halter chat, its value, and where that comes from."
    command.set_defaults(command=_config)


def add_doctor(command: argparse.ArgumentParser) -> None:
    """Adds the options of `halter doctor`."""
    command.description = "Checks keys, servers, the database, ports and the terminal. Exit code 1: something is bad."
    add_model(command)
    command.add_argument("--server", metavar="URL", help="check this Halter server")
    command.add_argument("--online", action="store_true", help="ask the model for a few words, and see how they come")
    command.set_defaults(command=_doctor)


def _config(options: argparse.Namespace) -> int:
    from halter.terminal.config import SETTINGS, load, project_file, user_file
    from halter.terminal.safe import safe_line

    found = load()
    print(f"your file: {user_file()}\nthe project's file: {project_file() or 'none'}\n")
    for setting in SETTINGS:
        value = found.values[setting.name]
        print(f"{setting.name:<13} {_shown(value.value):<28} {safe_line(value.source):<28} {setting.about}")
    for line in found.ignored:
        print(f"ignored: {safe_line(line)}")
    return 0


def _shown(value: Any) -> str:
    from halter.terminal.safe import safe_line

    return safe_line(", ".join(value) if isinstance(value, tuple) else str(value)) or "-"  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]


def _doctor(options: argparse.Namespace) -> int:
    from halter.terminal import doctor
    from halter.terminal.config import load

    found = load({"model": options.model, "base_url": options.base_url, "server": options.server})
    return 0 if asyncio.run(doctor.report(found, is_online=options.online)) else 1
