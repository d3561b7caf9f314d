"""What all connections share: the journal, formats, recordings, and how often each mode was asked for."""

import resource
import sys
import time
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

from halter.proof.wire.anthropic_format import AnthropicFormat
from halter.proof.wire.chat_format import AzureChatFormat, ChatFormat
from halter.proof.wire.formats import Ask, WireFormat
from halter.proof.wire.gemini_format import GeminiFormat
from halter.proof.wire.journal import Journal
from halter.proof.wire.modes import Mode
from halter.proof.wire.records import Stats
from halter.proof.wire.responses_format import ResponsesFormat
from halter.proof.wire.scripts import Situation, script_for
from halter.proof.wire.steps import Script

_CHAT = ChatFormat()
_AZURE = AzureChatFormat()
# Endpoint → its format; a `*` stands for a name inside the path.
FORMATS: dict[str, WireFormat] = {
    "/v1/messages": AnthropicFormat(),
    "/v1/chat/completions": _CHAT,
    "/openai/v1/chat/completions": _AZURE,
    "/openai/deployments/*/chat/completions": _AZURE,
    "/v1/responses": ResponsesFormat(),
    "/v1/responses/*/cancel": ResponsesFormat("cancel"),
    "/v1/responses/*": ResponsesFormat("rest"),
    "/openai/v1/responses": ResponsesFormat(),
    "/openai/v1/responses/*/cancel": ResponsesFormat("cancel"),
    "/openai/v1/responses/*": ResponsesFormat("rest"),
    "/v1*/models/*:streamGenerateContent": GeminiFormat(stream=True),
    "/v1*/models/*:generateContent": GeminiFormat(stream=False),
}


def format_of(endpoint: str) -> WireFormat | None:
    """The format that is spoken at an endpoint."""
    return next((spoken for pattern, spoken in FORMATS.items() if fnmatchcase(endpoint, pattern)), None)


class Provider:
    """The state of the provider process."""

    def __init__(self, recordings: Path | None = None) -> None:
        self.journal = Journal()
        self.open_connections = 0
        self._recordings = recordings
        self._asked: Counter[tuple[str, str]] = Counter()
        self._connections = 0

    def __repr__(self) -> str:
        return f"<Provider with {self.open_connections} open connections, {self.journal!r}>"

    def next_connection(self) -> int:
        self._connections += 1
        return self._connections

    def script(self, mode: Mode, tag: str, ask: Ask) -> Script:
        """Decide the answer. Raises `ModeError`."""
        earlier = self._asked[tag, mode.text]
        self._asked[tag, mode.text] += 1
        return script_for(Situation(mode, ask, earlier, self._recordings))

    def clear(self) -> None:
        """Forget all records, and that `rate-limit` and `status` have refused before."""
        self.journal.clear()
        self._asked.clear()

    def stats(self) -> Stats:
        return Stats(
            open_connections=self.open_connections,
            total_requests=self.journal.total,
            cpu_seconds=time.process_time(),
            rss_bytes=_rss_bytes(),
        )


def _rss_bytes() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize()
    except OSError:
        # Without /proc the peak has to do; macOS counts it in bytes, others in KiB.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
