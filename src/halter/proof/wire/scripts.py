"""Each mode as a script: a few lines that say what the provider does, and when.

Pure: no clock, no socket. The table at the end has one entry per mode that answers (`no-read` never gets
here).
"""

import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from halter.proof.wire.formats import Ask
from halter.proof.wire.modes import Mode, ModeError
from halter.proof.wire.rivers import RIVERS
from halter.proof.wire.steps import (
    CallTool,
    Cut,
    End,
    Fail,
    Hush,
    Open,
    Refuse,
    Replay,
    Reset,
    Say,
    Script,
    Steps,
)

FLOOD_SLICE = 64
FRAGMENT_CHARACTERS = 4
FRAGMENT_PAUSE = 0.002
PACE_OF_SHORT_ANSWERS = 1.0
_FRAME_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")


class Situation(msgspec.Struct, frozen=True):
    """What a script may look at; `earlier` is how many requests with this mode and tag came before."""

    mode: Mode
    ask: Ask
    earlier: int
    recordings: Path | None


def script_for(situation: Situation) -> Script:
    """The script of a situation. Raises `ModeError` for a recording that cannot be replayed."""
    if situation.ask.follow_up:
        return FOLLOW_UPS[situation.ask.follow_up](situation)
    return SCRIPTS[situation.mode.name](situation)


def _answer(n: int, ms: float, begin: int = 0) -> Steps:
    yield Open()
    yield from _tokens(n, ms, begin)
    yield End(max(n - begin, 0) * ms / 1000)


def _tokens(n: int, ms: float, begin: int) -> Steps:
    size = 1 if ms else FLOOD_SLICE
    for first in range(begin, n, size):
        yield Say((first - begin) * ms / 1000, first, min(size, n - first))


def _few_then(k: int, *last: End | Cut | Reset | Fail | Hush) -> Steps:
    yield Open()
    for index in range(k):
        yield Say(index * PACE_OF_SHORT_ANSWERS / 1000, index)
    yield from last


def _steady(s: Situation) -> Script:
    return Script(_answer(s.mode.count("n"), s.mode.number("ms")))


def _no_headers(_: Situation) -> Script:
    return Script(iter((Hush(),)))


def _short_answer() -> Script:
    return Script(_answer(20, PACE_OF_SHORT_ANSWERS))


def _ending_with(*last: End | Cut | Reset | Fail | Hush) -> Callable[[Situation], Script]:
    def script(s: Situation) -> Script:
        return Script(_few_then(s.mode.count("k"), *last))

    return script


def _rate_limit(s: Situation) -> Script:
    if s.earlier >= s.mode.count("n"):
        return _short_answer()
    return Script(iter((Refuse(429, s.mode.number("retry_after")),)))


def _status(s: Situation) -> Script:
    code = s.mode.count("code")
    if not 400 <= code <= 599:
        raise ModeError(f"status({code}): only 400 to 599 are errors")
    if "n" in s.mode.values and s.earlier >= s.mode.count("n"):
        return _short_answer()
    return Script(iter((Refuse(code),)))


def _tool_call(s: Situation) -> Script:
    # A client that has run the tool asks again, with its result: calling once more would never end.
    if s.ask.has_tool_result:
        return _short_answer()
    return Script(_calling(s.mode.string("name"), s.mode.string("arguments")))


def _cut_call(s: Situation) -> Script:
    if s.ask.has_tool_result:
        return _short_answer()
    return Script(_calling(s.mode.string("name"), s.mode.string("arguments"), is_cut=True))


def _calling(name: str, arguments: str, *, is_cut: bool = False) -> Steps:
    yield Open()
    yield CallTool(0.0, name, "", opens=True)
    pieces = [arguments[i : i + FRAGMENT_CHARACTERS] for i in range(0, len(arguments), FRAGMENT_CHARACTERS)]
    for index, piece in enumerate(pieces, 1):
        yield CallTool(index * FRAGMENT_PAUSE, name, piece, opens=False)
    yield End(len(pieces) * FRAGMENT_PAUSE, is_cut=is_cut)


def _crlf(s: Situation) -> Script:
    return Script(_answer(s.mode.count("n"), PACE_OF_SHORT_ANSWERS), style="crlf")


def _one_byte(s: Situation) -> Script:
    return Script(_answer(s.mode.count("n"), PACE_OF_SHORT_ANSWERS), style="one-byte")


def _replay(s: Situation) -> Script:
    data = _recording(s.recordings, s.mode.string("file"))
    return Script(_replaying(data, s.mode.number("pace")), delivery="stream")


def _replaying(data: bytes, pace: float) -> Steps:
    yield Open(bare=True)
    frames = split_frames(data)
    for index, frame in enumerate(frames):
        yield Replay(index * pace / 1000, frame)
    yield End(len(frames) * pace / 1000, finish=False, done=False)


def split_frames(data: bytes) -> list[bytes]:
    """Cut recorded bytes behind each blank line; joined again they are the same bytes."""
    ends = [match.end() for match in _FRAME_END.finditer(data)]
    pieces = [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True)]
    return [piece for piece in pieces if piece]


def _recording(directory: Path | None, name: str) -> bytes:
    if directory is None:
        raise ModeError("replay needs the provider to be started with --recordings DIR")
    path = (directory / name).resolve()
    if not path.is_relative_to(directory.resolve()):
        raise ModeError(f"{name!r} is outside the recordings directory")
    if not path.is_file():
        raise ModeError(f"no recording {name!r} in the recordings directory")
    return path.read_bytes()


def _text(s: Situation) -> Script:
    words = [f"{word} " for word in RIVERS.split(" ")]
    return Script(_answer(len(words), s.mode.number("ms")), words.__getitem__)


def _json(s: Situation) -> Script:
    n, at = s.mode.count("n"), s.mode.number("ms") / 1000
    steps: Steps = iter((Open(), Say(at, 0, n), End(at)))
    return Script(steps, delivery="whole")


def _echo(s: Situation) -> Script:
    said = s.ask.prompt
    return Script(_answer(s.mode.count("n"), s.mode.number("ms")), lambda index: f"{said}#{index} ")


def _rest(s: Situation) -> Script:
    # What broke an answer is over: asked for again, it comes to its end.
    paced = s.mode.name == "steady"
    n, ms = (s.mode.count("n"), s.mode.number("ms")) if paced else (20, PACE_OF_SHORT_ANSWERS)
    return Script(_answer(n, ms, s.ask.first))


def _ended(_: Situation) -> Script:
    return Script(iter((Open(), End(0.0))), delivery="whole")


FOLLOW_UPS: dict[str, Callable[[Situation], Script]] = {"rest": _rest, "cancel": _ended}
SCRIPTS: dict[str, Callable[[Situation], Script]] = {
    "steady": _steady,
    "stall": _ending_with(Hush()),
    "no-headers": _no_headers,
    "rate-limit": _rate_limit,
    "status": _status,
    "error-frame": _ending_with(Fail(0.0), End(0.0, finish=False, done=False, close=True)),
    "cut": _ending_with(Cut(0.0)),
    "reset": _ending_with(Reset(0.0)),
    "eof": _ending_with(End(0.0, finish=False, done=False)),
    "no-done": _ending_with(End(0.0, done=False)),
    "lingering": _ending_with(End(0.0, body=False)),
    "tool-call": _tool_call,
    "cut-call": _cut_call,
    "crlf": _crlf,
    "one-byte": _one_byte,
    "replay": _replay,
    "text": _text,
    "json": _json,
    "echo": _echo,
}
