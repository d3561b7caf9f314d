"""`halter serve` and `halter keys`."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any

from halter.errors import ConfigurationError

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def add_serve(command: argparse.ArgumentParser) -> None:
    """Adds the options of `halter serve`. Each can be given as `HALTER_…` in the environment too."""
    command.description = (
        "Serves every agent, crew, team and flow of a module over HTTP: start, stream, resume, answer and stop runs. "
        "Each option can be given in the environment as well: HALTER_PORT=9000 for --port 9000, HALTER_OTEL=1 for "
        "--otel, HALTER_ALLOW_HOST=a.example,b.example for several names."
    )
    command.epilog = (
        "examples:  halter serve app.py   |   halter serve package.module:poet --keys keys.json --host 0.0.0.0"
    )
    command.add_argument("target", help="app.py, app.py:name, package.module or package.module:name")
    for name, default, metavar, text in _OPTIONS:
        command.add_argument(f"--{name}", default=_environment(name, default), metavar=metavar, help=text)
    command.add_argument("--allow-host", action="append", metavar="NAME", help="answer to this Host as well")
    for name, text in _SWITCHES:
        command.add_argument(f"--{name}", action="store_true", default=None, help=text)
    command.set_defaults(command=_serve)


_OPTIONS = (
    ("host", "127.0.0.1", "ADDRESS", "where to listen (default %(default)s: this machine alone)"),
    ("port", "8000", "N", "0 takes a free one (default %(default)s)"),
    ("sessions", "memory", "WHERE", "where conversations are kept: a path or a postgresql:// URL (default memory)"),
    ("retain", "15m", "TIME", "how long the events of an ended run can be read (default %(default)s)"),
    ("retain-bytes", "256M", "SIZE", "how much memory such events may take (default %(default)s)"),
    ("keep-runs", "10000", "N", "how many ended runs are kept in memory at most (default %(default)s)"),
    ("grace", "10s", "TIME", "how long live runs may go on after SIGTERM (default %(default)s)"),
    ("max-runs", "1000", "N", "how many runs may be live at once (default %(default)s)"),
    ("keys", None, "FILE", "the API keys; see `halter keys --help`"),
    ("audit", None, "FILE", "a file that records who did what, as JSON lines"),
    ("tenant-runs", "200", "N", "with keys: how many runs a tenant may have at once (default %(default)s)"),
    ("tenant-streams", "1000", "N", "with keys: how many event streams (default %(default)s)"),
    ("tenant-tokens", None, "N", "with keys: how many tokens a tenant may spend while the server lives"),
    ("tenant-cost", None, "USD", "with keys: how many US dollars"),
    ("log-format", "text", "FORM", "text or json (default %(default)s)"),
)


_SWITCHES = (
    ("no-keys", "let anyone on other machines do anything"),
    ("otel", "send traces by OTLP over HTTP; the default where OTEL_EXPORTER_OTLP_ENDPOINT is set"),
    ("otel-content", "put inputs, answers and results into the traces"),
    ("reload", "restart when a Python file changes; for development"),
)
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def _asks_for_traces() -> bool:
    """Whether OpenTelemetry's own variables ask for traces, and it is here to make them."""
    return any(map(os.environ.get, _ENDPOINTS)) and _has_exporter()


def _has_exporter() -> bool:
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


def _environment(name: str, default: str | None) -> str | None:
    return os.environ.get(_variable(name), default)


def _variable(name: str) -> str:
    return f"HALTER_{name.upper().replace('-', '_')}"


def _complete(options: argparse.Namespace) -> None:
    """Takes what the command line does not say from the environment. Raises `ConfigurationError`."""
    if options.allow_host is None:
        options.allow_host = [
            host for name in (_environment("allow-host", "") or "").split(",") if (host := name.strip())
        ]
    for name, _ in _SWITCHES:
        field = name.replace("-", "_")
        if getattr(options, field) is None:
            setattr(options, field, _is_on(name))


def _is_on(name: str) -> bool:
    given = (_environment(name, None) or "").strip().lower()
    if not given and name == "otel":
        return _asks_for_traces()
    if given in ("1", "true", "yes", "on"):
        return True
    if given in ("", "0", "false", "no", "off"):
        return False
    raise ConfigurationError(f"{_variable(name)} must be 1 or 0, not {given!r}")


def _serve(options: argparse.Namespace) -> int:
    _complete(options)
    if options.reload:
        return _reload()
    return _serve_once(options)


def _reload() -> int:
    """Runs the command without `--reload`, anew after each change of a Python file."""
    from watchfiles import PythonFilter, run_process

    arguments = [argument for argument in sys.argv[1:] if argument != "--reload"]
    os.environ[_variable("reload")] = "0"  # of the command that is run
    command = " ".join(_quoted(each) for each in (sys.executable, "-m", "halter", *arguments))
    run_process(".", target=command, target_type="command", watch_filter=PythonFilter())
    return 0


def _quoted(argument: str) -> str:
    import shlex

    return shlex.quote(argument)


def _serve_once(options: argparse.Namespace) -> int:
    from halter.server.app import create_app
    from halter.server.keys import KeyFile
    from halter.server.loading import load_runnables
    from halter.server.logs import set_up_logs
    from halter.server.serve import Address, serve
    from halter.server.units import bytes_of, seconds_of

    _check_reach(options)
    _check_keys(options)
    if options.log_format not in ("text", "json"):
        raise ConfigurationError(f"--log-format must be text or json, not {options.log_format!r}")
    address = Address(host=options.host, port=_whole("--port", options.port, most=65_535))
    grace = seconds_of("--grace", options.grace)
    runnables = load_runnables(options.target)
    _check_sessions(options.sessions)
    app = create_app(
        runnables,
        sessions=options.sessions,
        auth=KeyFile(options.keys) if options.keys else None,
        retain=seconds_of("--retain", options.retain),
        retain_bytes=bytes_of("--retain-bytes", options.retain_bytes),
        keep_runs=_whole("--keep-runs", options.keep_runs, most=10_000_000),
        grace=grace,
        max_runs=_whole("--max-runs", options.max_runs, most=1_000_000),
        limits=_limits(options) if options.keys else None,
        allowed_hosts=_hosts(options),
        audit=options.audit,
    )
    set_up_logs(options.log_format)
    with _traced(app, options):
        return serve(
            app, address, grace=grace, on_ready=lambda url: _greet(url, runnables, has_keys=bool(options.keys))
        )


def _traced(app: Any, options: argparse.Namespace) -> AbstractContextManager[object]:
    """Within this block runs are traced, if that was asked for, as parts of their callers' traces."""
    if not options.otel:
        return nullcontext()
    from halter.otel.exporting import exporting
    from halter.otel.incoming import IncomingTrace

    app.add_middleware(IncomingTrace)
    return exporting(content=options.otel_content)


def _check_reach(options: argparse.Namespace) -> None:
    if options.host not in LOOPBACK and not options.keys and not options.no_keys:
        raise ConfigurationError(
            f"--host {options.host} lets other machines in, and without keys any of them may start and stop runs: "
            f"give --keys FILE (`halter keys add` makes one), or --no-keys if that is meant"
        )


def _check_keys(options: argparse.Namespace) -> None:
    if options.keys and not os.path.exists(options.keys):
        raise ConfigurationError(
            f"--keys {options.keys}: there is no such file; `halter keys add NAME --keys {options.keys}` makes it"
        )


def _check_sessions(where: str) -> None:
    """Raises `ConfigurationError` for a place that can never be used. One that is away now may come back."""
    import asyncio

    from halter.errors import SessionsUnavailable
    from halter.server.readiness import NO_RUN, PATIENCE
    from halter.sessions.sessions import Sessions

    async def look() -> None:
        async with Sessions(where) as sessions:
            await asyncio.wait_for(sessions.run(NO_RUN), PATIENCE)

    try:
        asyncio.run(look())
    except SessionsUnavailable as error:
        if not error.retryable:
            raise ConfigurationError(f"--sessions: {error}") from error
    except TimeoutError:
        pass  # the server says so itself, and is ready when it answers


def _hosts(options: argparse.Namespace) -> tuple[str, ...]:
    """The names by which the server may be called; behind a proxy any, as the proxy checks them."""
    if options.host in LOOPBACK:
        return ("localhost", "127.0.0.1", "[::1]", *options.allow_host)
    return tuple(options.allow_host) or ("*",)


def _limits(options: argparse.Namespace) -> Any:
    from halter.server.limits import Limits

    tokens, cost = options.tenant_tokens, options.tenant_cost
    return Limits(
        runs=_whole("--tenant-runs", options.tenant_runs, most=1_000_000),
        streams=_whole("--tenant-streams", options.tenant_streams, most=1_000_000),
        tokens=None if tokens is None else _whole("--tenant-tokens", tokens, most=10**15),
        cost_usd=None if cost is None else _dollars("--tenant-cost", cost),
    )


def _dollars(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e12:
        raise ConfigurationError(f"{name} must be US dollars, 0 or more, not {text!r}")
    return value


def _whole(name: str, text: str, *, most: int) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > most:
        raise ConfigurationError(f"{name} must be a number from 0 to {most}, not {text!r}")
    return int(text)


def _greet(url: str, runnables: dict[str, Any], *, has_keys: bool) -> None:
    first = next(iter(runnables))
    key = " -H 'Authorization: Bearer …'" if has_keys else ""
    json = " -H 'Content-Type: application/json'"
    print(f"Serving {', '.join(runnables)} at {url}  (Ctrl-C stops)")
    print(f"  open    {url}/  and  {url}/docs")
    print(f"  start   curl {url}/v1/runs{key}{json} \\")
    print(f'            -d \'{{"agent": "{first}", "input": "Hello", "id": "first"}}\'')
    print(f"  stream  curl -N {url}/v1/runs/first/events{key}")
    print(f"  stop    curl -X POST '{url}/v1/runs/first/cancel?wait=5'{key}")
    print(f"  list    halter runs ls --url {url}", flush=True)


def add_keys(group: argparse.ArgumentParser) -> None:
    """Adds the commands of `halter keys`."""
    group.description = "Makes, lists and revokes the API keys of a server. Only their hashes are stored."
    commands = group.add_subparsers(title="commands", metavar="COMMAND", required=True)
    add = commands.add_parser("add", help="make a key, and print it once")
    add.add_argument("name", help="whose key it is: the name in the audit log")
    add.add_argument("--tenant", default="main", help="whose runs and sessions it sees (default %(default)s)")
    add.add_argument(
        "--scope",
        default="run,read,stop",
        metavar="SCOPES",
        help="what it may do: run, read, stop, admin, with commas in between (default %(default)s)",
    )
    add.set_defaults(command=_add_key)
    listed = commands.add_parser("ls", help="list the keys")
    listed.set_defaults(command=_list_keys)
    revoke = commands.add_parser("revoke", help="revoke a key; it stops working with the next request")
    revoke.add_argument("id", help="the key's id, or its first characters")
    revoke.set_defaults(command=_revoke_key)
    for command in (add, listed, revoke):
        default = os.environ.get("HALTER_KEYS", "halter-keys.json")
        command.add_argument("--keys", default=default, metavar="FILE", help="the file (default %(default)s)")


def _add_key(options: argparse.Namespace) -> int:
    from halter.server.keys import KeyFile

    scopes = tuple(scope.strip() for scope in options.scope.split(",") if scope.strip())
    print(KeyFile(options.keys).add(options.name, tenant=options.tenant, scopes=scopes))
    print(f"Stored in {options.keys}. The key itself is shown only now.", file=sys.stderr)
    return 0


def _list_keys(options: argparse.Namespace) -> int:
    import time

    from halter.server.keys import KeyFile

    for key in KeyFile(options.keys).list():
        made = time.strftime("%Y-%m-%d", time.localtime(key.created_at))
        print(f"{key.id}  {made}  {key.tenant:<12}  {key.actor:<16}  {','.join(sorted(key.scopes))}")
    return 0


def _revoke_key(options: argparse.Namespace) -> int:
    from halter.server.keys import KeyFile

    key = KeyFile(options.keys).revoke(options.id)
    print(f"Revoked {key.id}, the key of {key.actor}.")
    return 0
