"""The keyboard: prompt_toolkit's parser, with the Esc key told apart from everything else that begins with its byte.

1. A lone Esc byte is the Esc key once nothing has followed it for the escape wait, and nothing waits to be read.
2. What follows it in one read, or within the wait, makes it an Alt key or a sequence. 3. Sequences that mean no key
(focus reports, answers of the terminal) are dropped, and never typed into the prompt. 4. A paste whose end never comes
ends.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Final, TextIO

from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

ESCAPE_KEY: Final = Keys.ControlF24  # a key that no keyboard has stands for the Esc key alone
PASTE_PATIENCE = 1.0  # seconds without a byte after which a paste is over
PASTE_ENDS = "\x1b[201~"
_STRINGS = "]P_^X"  # OSC, DCS, APC, PM, SOS: up to BEL or ESC \
LONGEST = 4096


class TerminalInput(Vt100Input):
    """The terminal's input. `read_keys` and `flush_keys` are called by prompt_toolkit."""

    def __init__(self, stdin: TextIO) -> None:
        super().__init__(stdin)
        self._reports = Reports()
        self._ready: Callable[[], None] = lambda: None

    def attach(self, input_ready_callback: Callable[[], None]) -> AbstractContextManager[None]:
        self._ready = input_ready_callback
        return super().attach(input_ready_callback)

    def read_keys(self) -> list[KeyPress]:
        return self._reports.without(super().read_keys())

    def flush_keys(self) -> list[KeyPress]:
        """What the escape wait has ended: a lone Esc byte is the Esc key now."""
        if select.select([self.fileno()], [], [], 0)[0]:
            return []  # we are late: the rest of a sequence is there, and is read next
        if self.vt100_parser._in_bracketed_paste:
            asyncio.get_running_loop().call_later(PASTE_PATIENCE, self._end_paste, self._pasted())
            return []
        keys = self._reports.rest(super().flush_keys())
        if all(key.key == Keys.Escape for key in keys):
            return [KeyPress(ESCAPE_KEY, "") for _ in keys]
        return keys

    def _pasted(self) -> int:
        return len(self.vt100_parser._paste_buffer)

    def _end_paste(self, pasted: int) -> None:
        if self.vt100_parser._in_bracketed_paste and self._pasted() == pasted:
            self.vt100_parser.feed(PASTE_ENDS)
            self._ready()


class Reports:
    """Takes sequences that are no keys out of what the parser gives, also where they are split over reads."""

    def __init__(self) -> None:
        self._held: list[KeyPress] = []

    def without(self, keys: Iterable[KeyPress]) -> list[KeyPress]:
        """The keys; a sequence that is not whole yet is held back."""
        found: list[KeyPress] = []
        for key in keys:
            held = self._held
            if not held and key.key == Keys.Escape:
                held.append(key)
            elif not held:
                found.append(key)
            elif len(held) == 1 and key.key not in ("[", *_STRINGS):
                found += [*held, key]
                held.clear()
            elif len(held) > 1 and self._ends(key):
                held.clear()
            elif len(held) >= LONGEST or (len(held) > 1 and held[1].key == "[" and len(str(key.key)) > 1):
                found += [*held, key]  # no sequence after all
                held.clear()
            else:
                held.append(key)
        return found

    def rest(self, keys: list[KeyPress]) -> list[KeyPress]:
        """At the end of the wait: what was held back is typed text."""
        held, self._held = self._held, []
        return [*held, *keys]

    def _ends(self, key: KeyPress) -> bool:
        if self._held[1].key == "[":
            return len(key.key) == 1 and "\x40" <= key.key <= "\x7e"
        return key.key == Keys.ControlG or (key.key == "\\" and self._held[-1].key == Keys.Escape)
