"""Text with styles, as lines for a terminal: Markdown, code, diffs. Everything is made harmless first."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping

from rich.console import Console
from rich.markdown import Markdown
from rich.text import Text

from halter.terminal.safe import safe

NARROWEST = 10
_DIFF = {"+": "green", "-": "red", "@": "cyan"}


class Renderer:
    """Renders for a terminal of some width. `color`: `auto`, `always` or `never`."""

    def __init__(self, color: str = "auto", environment: Mapping[str, str] = os.environ) -> None:
        self._no_color = color == "never" or (color == "auto" and bool(environment.get("NO_COLOR")))
        is_dumb = environment.get("TERM", "") in ("dumb", "unknown")
        self._system = None if is_dumb and color != "always" else _colors(environment)
        self._consoles: dict[int, Console] = {}

    def markdown(self, text: str, width: int) -> str:
        """An answer, or a block of it."""
        return self._lines(Markdown(safe(text), code_theme="ansi_dark", hyperlinks=False), width)

    def text(self, text: str, width: int, style: str = "") -> str:
        """Plain text, wrapped."""
        return self._lines(Text(safe(text), style=style), width)

    def diff(self, text: str, width: int) -> str:
        """Text in which lines of a diff are colored."""
        shown = Text()
        for line in safe(text).splitlines():
            shown.append(f"{line}\n", style=_DIFF.get(line[:1], ""))
        shown.rstrip()
        return self._lines(shown, width)

    def _lines(self, what: Markdown | Text, width: int) -> str:
        console = self._console(max(width, NARROWEST))
        with console.capture() as captured:
            console.print(what, soft_wrap=False)
        return "\n".join(line.rstrip(" ") for line in captured.get().rstrip("\n").split("\n"))

    def _console(self, width: int) -> Console:
        found = self._consoles.get(width)
        if found is None:
            self._consoles.clear()
            found = self._consoles[width] = Console(
                file=io.StringIO(),
                force_terminal=True,
                color_system=self._system,  # type: ignore[arg-type]
                no_color=self._no_color,
                width=width,
                height=25,
                legacy_windows=False,
                markup=False,
                emoji=False,
                highlight=False,
                _environ={},
            )
        return found


def _colors(environment: Mapping[str, str]) -> str:
    if environment.get("COLORTERM", "") in ("truecolor", "24bit"):
        return "truecolor"
    return "256" if "256" in environment.get("TERM", "") else "standard"
