"""The events of a run, as a person reads them: text, reasoning, tools, questions, and how it ended."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from halter import events
from halter.outcome import RunResult
from halter.terminal.blocks import Blocks
from halter.terminal.receipts import in_one_line, tokens_and_cost
from halter.terminal.render import Renderer
from halter.terminal.safe import safe, safe_line
from halter.terminal.screen import Screen

LIVE_OUTPUT = 3  # last lines of a running tool
RESULT_LINES = 4  # of a finished one
KEPT_OUTPUT = 2_000  # characters of it
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


@dataclass
class RunningTool:
    """A tool call that is not over."""

    name: str = ""
    arguments: str = ""
    output: str = ""
    began: float = field(default_factory=time.monotonic)
    is_running: bool = False


class View:
    """Shows one run after the other. `reasoning`: folded, shown or hidden."""

    def __init__(self, screen: Screen, renderer: Renderer, reasoning: str) -> None:
        self._screen = screen
        self._renderer = renderer
        self._reasoning = reasoning
        self.phase = ""
        self.begin()

    def begin(self) -> None:
        """A new run."""
        self.blocks = Blocks()
        self.tools: dict[tuple[str, str], RunningTool] = {}
        self._thinking: list[str] = []
        self._thinking_since = 0.0
        self._speaker = ""
        self._root = ""
        self._hidden: set[str] = set()
        self.phase = "waiting"

    # --- above: written once --------------------------------------------------------------------------------

    def markdown(self, text: str) -> None:
        self._screen.write(partial(self._renderer.markdown, text))

    def line(self, text: str, style: str = "dim") -> None:
        """One paragraph of our own words; what it quotes is made harmless."""
        self._screen.write(lambda width: self._renderer.text(text, width, style))

    def said(self, text: str) -> None:
        """What you said."""
        self._screen.write(lambda width: "\n" + self._renderer.text(f"› {text}", width, "bold") + "\n")

    def question(self, prompt: str) -> None:
        """What somebody is asked; a diff in colors."""
        self.flush_text()
        self._screen.write(lambda width: self._renderer.diff(prompt, width))
        self._screen.flush()

    def flush_text(self) -> None:
        """The tail is complete."""
        self._end_thinking()
        for block in self.blocks.end():
            self.markdown(block)

    # --- events ---------------------------------------------------------------------------------------------

    def take(self, event: events.Event) -> None:
        """Shows one event of the tree."""
        self._root = self._root or event.root_id
        if self._is_hidden(event):
            return
        match event:
            case events.TextDelta():
                self._text(event)
            case events.ReasoningDelta():
                self._think(event.text)
            case events.MessageFinished():
                self.flush_text()
            case events.ModelRequested():
                self.phase = "waiting"
            case events.ModelRetry():
                cause = safe_line(event.cause.message, 120)
                self.line(
                    f"the provider failed ({cause}): attempt {event.attempt + 1} in {event.delay:.1f} s", "yellow"
                )
            case events.Handoff():
                self.line(f"{safe_line(event.from_agent)} hands over to {safe_line(event.to_agent)}")
            case events.CompactionStarted():
                self.phase = "compacting"
            case events.CompactionFinished():
                self._compacted(event)
            case _:
                self._take_tool(event)
        self._screen.redraw()

    def _is_hidden(self, event: events.Event) -> bool:
        """What a run says that writes a summary is not said to you."""
        if isinstance(event, events.Started) and event.kind == "compaction":
            self._hidden.add(event.run_id)
        if event.parent_id in self._hidden:
            self._hidden.add(event.run_id)
        return event.run_id in self._hidden

    def _text(self, event: events.TextDelta) -> None:
        self.phase = "answering"
        self._end_thinking()
        if event.run_id != self._root and event.agent and event.agent != self._speaker:
            self.flush_text()
            self.line(f"{safe_line(event.agent)}:", "bold dim")
        self._speaker = event.agent or ""
        for block in self.blocks.feed(event.text):
            self.markdown(block)

    def _think(self, text: str) -> None:
        self.phase = "reasoning"
        self._thinking_since = self._thinking_since or time.monotonic()
        self._thinking.append(text)

    def _end_thinking(self) -> None:
        if not self._thinking:
            return
        text, self._thinking = "".join(self._thinking), []
        took, self._thinking_since = time.monotonic() - self._thinking_since, 0.0
        if self._reasoning == "shown":
            self.line(text.strip(), "dim italic")
        elif self._reasoning == "folded":
            self.line(f"✻ thought for {took:.0f} s, {len(text.split())} words")

    def _compacted(self, event: events.CompactionFinished) -> None:
        self.phase = "waiting"
        if event.outcome == "ok":
            self.line(f"the conversation was compacted: {event.tokens_before:,} → {event.tokens_after or 0:,} tokens")
        else:
            why = f": {safe_line(event.error.message, 120)}" if event.error else ""
            self.line(f"the conversation was not compacted ({event.outcome}){why}")

    # --- tools ----------------------------------------------------------------------------------------------

    def _take_tool(self, event: events.Event) -> None:
        match event:
            case events.ToolArgumentsDelta():
                self.phase = "writing a call"
                tool = self._tool(event)
                tool.name = tool.name or event.name
                tool.arguments += event.fragment
            case events.ToolCalled():
                self.flush_text()
                tool = self._tool(event)
                tool.name, tool.arguments = event.name, event.arguments
            case events.ToolStarted():
                self.phase = "running"
                tool = self._tool(event)
                tool.is_running, tool.began = True, time.monotonic()
            case events.ToolProgress():
                tool = self._tool(event)
                tool.output = (tool.output + event.text)[-KEPT_OUTPUT:]
            case events.ToolFinished():
                self._finish(event)
            case _:
                pass

    def _tool(self, event: Any) -> RunningTool:
        return self.tools.setdefault((event.run_id, event.call_id), RunningTool())

    def _finish(self, event: events.ToolFinished) -> None:
        self.phase = "waiting"
        tool = self.tools.pop((event.run_id, event.call_id), RunningTool())
        mark, style = ("●", "green") if event.outcome == "ok" else ("●", "red")
        head = f"{mark} {safe_line(event.name)} {safe_line(tool.arguments, 160)}"
        how = "" if event.outcome == "ok" else f" {event.outcome},"
        self.line(f"{head} —{how} {event.elapsed:.1f} s", style)
        shown = [line for line in safe(str(event.result)).splitlines() if line.strip()]
        more = f"\n  … {len(shown) - RESULT_LINES} more lines" if len(shown) > RESULT_LINES else ""
        if shown:
            self.line("\n".join(f"  {line[:200]}" for line in shown[:RESULT_LINES]) + more)

    # --- below: drawn again and again -----------------------------------------------------------------------

    def live(self, width: int, rows: int) -> str:
        """The lines that change: the tail of the text, reasoning, tools that run."""
        parts: list[str] = []
        if self._thinking and self._reasoning != "hidden":
            parts.append(
                self._renderer.text(f"✻ {safe_line(''.join(self._thinking[-50:]))[-3 * width :]}", width, "dim")
            )
        if (tail := self.blocks.tail).strip():
            parts.append(self._renderer.markdown(tail, width))
        parts += [self._live_tool(tool, width) for tool in self.tools.values()]
        lines = "\n".join(part for part in parts if part).split("\n")
        return "\n".join(lines[-max(1, rows) :])

    def _live_tool(self, tool: RunningTool, width: int) -> str:
        elapsed = f" {time.monotonic() - tool.began:.0f} s" if tool.is_running else ""
        head = f"○ {safe_line(tool.name)} {safe_line(tool.arguments, max(20, width - 30))}{elapsed}"
        lines = [f"  {line[: width - 2]}" for line in safe(tool.output).splitlines()[-LIVE_OUTPUT:]]
        return self._renderer.text("\n".join([head, *lines]), width, "dim")

    # --- the end --------------------------------------------------------------------------------------------

    def end(self, result: RunResult[Any], took: float) -> None:
        """The run is over: one line says how."""
        self.flush_text()
        self.tools.clear()
        self.phase = ""
        spent = tokens_and_cost(result.usage, result.cost)
        if result.is_completed:
            self.line(f"─ {took:.1f} s · {spent}")
        elif result.is_cancelled:
            self.line(f"■ {in_one_line(result)} · {spent} · /receipt", "yellow")
        else:
            self.line(f"✗ {safe_line(result.why())}", "red")
        self._screen.flush()
