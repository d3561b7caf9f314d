"""`halter chat`: you, an agent, and the keys between you.

1. A turn is stopped by its own token, in whatever phase it is. 2. A stop keeps what was said, what you were typing, and
what waits to be sent. 3. However it ends, the terminal is as it was, and no run is left.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from typing import Any

from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.keys import Keys

from halter import events
from halter.errors import HalterError, UsageError
from halter.messages import Usage
from halter.models.prices import context_window
from halter.outcome import CancelMode, CancelReason, RunResult
from halter.terminal import logs
from halter.terminal.answers import choices, read_answer
from halter.terminal.commands import run_command, show_history
from halter.terminal.config import Config
from halter.terminal.desk import Desk
from halter.terminal.keys import ESCAPE_KEY, TerminalInput
from halter.terminal.mentions import message_of
from halter.terminal.prompt import PromptLines
from halter.terminal.receipts import tokens_and_cost
from halter.terminal.render import Renderer
from halter.terminal.safe import safe_line
from halter.terminal.screen import REDRAW_AT_MOST_EVERY, ChatApplication, Screen, output_for, reflows
from halter.terminal.turn import Turn
from halter.terminal.view import SPINNER, View

EVENTS_AT_ONCE = 64  # then keys are looked at
TICK = 0.125  # seconds
PATIENCE = 6.0  # seconds that leaving waits for a run's end
LONG_PASTE = (20, 2_000)  # lines, characters: more is shown as one word
HELLO = "Esc stops · /help · Ctrl-D leaves"


class Chat:
    """One chat in one terminal. `run` returns the exit code."""

    def __init__(self, desk: Desk, config: Config) -> None:
        self.desk = desk
        self.turn: Turn | None = None
        self.last_stopped: RunResult[Any] | None = None
        self.usage = Usage()
        self.cost: float | None = None
        self.turns = 0
        self._config = config
        self._asked: deque[events.InputRequested] = deque()
        self._queue: deque[str] = deque()
        self._pastes: dict[str, str] = {}
        self._interrupted_at = -1e9
        self._context = 0
        self._work: set[asyncio.Task[None]] = set()
        self._live = ("", 0.0)
        self._code: int | None = None
        self.lines = PromptLines(config, live=self._live_lines, status=self._status, asks=self._question)
        self._output = output_for(sys.stdout, os.environ.get("TERM"))
        self.app: ChatApplication = ChatApplication(
            layout=self.lines.layout,
            key_bindings=self._bindings(),
            input=TerminalInput(sys.stdin),
            output=self._output,
            editing_mode=EditingMode.VI if config.editing == "vi" else EditingMode.EMACS,
            min_redraw_interval=REDRAW_AT_MOST_EVERY,
            erase_when_done=True,
            mouse_support=False,
        )
        self.app.reflows = reflows()
        self.app.ttimeoutlen = config.escape_wait / 1000
        self.screen = Screen(self.app, self._output)
        self.view = View(self.screen, Renderer(config.color), config.reasoning)

    # --- its life -------------------------------------------------------------------------------------------

    async def run(self, first: str = "", *, is_continued: bool = False) -> int:
        """Until you leave: 0, or 130, or 128 and the signal that ended it."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._signalled, number)
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        loop.set_exception_handler(self._failed)
        try:
            with logs.said(lambda text: loop.call_soon_threadsafe(self.tell, text)):
                code = await self._run(first, is_continued)
        except EOFError:  # the terminal is gone
            code = 128 + signal.SIGHUP
        finally:
            await self._finish()
        return code if self._code is None else self._code

    async def _run(self, first: str, is_continued: bool) -> int:
        self.tell(f"{safe_line(self.desk.title)} · {HELLO}")
        for line in self._config.ignored:
            self.tell(f"ignored: {safe_line(line)}", "yellow")
        if is_continued:
            await self._told(show_history(self))
        if first:
            self.submit(first)
        self.screen.flush()
        return await self.app.run_async(handle_sigint=False, set_exception_handler=False)

    async def _finish(self) -> None:
        """No run is left, and nothing that it has started."""
        turn = self.turn
        if turn is not None:
            turn.stop("the chat ended", reason=CancelReason.SHUTDOWN)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                if turn is not None and turn.run is not None:
                    await turn.run.finished()
                await asyncio.gather(*self._work, return_exceptions=True)
                await self.desk.aclose()

    def leave(self, code: int) -> None:
        """Ends the chat with this exit code."""
        if self._code is None:
            self._code = code
        if self.turn is not None:
            self.turn.stop("the chat ended")
        if self.app.is_running and self.app.future is not None and not self.app.future.done():
            self.app.exit(result=code)

    def _signalled(self, number: int) -> None:
        self.leave(128 + number)

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error of our own: said, and gone on; a terminal that is gone ends it."""
        error = context.get("exception")
        if isinstance(error, OSError) and self._output.is_lost:
            self.leave(128 + signal.SIGHUP)
        else:
            self.tell(f"an error inside the terminal: {safe_line(repr(error or context.get('message')))}", "red")

    async def _told(self, work: Any) -> None:
        """Waits for it; an error is a line on the screen."""
        try:
            await work
        except HalterError as error:
            self.tell(safe_line(str(error)), "red")

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.tell(f"an error inside the terminal: {safe_line(repr(error))}", "red")

    # --- what is said ---------------------------------------------------------------------------------------

    @property
    def draft(self) -> str:
        """What you are typing."""
        return self.lines.draft.text

    @draft.setter
    def draft(self, text: str) -> None:
        self.lines.draft.text = text
        self.lines.draft.cursor_position = len(text)

    def tell(self, text: str, style: str = "dim") -> None:
        """Says something of our own; what it quotes is harmless already."""
        self.view.line(text, style)

    def submit(self, text: str) -> None:
        """Sends it: now, or behind the turn that is under way. Commands run at once."""
        if text.startswith("/"):
            self._spawn(run_command(self, text))
        elif text.startswith("!"):
            self._spawn(self._shell(text[1:]))
        elif self.turn is not None:
            self._queue.append(text)
        else:
            self._begin(text)

    def _begin(self, said: str) -> None:
        try:
            turn = Turn(said, message_of(self._unfolded(said)))
        except (UsageError, OSError) as error:
            self.tell(safe_line(str(error)), "red")
            return
        self.turn = turn
        self.turns += 1
        self.view.said(said)
        self.view.begin()
        self._spawn(self._take_turn(turn))

    def _unfolded(self, text: str) -> str:
        for word, pasted in self._pastes.items():
            text = text.replace(word, pasted)
        return text

    async def _take_turn(self, turn: Turn) -> None:
        try:
            await self.desk.start(turn)
            assert turn.run is not None
            self._spawn(self._tick(turn))
            await self._follow(turn)
            self._end_turn(turn, await turn.run.finished())
        except HalterError as error:
            self.view.flush_text()
            self.tell(f"✗ {safe_line(str(error))}", "red")
            self._keep_waiting_text()
        finally:
            self.turn = None
            self._asked.clear()
            self.lines.focus()
            self.screen.redraw()
        self._send_next()

    async def _tick(self, turn: Turn) -> None:
        """Time goes by in the lines below."""
        while self.turn is turn:
            self.screen.redraw()
            await asyncio.sleep(TICK)

    async def _follow(self, turn: Turn) -> None:
        assert turn.run is not None
        seen = 0
        async for event in turn.run.events():
            self._note(event)
            self.view.take(event)
            seen += 1
            if seen % EVENTS_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _note(self, event: events.Event) -> None:
        match event:
            case events.InputRequested():
                self.view.question(event.prompt)
                self._asked.append(event)
                self.lines.focus()
            case events.InputReceived():
                self._asked = deque(asked for asked in self._asked if asked.request_id != event.request_id)
                self.lines.answer.reset()
                self.lines.focus()
            case events.MessageFinished() if event.message.usage is not None:
                self._context = event.message.usage.total
            case _:
                pass

    def _end_turn(self, turn: Turn, result: RunResult[Any]) -> None:
        self.usage += result.usage
        self.cost = None if result.cost is None else (self.cost or 0.0) + result.cost
        if result.is_cancelled:
            self.last_stopped = result
        self._queue.extend(message.text for message in result.undelivered)
        if not result.is_completed:
            self._keep_waiting_text()
        self.view.end(result, turn.elapsed)

    def _keep_waiting_text(self) -> None:
        """What waits to be sent is in the prompt again: after a stop nothing begins by itself."""
        waiting = [*self._queue]
        self._queue.clear()
        if waiting:
            self.draft = "\n".join([*waiting, self.draft] if self.draft else waiting)

    def _send_next(self) -> None:
        if self._queue and self._code is None:
            self._begin(self._queue.popleft())

    async def _shell(self, command: str) -> None:
        """A command of your own, in your shell, with the terminal to itself."""
        if self.turn is not None:
            self.tell("!commands wait for the turn: stop it first, with Esc")
            return

        def call() -> None:
            before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the command's
            try:
                subprocess.run([shell, "-c", command], check=False, preexec_fn=_hears_interrupts)
            finally:
                signal.signal(signal.SIGINT, before)

        shell = os.environ.get("SHELL", "/bin/sh")
        await run_in_terminal(call)

    # --- keys -----------------------------------------------------------------------------------------------

    def stop(self, key: str, mode: CancelMode = CancelMode.IMMEDIATE) -> bool:
        """Stops the turn, if there is one; pressed again, it kills."""
        turn = self.turn
        if turn is None:
            return False
        turn.stop(key, mode=mode)
        self.screen.redraw()
        return True

    def _interrupt(self) -> None:
        """Ctrl-C: stops the turn; twice at the idle prompt it leaves."""
        if "ctrl-c" in self._config.stop_keys and self.stop("Ctrl-C"):
            return
        now = time.monotonic()
        if now - self._interrupted_at < self._config.leave_window:
            self.leave(128 + signal.SIGINT)
            return
        self._interrupted_at = now
        self.tell("Ctrl-C again leaves")

    def _escape(self, event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None:
            buffer.cancel_completion()
        elif "escape" in self._config.stop_keys and self.stop("Esc"):
            return
        elif self._config.editing == "vi":
            event.app.vi_state.input_mode = InputMode.NAVIGATION

    def _enter(self, event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer is self.lines.answer:
            self._answer(buffer.text)
            return
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None  # the choice is taken; another Enter sends
            return
        text = buffer.text.strip()
        if text:
            buffer.append_to_history()
            buffer.reset()
            self.submit(text)

    def _answer(self, typed: str) -> None:
        turn = self.turn
        if not self._asked or turn is None:
            return
        asked = self._asked[0]
        said = read_answer(asked, typed)
        self.lines.answer.reset()
        if said.problem:
            self.tell(said.problem, "yellow")
        else:
            self.tell(f"↳ {safe_line(str(said.value))}")
            self._spawn(self._told(self.desk.answer(turn, asked.request_id, said.value, said.reason)))

    def _steer(self, event: KeyPressEvent) -> None:
        turn, text = self.turn, self.draft.strip()
        if turn is not None and text:
            self.lines.draft.append_to_history()
            self.lines.draft.reset()
            self._spawn(self._steered(turn, text))

    async def _steered(self, turn: Turn, text: str) -> None:
        if await self.desk.steer(turn, self._unfolded(text)):
            self.view.flush_text()
            self.view.said(f"↳ {text}")
        else:
            self._queue.append(text)

    def _paste(self, event: KeyPressEvent) -> None:
        text = event.data.replace("\r\n", "\n").replace("\r", "\n")
        lines, most = LONG_PASTE
        if text.count("\n") >= lines or len(text) > most:
            word = f"[pasted {text.count(chr(10)) + 1} lines #{len(self._pastes) + 1}]"
            self._pastes[word] = text
            text = word
        event.current_buffer.insert_text(text)

    def _bindings(self) -> KeyBindings:
        keys = KeyBindings()
        is_empty = Condition(lambda: not self.draft)
        is_working = Condition(lambda: self.turn is not None)

        def interrupt(event: KeyPressEvent) -> None:
            self._interrupt()

        def leave(event: KeyPressEvent) -> None:
            self.leave(0)

        def suspend(event: KeyPressEvent) -> None:
            self.app.suspend_to_background()

        def newline(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        keys.add(ESCAPE_KEY, eager=True)(self._escape)
        keys.add("c-c", eager=True)(interrupt)
        keys.add("enter")(self._enter)
        keys.add("c-s", filter=is_working, eager=True)(self._steer)
        keys.add("c-d", filter=is_empty, eager=True)(leave)
        keys.add("c-z", eager=True)(suspend)
        keys.add(Keys.BracketedPaste, eager=True)(self._paste)
        keys.add("c-j")(newline)
        keys.add("escape", "enter")(newline)
        return keys

    # --- what stands below ----------------------------------------------------------------------------------

    def _live_lines(self) -> str:
        """The lines that change, rendered once for each drawing."""
        now = time.monotonic()
        if now - self._live[1] > REDRAW_AT_MOST_EVERY / 2:
            rows = max(3, self.screen.height - 10)
            waiting = [f"  next: {safe_line(text, self.screen.width - 10)}" for text in self._queue]
            live = self.view.live(self.screen.width, rows) if self.turn is not None else ""
            self._live = ("\n".join([*([live] if live else []), *waiting]), now)
        return self._live[0]

    def _question(self) -> str:
        return choices(self._asked[0]) if self._asked else ""

    def _status(self) -> str:
        turn = self.turn
        parts = [safe_line(self.desk.title)]
        if turn is not None:
            spinner = SPINNER[int(time.monotonic() * 8) % len(SPINNER)]
            what = "stopping" if turn.is_stopping else "asking" if self._asked else self.view.phase
            parts = [f"{spinner} {what} {turn.elapsed:.0f} s", "Esc stops", *parts]
        if self.usage.total:
            parts.append(tokens_and_cost(self.usage, self.cost))
        window = context_window(self.desk.model or "")
        if self._context and window:
            parts.append(f"{100 * self._context / window:.0f} % of the context")
        return " · ".join(parts)[: self.screen.width]


def _hears_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
