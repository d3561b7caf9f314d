"""The modes: what the provider does to a request, chosen by the URL as text such as `steady(40,10)`.

The path says it all, so the mode is known before the body is read, and any client can choose it by its
base URL.
"""

import re
from typing import Literal
from urllib.parse import unquote

import msgspec

Kind = Literal["count", "number", "text"]
Value = int | float | str


class ModeError(Exception):
    """The URL does not name a mode. The message says what was wrong and which modes there are."""


class Parameter(msgspec.Struct, frozen=True):
    """One argument of a mode; `default=None`: it must be given, unless `optional`."""

    name: str
    kind: Kind
    default: Value | None = None
    optional: bool = False

    def read(self, text: str) -> Value:
        """The value in `text`. Raises `ValueError`."""
        if self.kind == "text":
            return text
        value = int(text) if self.kind == "count" else float(text)
        if not 0 <= value < float("inf"):
            raise ValueError(f"{self.name} must be finite and not negative")
        return value


class ModeKind(msgspec.Struct, frozen=True):
    """A mode as it is documented: its name, its parameters, what it does."""

    name: str
    parameters: tuple[Parameter, ...]
    summary: str

    @property
    def signature(self) -> str:
        shown = [p.name if p.default is None else f"{p.name}={p.default}" for p in self.parameters]
        return f"{self.name}({', '.join(shown)})" if shown else self.name


class Mode(msgspec.Struct, frozen=True):
    """A mode with its arguments, as one URL chose it. `text` is how it was written."""

    name: str
    text: str
    values: dict[str, Value]

    def count(self, name: str) -> int:
        return int(self.values[name])

    def number(self, name: str) -> float:
        return float(self.values[name])

    def string(self, name: str) -> str:
        return str(self.values[name])


class Target(msgspec.Struct, frozen=True):
    """A request's path, taken apart: `/<mode>/<tag><endpoint>`."""

    mode: str
    tag: str
    endpoint: str


def _n(default: int) -> Parameter:
    return Parameter("n", "count", default)


def _k(default: int) -> Parameter:
    return Parameter("k", "count", default)


def _ms(default: float) -> Parameter:
    return Parameter("ms", "number", default)


_KINDS = (
    ModeKind("steady", (_n(20), _ms(5)), "n tokens, one each ms milliseconds; ms=0: as fast as they are read"),
    ModeKind("stall", (_k(1),), "headers and k tokens, then silence for ever"),
    ModeKind("no-headers", (), "reads the request and never answers"),
    ModeKind("no-read", (), "stops reading the socket after the head of the request"),
    ModeKind(
        "rate-limit",
        (_n(1), Parameter("retry_after", "number", 1)),
        "the first n requests get 429 and Retry-After; later ones steady(20,1)",
    ),
    ModeKind(
        "status",
        (Parameter("code", "count"), Parameter("n", "count", optional=True)),
        "an error with this status (the first n requests; all without n); later ones steady(20,1)",
    ),
    ModeKind("error-frame", (_k(3),), "k tokens, then an error frame inside the 200 stream, then close"),
    ModeKind("cut", (_k(3),), "k tokens, then FIN in the middle of a frame"),
    ModeKind("reset", (_k(3),), "k tokens, then RST"),
    ModeKind("eof", (_k(3),), "k tokens, then a clean end of the body without any terminal frame"),
    ModeKind("no-done", (_k(3),), "k tokens and the finish reason, but no [DONE]"),
    ModeKind("lingering", (_k(3),), "a whole answer with [DONE], but the body never ends"),
    ModeKind(
        "tool-call",
        (Parameter("name", "text"), Parameter("arguments", "text", "{}")),
        "calls a tool, its arguments in fragments; after the tool's result steady(20,1)",
    ),
    ModeKind(
        "cut-call",
        (Parameter("name", "text"), Parameter("arguments", "text", "")),
        "calls a tool, and is cut off by its length after these arguments; after the tool's result steady(20,1)",
    ),
    ModeKind("crlf", (_n(20),), "n tokens in frames that end with CRLF"),
    ModeKind("one-byte", (_n(5),), "n tokens, each byte of the body its own HTTP chunk and TCP write"),
    ModeKind(
        "replay",
        (Parameter("file", "text"), Parameter("pace", "number", 0)),
        "a recorded .sse file of --recordings, byte for byte, pace ms between frames",
    ),
    ModeKind("text", (_ms(60),), "an English answer of about 400 words on rivers, one word each ms"),
    ModeKind("json", (_n(20), _ms(0)), "waits ms, then answers without streaming, with n tokens"),
    ModeKind("echo", (_n(20), _ms(1)), "n tokens that repeat the last user message: '<text>#0 ', '<text>#1 ' …"),
)
MODES: dict[str, ModeKind] = {kind.name: kind for kind in _KINDS}

_TARGET = re.compile(r"/(?P<mode>[^/(]+(?:\(.*\))?)/(?P<tag>[A-Za-z0-9_.-]+)(?P<endpoint>/.*)", re.DOTALL)
_MODE = re.compile(r"(?P<name>[a-z-]+)(?:\((?P<arguments>.*)\))?", re.DOTALL)


def split_target(target: str) -> Target:
    """Take a request target apart. Raises `ModeError`."""
    found = _TARGET.fullmatch(unquote(target.partition("?")[0]))
    if found is None:
        raise _unknown("the path must be /<mode>/<tag>/v1/…, the tag of A-Z a-z 0-9 _ . -")
    return Target(found["mode"], found["tag"], found["endpoint"])


def parse_mode(text: str) -> Mode:
    """Read `name(argument, …)`; missing arguments take their defaults. Raises `ModeError`."""
    found = _MODE.fullmatch(text.strip())
    if found is None or found["name"] not in MODES:
        raise _unknown(f"unknown mode {text!r}")
    kind = MODES[found["name"]]
    given = _split(found["arguments"], len(kind.parameters))
    if len(given) > len(kind.parameters):
        raise _unknown(f"{kind.signature} was given {len(given)} arguments in {text!r}")
    return Mode(kind.name, text, _bind(kind, given, text))


def _split(arguments: str | None, most: int) -> list[str]:
    # The last parameter takes the rest, commas included: a tool's arguments are JSON.
    if arguments is None or not arguments.strip():
        return []
    return [part.strip() for part in arguments.split(",", max(most - 1, 0))]


def _bind(kind: ModeKind, given: list[str], text: str) -> dict[str, Value]:
    values = {p.name: p.default for p in kind.parameters if p.default is not None}
    for parameter, argument in zip(kind.parameters, given, strict=False):
        try:
            values[parameter.name] = parameter.read(argument)
        except ValueError as error:
            raise _unknown(f"bad {parameter.name} in {text!r}: {error}") from error
    missing = [p.name for p in kind.parameters if p.name not in values and not p.optional]
    if missing:
        raise _unknown(f"{text!r} lacks {', '.join(missing)}")
    return values


def _unknown(what: str) -> ModeError:
    return ModeError(f"{what}. Modes: {'; '.join(kind.signature for kind in _KINDS)}")
