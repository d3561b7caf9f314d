"""Logs of random runs: agents that think, talk, call tools and ask, alone, in a row and within one another's tools.

A seed fixes the tree and where it is stopped. What a format shows of a log is compared with `told_by`, which reads the
log by itself.
"""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec

from halter import Agent, RunContext, events, runnable, tool
from halter.compose import Parallel, Sequential
from halter.core.runnable import Runnable
from halter.errors import ToolError
from halter.events import Event
from halter.messages import Message, Usage
from halter.models.scripted import FREE
from halter.request import ModelRequest
from halter.server.frames import StreamFormat
from halter.snapshot import Fold

WORDS = ["one ", "two", "\n\ndata: x\n\n", "ü€😀", '"quoted"', "\u2028", "[DONE]", ""]


@tool
async def give(text: str = "") -> str:
    """Gives it back."""
    return text


@tool
async def fail(text: str = "") -> str:
    """Fails."""
    raise ToolError(f"No: {text}")


@tool(approval="always")
async def ask(text: str = "") -> str:
    """Asks first."""
    return text


class Dice:
    """A model that answers at random, at most `turns` times."""

    name = "dice"
    price = FREE

    def __init__(self, source: random.Random, tools: list[str], turns: int) -> None:
        self._source = source
        self._tools = tools
        self._turns = turns

    async def respond(self, request: ModelRequest, ctx: RunContext) -> Message:
        source = self._source
        reply = ctx.reply(ctx.allowance(request, self.price))
        ids: dict[str, Any] = {"request_id": "q", "message_id": reply.message_id}
        ctx.write(events.ModelRequested, model=self.name, attempt=1, **ids)
        for _ in range(source.randint(0, 4)):
            show = source.choice([reply.text, reply.text, reply.reasoning])
            show(source.choice(WORDS))
            await ctx.drain()
        self._turns -= 1
        for place in range(source.randint(0, 3) if self._turns > 0 else 0):
            self._call(reply, place)
        if not reply.assembly.is_empty or not reply.shown:
            reply.text("End.")
        reply.assembly.usage = Usage(input=3, output=2, cached=1, reasoning=1)
        return reply.finish()

    def _call(self, reply: Any, place: int) -> None:
        source = self._source
        name = source.choice(self._tools)
        arguments = json.dumps({"input" if name == "inner" else "text": source.choice(WORDS)})
        if source.random() < 0.1:
            arguments = "{broken"
        cut = source.randint(0, len(arguments))
        late = source.random() < 0.3
        # Providers count from 0 in each answer, and some say the name after the first piece.
        reply.tool_fragment(place, f"call_{place}", None if late else name, arguments[:cut])
        reply.tool_fragment(place, None, name, arguments[cut:])


def _agent(source: random.Random, name: str, depth: int) -> Agent[Any]:
    tools: list[Any] = [give, fail, ask]
    names = ["give", "fail", "ask"]
    if depth and source.random() < 0.5:
        tools.append(_agent(source, "inner", 0).as_tool())
        names.append("inner")
    return Agent(Dice(source, names, source.randint(1, 3)), name=name, tools=tools)


@runnable
async def breaks(ctx: RunContext, given: str) -> None:
    """Fails."""
    raise RuntimeError("it broke")


def _tree(source: random.Random) -> Runnable[Any]:
    one, other = (_agent(source, name, 1) for name in ("a", "b"))
    last = source.choice([other, other, breaks])
    return source.choice([one, one, Sequential(one, last, name="row"), Parallel(one, other, name="wide")])


def random_log(seed: int) -> list[Event]:
    """All events of a random run."""
    source = random.Random(seed)
    run = _tree(source).run("Go.")
    stop_at = source.choice([None, source.randint(1, 60)])
    for number, event in enumerate(run):
        if isinstance(event, events.InputRequested):
            run.answer(event.request_id, source.choice(["yes", "no"]))
        if number == stop_at:
            run.cancel("enough")
    return list(run.events(after=0))


class Told(msgspec.Struct):
    """What a run told: its text, its calls as (name, outcome), its end. `is_wide`: several spoke at once.

    A call that was cut off before its arguments were whole has the outcome `cut`.
    """

    is_wide: bool = False
    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = msgspec.field(default_factory=list[tuple[str, str]])
    end: str = ""

    def settled(self) -> Told:
        """The same whatever the order was in which those spoke that spoke at once."""
        self.calls.sort()
        if self.is_wide:
            self.text, self.reasoning = "".join(sorted(self.text)), "".join(sorted(self.reasoning))
        return self


def pieces_of(format: StreamFormat, log: list[Event], seed: int) -> bytes:
    """All that a connection writes of a log, in batches of random sizes."""
    source, root = random.Random(seed), log[0].run_id
    fold = Fold(root)
    written = format.snapshot(fold.snapshot(), gap=None)
    place = 0
    while place < len(log) and not format.is_paused:
        size = source.choice([1, 3, 200])
        written += format.batch(log[place : place + size])
        place += size
    return written + format.end()


def told_by(log: list[Event]) -> Told:
    """What is to be shown of this log."""
    root = log[0].run_id
    started = {event.run_id: event for event in log if isinstance(event, events.Started)}

    def is_shown(id: str) -> bool:
        if id == root:
            return True
        above = started[id].parent_id if id in started else None
        return above in started and started[above].kind != "agent" and is_shown(above)

    told = Told(is_wide=started[root].kind == "parallel" if root in started else False)
    cut: dict[tuple[str, str], str] = {}
    for event in log:
        if not is_shown(event.run_id):
            continue
        match event:
            case events.ToolArgumentsDelta(name=name) if name:
                cut[event.run_id, event.call_id] = name
            case events.ToolCalled():
                cut.pop((event.run_id, event.call_id), None)
            case events.TextDelta():
                told.text += event.text
            case events.ReasoningDelta():
                told.reasoning += event.text
            case events.ToolFinished():
                told.calls.append((event.name, event.outcome))
            case events.Completed() | events.Failed() | events.Cancelled() if event.run_id == root:
                told.end = event.type.partition(".")[2]
            case _:
                pass
    told.calls += [(name, "cut") for name in cut.values()]
    return told.settled()
