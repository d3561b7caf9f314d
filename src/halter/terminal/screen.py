"""The screen: what was said scrolls up and is never drawn again; below it live a few lines that are.

1. Whatever is written above goes out in one piece with the lines below it: nothing flickers. 2. After a resize the old
lines below are found again, also where the terminal has wrapped them. 3. Only text that `Renderer` or `safe` has made
is written.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.utils import get_cwidth

FLUSH_AFTER = 0.03  # seconds in which what is written is gathered
REDRAW_AT_MOST_EVERY = 0.06


class HeldOutput(Vt100_Output):
    """Output that can be held back, and leaves in one piece then. `is_lost`: the terminal is gone."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.enable_cpr = False  # an answer of the terminal could not be told from keys where it comes late
        self.is_lost = False
        self._is_held = False

    def flush(self) -> None:
        if self._is_held:
            return
        try:
            super().flush()
        except OSError:
            self.is_lost = True

    @contextmanager
    def held(self) -> Generator[None]:
        """Within it nothing leaves."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
            self.flush()


class ChatApplication(Application[int]):
    """prompt_toolkit's application, which knows where its lines are after a resize."""

    reflows = False

    def _on_resize(self) -> None:
        if self.reflows:
            self._find_lines_again()
        super()._on_resize()

    def _find_lines_again(self) -> None:
        """The terminal has wrapped the lines above the cursor: count how many they are now."""
        renderer, screen = self.renderer, self.renderer.last_rendered_screen
        columns = self.output.get_size().columns
        if screen is None or columns <= 0:
            return
        at = renderer._cursor_pos
        rows = sum(-(-max(1, _length(screen.data_buffer[y])) // columns) for y in range(at.y))
        renderer._cursor_pos = Point(x=at.x % columns, y=rows + at.x // columns)


def _length(row: Mapping[int, Any]) -> int:
    """Columns up to the last character that is no space."""
    return max((x + get_cwidth(cell.char) for x, cell in row.items() if cell.char.strip()), default=0)


def reflows(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this terminal wraps lines anew when it becomes narrower, as far as its environment tells."""
    if environment.get("TMUX"):
        return True
    if environment.get("STY") or environment.get("XTERM_VERSION"):
        return False
    known = ("VTE_VERSION", "KITTY_WINDOW_ID", "WT_SESSION", "ALACRITTY_WINDOW_ID", "KONSOLE_VERSION", "WEZTERM_PANE")
    return any(map(environment.get, known)) or environment.get("TERM_PROGRAM", "") in (
        "iTerm.app",
        "vscode",
        "ghostty",
        "Apple_Terminal",
        "WezTerm",
    )


def output_for(stdout: TextIO, term: str | None) -> HeldOutput:
    """The terminal's output."""
    output = HeldOutput.from_pty(stdout, term=term)
    assert isinstance(output, HeldOutput)
    return output


class Screen:
    """Writes above the application's lines. Its own loop only.

    `render`: what is gathered is rendered when it leaves, for the width that the terminal has then.
    """

    def __init__(self, app: ChatApplication, output: HeldOutput) -> None:
        self._app = app
        self._output = output
        self._waiting: list[Callable[[int], str]] = []
        self._timer: asyncio.TimerHandle | None = None

    @property
    def width(self) -> int:
        """Columns that lines may have: one less than there are, so that no terminal wraps them."""
        return max(10, self._output.get_size().columns - 1)

    @property
    def height(self) -> int:
        return self._output.get_size().rows

    def write(self, render: Callable[[int], str]) -> None:
        """Writes what `render(width)` gives, soon."""
        self._waiting.append(render)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_AFTER, self.flush)

    def flush(self) -> None:
        """Writes what is gathered, now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        width = self.width
        text = "".join(f"{piece}\n" for render in waiting if (piece := render(width)))
        if not text:
            return
        if not self._app.is_running:
            self._output.write_raw(text.replace("\n", "\r\n"))
            self._output.flush()
            return
        with self._output.held():
            self._app.renderer.erase()
            self._output.write_raw(text.replace("\n", "\r\n"))
            self._app._redraw()

    def redraw(self) -> None:
        """The lines below have changed."""
        self._app.invalidate()
