"""`halter runs`: the runs of a server, listed, watched and stopped."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from halter import events
from halter.errors import ConfigurationError, ServerRefused
from halter.outcome import CancelMode, RunStatus
from halter.visible import visible

if TYPE_CHECKING:
    from halter.client import Client

LIVE = ("queued", "running", "waiting", "cancelling")


def add_runs(group: argparse.ArgumentParser) -> None:
    """Adds the commands of `halter runs`."""
    group.description = "Lists, shows, watches and stops the runs of a server that `halter serve` runs."
    commands = group.add_subparsers(title="commands", metavar="COMMAND", required=True)
    listed = commands.add_parser("ls", help="list runs, the newest first")
    listed.add_argument("--status", choices=[status.value for status in RunStatus], help="only with this status")
    _add_filters(listed, "list")
    listed.add_argument("--limit", type=int, default=50, metavar="N", help="how many (default %(default)s)")
    listed.set_defaults(command=_list)
    show = commands.add_parser("show", help="show one run, with its receipt")
    show.add_argument("id", help="the run's id")
    show.set_defaults(command=_show)
    watch = commands.add_parser("watch", help="print a run's text as it comes; Ctrl-C stops watching, not the run")
    watch.add_argument("id", help="the run's id")
    watch.set_defaults(command=_watch)
    stop = commands.add_parser("stop", help="stop runs, and print their receipts")
    stop.add_argument("ids", nargs="*", metavar="ID", help="ids of runs")
    stop.add_argument("--all", action="store_true", help="stop all live runs, or those that fit the filters")
    _add_filters(stop, "stop")
    stop.add_argument("--message", help="why, for the record")
    modes = [mode.value for mode in CancelMode]
    stop.add_argument("--mode", choices=modes, default="immediate", help="how hard (default %(default)s)")
    stop.set_defaults(command=_stop)
    for command in (listed, show, watch, stop):
        command.add_argument("--url", help="the server (default HALTER_URL, else http://127.0.0.1:8000)")
        command.add_argument("--key", help="an API key (default HALTER_KEY; that keeps it out of process lists)")
        command.add_argument("--json", action="store_true", help="print JSON lines")


def _add_filters(command: argparse.ArgumentParser, verb: str) -> None:
    command.add_argument("--tag", help=f"{verb} only runs with this tag")
    command.add_argument("--agent", help=f"{verb} only runs of this agent")
    command.add_argument("--session", help=f"{verb} only runs of this session")


def _client(options: argparse.Namespace) -> Client:
    from halter.client import Client

    return Client(options.url, key=options.key)


# --- commands -----------------------------------------------------------------------------------------------


def _list(options: argparse.Namespace) -> int:
    with _client(options) as client:
        found = client.runs(
            status=options.status, tag=options.tag, agent=options.agent, session=options.session, limit=options.limit
        ).result()["runs"]
    if options.json:
        _print_json(found)
    elif not found:
        print("No runs.")
    else:
        _print_table(found)
    return 0


def _show(options: argparse.Namespace) -> int:
    with _client(options) as client:
        run = client.get(options.id).result()
    if options.json:
        _print_json([run])
        return 0
    for line in _lines(run):
        print(line)
    return 0


def _watch(options: argparse.Namespace) -> int:
    with _client(options) as client:
        run = client.find(options.id)
        try:
            for event in run:
                if options.json:
                    print(events.encode(event).decode(), flush=True)
                elif isinstance(event, events.TextDelta) and event.run_id == run.id:
                    print(visible(event.text), end="", flush=True)
        except KeyboardInterrupt:
            return 130
    if not options.json:
        print(f"\n{visible(run.why())}")
    return 1 if run.is_failed else 0


def _stop(options: argparse.Namespace) -> int:
    filters = {"tag": options.tag, "agent": options.agent, "session": options.session}
    is_bulk = options.all or any(filters.values())
    if bool(options.ids) == is_bulk:
        raise ConfigurationError("give the ids of runs, or --all, --tag, --agent or --session")
    with _client(options) as client:
        if is_bulk:
            return _stop_many(client, options, filters)
        return max([_stop_one(client, id, options) for id in options.ids])


def _stop_one(client: Client, id: str, options: argparse.Namespace) -> int:
    try:
        run = client.cancel(id, options.message, mode=CancelMode(options.mode)).result()
    except ServerRefused as error:
        if error.status != 404:
            raise
        print(f"halter: there is no run {id!r}", file=sys.stderr)
        return 1
    _print_stopped(run, as_json=options.json)
    return 0


def _stop_many(client: Client, options: argparse.Namespace, filters: dict[str, Any]) -> int:
    """Asks for all at once, then prints each receipt as it lands."""
    everything = not any(filters.values())
    stopped = client.cancel_all(
        options.message, **filters, everything=everything, mode=CancelMode(options.mode), wait=0
    ).result()["runs"]
    for asked in stopped:
        run = asked
        while run["status"] in LIVE:
            run = client.cancel(asked["id"], mode=CancelMode(options.mode), wait=10).result()
        _print_stopped(run, as_json=options.json)
    if not options.json:
        print(f"{len(stopped)} stopped." if stopped else "No live run fits.")
    return 0


# --- printing -----------------------------------------------------------------------------------------------


def _print_json(found: Iterable[dict[str, Any]]) -> None:
    for each in found:
        print(json.dumps(each, ensure_ascii=False))


def _print_table(found: list[dict[str, Any]]) -> None:
    rows = [("ID", "AGENT", "STATUS", "AGE", "TOKENS", "TEXT"), *(_row(run) for run in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    width = shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 10_000
    for row in rows:
        cells = [cell.ljust(size) for cell, size in zip(row, widths, strict=False)]
        print("  ".join([*cells, row[5]])[: width - 1].rstrip())


def _row(run: dict[str, Any]) -> tuple[str, ...]:
    status = run["status"]
    if run["cancellation"]:
        status += f" ({run['cancellation']['reason']})"
    tokens = run["usage"]["input"] + run["usage"]["output"]
    return run["id"], run["agent"], status, _age(run["created_at"]), str(tokens), _plain(run["text"])[:200]


def _age(since: float) -> str:
    seconds = max(0, int(time.time() - since))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _lines(run: dict[str, Any]) -> Iterable[str]:
    yield f"{run['id']}  {run['agent']}  {run['status']}"
    if stop := run["cancellation"] or run["cancelling"]:
        said = f" ({_plain(stop['message'])})" if stop["message"] else ""
        yield f"  stopped: {stop['reason']} by {stop['actor'] or 'nobody named'}{said}"
    if run["error"]:
        yield f"  failed: {run['error']['type']}: {_plain(run['error']['message'])}"
    for question in run["inputs"]:
        yield f"  asks (request {question['request_id']}):"
        yield from (f"    {line}" for line in visible(question["prompt"]).split("\n"))
    if run["text"]:
        yield f"  text: {_plain(run['text'])}"
    if run["receipt"]:
        yield from _receipt(run["receipt"])


def _receipt(receipt: dict[str, Any]) -> Iterable[str]:
    state = "stopped" if receipt["confirmed"] else "NOT confirmed"
    yield f"  receipt: {state} after {receipt['stopped_after_ms']:.1f} ms, {len(receipt['resources'])} open at the stop"
    for line in receipt["resources"]:
        after = "" if line["ended_after_ms"] is None else f" after {line['ended_after_ms']:.1f} ms"
        yield f"    {line['kind']:<8} {_plain(line['label'])}  {line['ended']}{after}"


def _print_stopped(run: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        _print_json([run])
    elif not run["effective"] and run["status"] != "cancelled":
        print(f"{run['id']}  was over already: {run['status']}")
    else:
        print(f"{run['id']}  {run['status']}")
        for line in _receipt(run["receipt"]) if run["receipt"] else ():
            print(line)


def _plain(text: str) -> str:
    """One line without control characters: what models and tools say cannot steer the terminal."""
    return "".join(character if character.isprintable() else " " for character in text).strip()
