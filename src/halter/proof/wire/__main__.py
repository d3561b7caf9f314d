"""`python -m halter.proof.wire`: run the recording provider by hand."""

import argparse
import asyncio
import sys
from pathlib import Path

from halter.proof.wire.certificates import CertificateError
from halter.proof.wire.modes import MODES
from halter.proof.wire.server import Options, serve

try:
    import uvloop
except ImportError:
    uvloop = None

DESCRIPTION = """\
A fake LLM provider that speaks OpenAI chat completions and records what happens to each request.
The URL chooses what it does: base_url = http://127.0.0.1:PORT/<mode>/<tag>/v1, the mode URL-encoded."""

EPILOG = """\
a stream:      curl -N 'http://127.0.0.1:PORT/steady(10,100)/a/v1/chat/completions' -d '{"stream": true}'
the record:    curl 'http://127.0.0.1:PORT/control/requests?tag=a'
wait for it:   curl 'http://127.0.0.1:PORT/control/wait?tag=a&state=closed&timeout=30'
"""


def _modes() -> str:
    width = max(len(kind.signature) for kind in MODES.values())
    return "\n".join(f"  {kind.signature:{width}}  {kind.summary}" for kind in MODES.values())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m halter.proof.wire",
        description=DESCRIPTION,
        epilog=f"modes:\n{_modes()}\n\n{EPILOG}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one; the line on stdout says which")
    parser.add_argument("--tls", action="store_true", help="listen on a second port with a certificate of our own")
    parser.add_argument("--recordings", type=Path, metavar="DIR", help="where replay(file) finds its .sse files")
    parser.add_argument("--parent-stdin", action="store_true", help="end when stdin ends, as it does with the parent")
    return parser


def _options() -> Options:
    given = _parser().parse_args()
    if given.recordings is not None and not given.recordings.is_dir():
        sys.exit(f"--recordings: {given.recordings} is not a directory")
    return Options(**vars(given))


def main() -> None:
    loop_factory = None if uvloop is None else uvloop.new_event_loop
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(serve(_options()))
    except (CertificateError, OSError) as error:
        sys.exit(f"the recording provider could not start: {error}")


if __name__ == "__main__":
    main()
