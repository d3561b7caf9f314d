"""What stands below: the live lines, the question, the input line with its completions, and the status line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from prompt_toolkit.application import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, has_completions, is_done
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.layout import (
    BufferControl,
    CompletionsMenu,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.widgets import SearchToolbar

from halter.terminal.commands import COMMANDS
from halter.terminal.config import Config, data_directory

PROMPT = "› "
TALLEST_INPUT = 8  # lines
MOST_NAMES = 50


class PromptLines:
    """The lines below. `live`, `status`, `asks`: what they show now, by width; `asks` is empty without a question."""

    def __init__(
        self,
        config: Config,
        *,
        live: Callable[[], str],
        status: Callable[[], str],
        asks: Callable[[], str],
    ) -> None:
        self.draft = Buffer(
            name="draft",
            multiline=True,
            history=_history(config),
            completer=NamesCompleter(),
            complete_while_typing=Condition(lambda: self.draft.text.startswith("/")),
            enable_history_search=False,
        )
        self.answer = Buffer(name="answer", multiline=False, history=InMemoryHistory())
        self._asks = asks
        search = SearchToolbar(vi_mode=config.editing == "vi")
        self._draft_control = BufferControl(
            self.draft,
            input_processors=[BeforeInput(PROMPT)],
            search_buffer_control=search.control,
            preview_search=True,
        )
        self._answer_control = BufferControl(self.answer, input_processors=[BeforeInput(self._question)])
        is_asking = Condition(lambda: bool(asks()))
        root = HSplit(
            [
                _lines(lambda: ANSI(live()), lambda: bool(live())),
                ConditionalContainer(Window(self._answer_control, wrap_lines=True, height=_SHORT), is_asking),
                Window(self._draft_control, wrap_lines=True, height=_SHORT, dont_extend_height=True),
                ConditionalContainer(CompletionsMenu(max_height=6), has_completions & ~is_done),
                search,
                _lines(lambda: [("", status())], lambda: True),
            ]
        )
        self.layout = Layout(root, focused_element=self._draft_control)

    def focus(self) -> None:
        """The question takes the keys while there is one; the draft keeps what is in it."""
        if self.layout.search_links:
            return
        self.layout.focus(self._answer_control if self._asks() else self._draft_control)

    def _question(self) -> StyleAndTextTuples:
        return [("bold", f"{self._asks()} {PROMPT}")]


_SHORT = Dimension(min=1, max=TALLEST_INPUT)


def _lines(content: Callable[[], object], is_shown: Callable[[], bool]) -> ConditionalContainer:
    window = Window(FormattedTextControl(content), dont_extend_height=True, wrap_lines=False)  # type: ignore[arg-type]
    return ConditionalContainer(window, Condition(is_shown) & ~is_done)


def _history(config: Config) -> History:
    """What was typed, kept in a file that only its user reads; in memory where there can be none."""
    path = Path(config.history).expanduser() if config.history else data_directory() / "history"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


class NamesCompleter(Completer):
    """Completes `/commands`, and names of files behind `@`."""

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        if text.startswith("/") and " " not in text:
            for name, one in COMMANDS.items():
                if name.startswith(text[1:]):
                    yield Completion(f"/{name}", start_position=-len(text), display_meta=one.about)
            return
        word = document.get_word_before_cursor(WORD=True)
        if word.startswith("@"):
            for name in _names(word[1:]):
                yield Completion(f"@{name}", start_position=-len(word))


def _names(begun: str) -> list[str]:
    """Files and directories whose path begins so."""
    directory, _, start = begun.rpartition("/")
    try:
        with os.scandir(os.path.expanduser(directory + "/" if directory or begun.startswith("/") else ".")) as found:
            entries = [(each.name, each.is_dir()) for each in found if each.name.startswith(start)]
    except (OSError, ValueError):
        return []
    before = f"{directory}/" if "/" in begun else ""
    shown = [name + ("/" if is_directory else "") for name, is_directory in sorted(entries)]
    return [before + name for name in shown if (start or not name.startswith(".")) and name.isprintable()][:MOST_NAMES]


def bindings(add: Callable[[KeyBindings], None]) -> KeyBindings:
    """Key bindings that `add` fills."""
    found = KeyBindings()
    add(found)
    return found


def redraw() -> None:
    """Draws the running application's lines again, soon."""
    get_app().invalidate()
