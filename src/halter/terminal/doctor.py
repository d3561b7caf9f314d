"""`halter doctor`: what is set up, what answers, and whether the terminal can do what `halter chat` needs."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from halter import events
from halter.core.run import Run
from halter.errors import HalterError
from halter.models.prices import context_window
from halter.terminal.config import Config
from halter.terminal.models import BY_KEY, model_for, name_of_model
from halter.terminal.safe import safe_line

Verdict: TypeAlias = Literal["ok", "note", "bad"]
CONNECT = 5.0  # seconds
LUMP = 0.25  # of the time in which tokens were sent: where they arrive within less of it, something held them back
FEW = 5  # tokens, from which on that can be judged
MARKS: dict[Verdict, str] = {"ok": "ok  ", "note": "note", "bad": "BAD "}


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    verdict: Verdict
    text: str


Check: TypeAlias = Callable[[Config], Awaitable[list[Finding]]]


async def report(config: Config, *, is_online: bool = False) -> bool:
    """Prints what was found; False if something is bad.

    Args:
        config: the settings in force.
        is_online: also asks the model for a few words, which costs some tokens.
    """
    checks: list[Check] = [_installed, _settings, _keys, _reachable, _sessions, _ports, _terminal]
    if is_online:
        checks.append(_buffering)
    is_well = True
    for check in checks:
        for finding in await check(config):
            print(f"{MARKS[finding.verdict]}  {safe_line(finding.text)}", flush=True)
            is_well = is_well and finding.verdict != "bad"
    return is_well


async def _installed(config: Config) -> list[Finding]:
    found = [Finding("ok", f"Python {sys.version.split()[0]}")]
    for extra, module in (("chat", "prompt_toolkit"), ("server", "fastapi"), ("sql", "sqlalchemy"), ("mcp", "mcp")):
        if find_spec(module) is None:
            found.append(Finding("note", f"halter[{extra}] is not installed ({module} is missing)"))
    return found


async def _settings(config: Config) -> list[Finding]:
    return [Finding("note", f"ignored: {line}") for line in config.ignored]


async def _keys(config: Config) -> list[Finding]:
    names = [key for key, _ in BY_KEY if os.environ.get(key, "").strip()]
    found = [Finding("ok", f"{name} is set") for name in names] or [Finding("note", "no provider's key is set")]
    try:
        name = name_of_model(config)
        model = model_for(config)
    except HalterError as error:
        said = f"model: {error}" if config.model else "no model is chosen: give --model, or set a provider's key"
        return [*found, Finding("bad" if config.model else "note", said)]
    window = context_window(model.name)
    about = f", with a window of {window:,} tokens" if window else ", whose window is not known"
    return [*found, Finding("ok", f"model: {name}{about}")]


# --- what answers -------------------------------------------------------------------------------------------


async def _reachable(config: Config) -> list[Finding]:
    proxies = [name for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY") if _variable(name)]
    found = [Finding("note", f"{name} is set: requests go through {_host(_variable(name))}") for name in proxies]
    if config.server:
        return [*found, await _server(config.server)]
    try:
        place = getattr(model_for(config), "_base", None)
    except HalterError:
        return found
    if place is None or proxies:
        return found
    return [*found, await _connects(place.hostname or "", place.port or (443 if place.scheme == "https" else 80))]


def _variable(name: str) -> str:
    return os.environ.get(name) or os.environ.get(name.lower()) or ""


def _host(url: str) -> str:
    """Without the password that may be in it."""
    return urlsplit(url if "://" in url else f"http://{url}").hostname or "it"


async def _connects(host: str, port: int) -> Finding:
    began = time.monotonic()
    try:
        async with asyncio.timeout(CONNECT):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError) as error:
        return Finding("bad", f"{host}:{port} cannot be reached: {error or 'no answer'}")
    writer.close()
    return Finding("ok", f"{host}:{port} answers in {(time.monotonic() - began) * 1e3:.0f} ms")


async def _server(url: str) -> Finding:
    from halter.client import Client

    try:
        async with Client(url) as client, asyncio.timeout(CONNECT):
            agents = (await client.agents())["agents"]
    except (HalterError, TimeoutError) as error:
        return Finding("bad", f"the server {url}: {error or 'no answer'}")
    return Finding("ok", f"the server {url} has {', '.join(each['name'] for each in agents) or 'no agents'}")


async def _buffering(config: Config) -> list[Finding]:
    """Whether tokens arrive as they are sent, or in lumps: then a proxy on the way gathers them."""
    from halter.agent import Agent

    try:
        run: Run[Any] = Agent(model_for(config)).run("Count from one to forty in words.", timeout=60)
        arrived = [time.monotonic() async for event in run.events() if isinstance(event, events.TextDelta)]
        result = run.outcome
        assert result is not None
    except HalterError as error:
        return [Finding("bad", f"the model did not answer: {error}")]
    if not result.is_completed:
        return [Finding("bad", f"the model did not answer: {result.why()}")]
    return [judged(arrived)]


def judged(arrived: list[float]) -> Finding:
    """Whether what arrived at these instants was streamed."""
    if len(arrived) < FEW:
        return Finding("bad", f"the answer came in {len(arrived)} pieces: something on the way gathers it")
    took = arrived[-1] - arrived[0]
    gaps = sorted((after - before for before, after in pairwise(arrived)), reverse=True)
    if took > 0.5 and gaps[0] > (1 - LUMP) * took:
        return Finding("bad", "the answer came in lumps: a proxy on the way gathers it (docs/proxies.md)")
    return Finding("ok", f"tokens arrive as they are sent: {len(arrived)} pieces in {took:.1f} s")


# --- this machine -------------------------------------------------------------------------------------------


async def _sessions(config: Config) -> list[Finding]:
    from halter.terminal.local import sessions_for

    try:
        async with sessions_for(config) as sessions:
            await sessions.list(limit=1)
            damaged = await sessions.check()
    except HalterError as error:
        return [Finding("bad", f"conversations: {error}")]
    except OSError as error:
        return [Finding("bad", f"conversations cannot be kept: {error}")]
    if damaged:
        return [Finding("bad", f"{len(damaged)} stored rows cannot be read: halter sessions check")]
    return [Finding("ok", f"conversations are kept in {config.sessions or 'your data directory'}")]


async def _ports(config: Config) -> list[Finding]:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        is_taken = probe.connect_ex(("127.0.0.1", 8000)) == 0
    return [Finding("note", "port 8000 is taken: halter serve needs --port")] if is_taken else []


async def _terminal(config: Config) -> list[Finding]:
    return list(_terminal_findings())


def _terminal_findings() -> Iterator[Finding]:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        yield Finding("note", "this is no terminal: halter ask works here, halter chat does not")
        return
    size = os.get_terminal_size()
    yield Finding(
        "ok" if size.columns >= 40 else "note", f"the terminal has {size.columns} columns, {size.lines} lines"
    )
    if (sys.stdout.encoding or "").lower().replace("-", "") != "utf8":
        yield Finding("note", f"the locale's encoding is {sys.stdout.encoding}: some signs are shown as ?")
    if os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        yield Finding("bad", "TERM says that the terminal cannot move its cursor: set it, as in TERM=xterm-256color")
