"""One request and its answer: the record, the body as it comes, and then the player of a script."""

from time import monotonic
from urllib.parse import unquote

import msgspec

from halter.proof.wire.formats import Ask, AskError, Reciting, WireFormat
from halter.proof.wire.http1 import Head, json_response
from halter.proof.wire.modes import Mode, ModeError, Target, parse_mode, split_target
from halter.proof.wire.player import Player
from halter.proof.wire.provider import FORMATS, Provider, format_of
from halter.proof.wire.records import BODY_KEPT, Record
from halter.proof.wire.request import Line
from halter.proof.wire.steps import Script
from halter.proof.wire.voices import Occasion, StreamVoice, Voice, WholeVoice


class _Refused(Exception):
    """The request cannot be played; `status` and the message say why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Exchange:
    """A `Request` that is recorded."""

    def __init__(self, provider: Provider, line: Line, head: Head, connection: int, started: float) -> None:
        self._provider = provider
        self._line = line
        self._head = head
        self._body = bytearray()
        self._player: Player | None = None
        self._mode: Mode | None = None
        self._trouble: ModeError | None = None
        self._target = self._understand(head.target)
        self.record = Record(
            id=provider.journal.next_id(),
            tag=self._target.tag,
            mode=self._target.mode,
            connection=connection,
            path=unquote(head.target),
            headers=head.headers,
            started=started,
        )
        provider.journal.add(self.record)

    def __repr__(self) -> str:
        return f"<Exchange {self.record.id} {self.record.mode!r}, {self._player or 'reading'}>"

    @property
    def wants_no_body(self) -> bool:
        return self._mode is not None and self._mode.name == "no-read"

    def took(self, data: bytes) -> None:
        self._body += data
        self.record.body_bytes += len(data)

    def complete(self) -> None:
        self.record.body = self._body[:BODY_KEPT].decode("utf-8", "replace")
        try:
            self._answer(self._wire_format())
        except _Refused as refused:
            self._refuse(refused.status, str(refused))
        except (ModeError, AskError) as error:
            self._refuse(400, str(error))

    def pause(self) -> None:
        if self._player is not None:
            self._player.pause()

    def resume(self) -> None:
        if self._player is not None:
            self._player.resume()

    def drop(self) -> None:
        if self._player is not None:
            self._player.stop()

    def _understand(self, target: str) -> Target:
        # Never raises: what makes no sense is recorded and refused, but only once the body has been read.
        understood = Target("", "-", "")
        try:
            understood = split_target(target)
            self._mode = parse_mode(understood.mode)
        except ModeError as error:
            self._trouble = error
        return understood

    def _wire_format(self) -> WireFormat:
        if self._trouble is not None:
            raise self._trouble
        wire_format = format_of(self._target.endpoint)
        if wire_format is None:
            raise _Refused(404, f"no endpoint {self._target.endpoint}; there are: {', '.join(FORMATS)}")
        if self._head.method not in (("POST", "GET") if isinstance(wire_format, Reciting) else ("POST",)):
            raise _Refused(405, f"{self._target.endpoint} takes POST, not {self._head.method}")
        return wire_format

    def _answer(self, wire_format: WireFormat) -> None:
        assert self._mode is not None
        ask = self._ask(wire_format)
        script = self._provider.script(self._mode, self._target.tag, ask)
        voice = self._voice(wire_format, ask, script)
        self._player = Player(self._line, script.steps, voice, self.record, self._provider.journal, self._ended)
        self._player.play()

    def _ask(self, wire_format: WireFormat) -> Ask:
        follow_up = wire_format.read_target(self._head.target) if isinstance(wire_format, Reciting) else None
        return follow_up or wire_format.read(bytes(self._body))

    def _voice(self, wire_format: WireFormat, ask: Ask, script: Script) -> Voice:
        occasion = Occasion(wire_format, ask, script.words, script.style, self.record.id, self._head.keep_alive)
        streams = script.delivery == "stream" or (script.delivery == "as asked" and ask.stream)
        return StreamVoice(occasion) if streams else WholeVoice(occasion)

    def _refuse(self, status: int, message: str) -> None:
        content = {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}
        body = msgspec.json.encode(content)
        now = monotonic()
        self.record.sent(now, self._line.write(json_response(status, body, self._head.keep_alive)), tokens=0)
        self.record.finished_at = now
        self._provider.journal.entered(self.record, "finished")
        self._ended(keep_alive=True)

    def _ended(self, keep_alive: bool) -> None:
        self._line.ended(keep_alive=keep_alive and self._head.keep_alive)
