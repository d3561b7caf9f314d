"""What a run says: its own answer so far, or that of the child which speaks for it.

1. A run's text is its last message's. 2. A run made of others speaks through one of them at a time; its text, and what
`text_stream` reads, is that one's. 3. A run that chooses its speaker hears of each that is about to speak.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halter.core.execution import Execution


class Voice:
    """The voice of one run. `pieces`: the text that is being shown; `said`: before these, in the same answer."""

    __slots__ = ("_joined", "_run", "_speaker", "_voices", "on_voice", "pieces", "said")

    def __init__(self, run: Execution) -> None:
        self._run = run
        self.pieces: list[str] = []
        self.said = ""
        self._joined: tuple[list[str] | None, int, str] = (None, 0, "")
        self._speaker: Execution | None = None  # whose answer is this run's own, if it is a child's
        self._voices: set[str] | None = None  # all whose answers were
        self.on_voice: Callable[[Execution], object] | None = None  # chooses the speaker, of those that begin to speak

    @property
    def text(self) -> str:
        """The answer so far."""
        voice = self
        while (speaker := voice._speaker) is not None:  # a speaker may have one itself
            if speaker.result is not None:
                return speaker.result.text
            voice = speaker.voice
        return voice._own_text()

    def _own_text(self) -> str:
        pieces, (of, count, joined) = self.pieces, self._joined
        if of is not pieces:
            count, joined = 0, ""
        new = pieces[count:]
        if new:  # asked for after each token, as people do, the whole must not be put together anew
            joined += "".join(new)
            self._joined = (pieces, count + len(new), joined)
        return self.said + joined if self.said else joined

    def speaks_as(self, run_id: str) -> bool:
        """True if the text of that run is this one's own; also after the end."""
        return run_id == self._run.id or (self._voices is not None and run_id in self._voices)

    def speak_through(self, child: Execution) -> None:
        """The child's answer is this run's own, and so that of the runs that speak through this one.

        The run itself as its child: its own words are its answer again.
        """
        if child is self._run:
            self._speaker = None
            return
        self._speaker = child
        above: Execution | None = self._run
        while above is not None:
            above.voice.add(child)
            above = above.parent if above.parent is not None and above.parent.voice.speaks_as(above.id) else None
        if child.text:  # what it has said before counts from here on
            self._be_heard()

    def add(self, child: Execution) -> None:
        """What the child says, and has others say for it, is said for this run."""
        self._voices = self._voices or set()
        self._voices.update((child.id, *(child.voice._voices or ())))

    def begin(self) -> None:
        """The run is about to show text: it itself, and those above, hear of it first if they choose their speaker."""
        if self.on_voice is not None:
            self.on_voice(self._run)
        self._be_heard()

    def _be_heard(self) -> None:
        child = self._run
        while (above := child.parent) is not None:
            if above.voice.on_voice is not None:
                above.voice.on_voice(child)
            if not above.voice.speaks_as(child.id):
                return
            child = above

    def end(self) -> None:
        """From here on the text is the result's."""
        self.pieces, self.said, self._joined = [], "", (None, 0, "")
        self._speaker = self.on_voice = None
