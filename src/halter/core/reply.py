"""One assistant message on its way: assembled, numbered and shown as it comes. The hot path of every model.

After the cut nothing more is shown or kept: each method looks at the run's cell first.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from halter import checked, events
from halter.core.assembly import Assembly
from halter.core.ids import new_id
from halter.core.log import Log
from halter.core.tokens import estimate_input, estimate_parts, estimate_request
from halter.messages import PAUSED, Message, Reasoning, Refusal, Text, Usage

if TYPE_CHECKING:
    from halter.core.execution import Execution
    from halter.core.metering import Meter
    from halter.core.ports import Price
    from halter.request import ModelRequest


class Reply:
    """One assistant message while it is streamed: assembled, and shown as it comes. Home loop only."""

    __slots__ = (
        "_agent",
        "_cell",
        "_execution",
        "_log",
        "_parent_id",
        "_root_id",
        "_run_id",
        "_task",
        "_text",
        "asked",
        "assembly",
        "message_id",
        "meter",
        "price",
        "shown",
        "was_sent",
    )

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._cell = execution.cell
        self._log: Log = execution.log
        self._run_id: str = execution.id
        self._parent_id: str | None = execution.stamp["parent_id"]
        self._root_id: str = execution.root.id
        self._agent: str = execution.agent_stamp["agent"]
        self._task: str | None = execution.agent_stamp["task"]
        self.message_id = new_id()
        self.assembly = Assembly()
        self.shown = False
        self.was_sent = False  # a provider reads it, and bills its input
        self.asked: ModelRequest | None = None  # what it answers, where that is known
        self.price: Price | None = None  # of the model that is asked, where that is known
        self.meter: Meter | None = None  # charges the budgets over the run, where there are any
        self._text: list[str] | None = None
        execution.replies[self.message_id] = self
        execution.voice.pieces = []
        execution.voice.said = _paused(execution.conversation)

    def text(self, text: str) -> None:
        """Shows more of the answer. Raises `ConfigurationError` for what is no text."""
        if self._cell or not text:
            return
        if text.__class__ is not str:
            checked.text("the text of an answer", text)
        pieces = self._text
        if pieces is None:
            pieces = self._begin_text()
        pieces.append(text)
        if self.meter is not None:
            self.meter.shown.add(text)
        log = self._log
        seq = log.head + 1
        log.append(
            events.TextDelta(
                seq=seq,
                run_id=self._run_id,
                parent_id=self._parent_id,
                root_id=self._root_id,
                at=time.time(),
                agent=self._agent,
                task=self._task,
                text=text,
                message_id=self.message_id,
                first_seq=seq,
            )
        )

    def _begin_text(self) -> list[str]:
        self.shown = True
        self._execution.voice.begin()
        self._text = self._execution.voice.pieces = self.assembly.pieces(Text)
        return self._text

    def next_part(self) -> None:
        """What comes next begins a part of its own: for formats that answer in blocks."""
        self.assembly.end_pieces()
        self._text = None

    def reasoning(self, text: str) -> None:
        """Shows more of the model's thinking."""
        if self._cell or not text:
            return
        checked.text("the reasoning of an answer", text)
        self.shown = True
        self.assembly.pieces(Reasoning).append(text)
        if self.meter is not None:
            self.meter.shown.add(text)
        self._write_delta(events.ReasoningDelta, text=text, message_id=self.message_id)

    def refusal(self, text: str) -> None:
        """Shows more of a refusal: it is the answer, and is marked as what it is."""
        if self._cell or not text:
            return
        checked.text("the refusal of an answer", text)
        pieces = self.assembly.pieces(Refusal)
        if not self.shown:
            self._execution.voice.begin()
            self._execution.voice.pieces = pieces  # a refusal is an answer too
        self.shown = True
        pieces.append(text)
        if self.meter is not None:
            self.meter.shown.add(text)
        self._write_delta(events.TextDelta, text=text, message_id=self.message_id)

    def tool_fragment(self, key: int | str, id: str | None, name: str | None, fragment: str) -> None:
        """Shows more of a tool call. `key`: its index, or its id where there is no index."""
        if self._cell:
            return
        checked.text("the arguments of a tool call", fragment)
        checked.text("the id of a tool call", id or "")
        checked.text("the name of a tool call", name or "")
        self.shown = True
        call = self.assembly.call(key)
        call.id = id or call.id or new_id()
        call.name = name or call.name
        call.pieces.append(fragment)
        if fragment:
            if self.meter is not None:
                self.meter.shown.add(fragment)
            self._write_delta(events.ToolArgumentsDelta, call_id=call.id, fragment=fragment, name=call.name)

    def incomplete_call(self, key: int | str) -> None:
        """The provider says that it has cut this call off, whatever came of its arguments."""
        if not self._cell:
            self.assembly.call(key).incomplete = True

    def carry(self, provider: str, data: Any) -> None:
        """Keeps something that `provider` needs back unchanged, and that nobody else is shown."""
        if not self._cell:
            self.assembly.carry(provider, data)

    def _write_delta(self, kind: type[events.Event], /, **fields: Any) -> None:
        self._execution.write(kind, first_seq=self._log.head + 1, **fields)

    def finish(self) -> Message:
        """The whole message: in the log, in the history, and in the run's usage."""
        self.assembly.usage = self._final_usage()
        message = self.assembly.message()
        if self.message_id in self._execution.replies:
            for call in message.tool_calls:
                self._execution.write(events.ToolCalled, call_id=call.id, name=call.name, arguments=call.arguments)
            self._execution.announced = message.tool_calls
            return self._close(message)
        return message

    def seal(self) -> None:
        """Closes a message that a stop or a failure has cut off, as far as it came."""
        if self.assembly.is_empty:
            self._execution.replies.pop(self.message_id, None)
            if self.assembly.usage is not None or self.was_sent:
                usage = self._usage_so_far()
                self._count(usage)
                if self.meter is not None:
                    self.meter.settle(self.assembly.message(), usage)
            else:
                self.refund()
            return
        self.assembly.usage = self._usage_so_far()
        self._close(self.assembly.message(interrupted=True))

    def discard(self) -> None:
        """Forgets a message of which nothing was shown."""
        self._execution.replies.pop(self.message_id, None)

    def refund(self) -> None:
        """The request has not left, or was refused: nobody bills it. Not for one that something was shown of."""
        if self.shown:
            return
        self.was_sent = False
        if self.meter is not None:
            self.meter.refund()

    def _final_usage(self) -> Usage | None:
        """The provider's count of a whole answer; ours of what it has not counted (some say 0 to everything)."""
        counted = self.assembly.usage
        if counted is None and not self.was_sent:
            return None  # what a body says itself
        counted = counted or Usage()
        output = counted.output or estimate_parts(self.assembly.message().parts)
        input = counted.input or (self._estimate_input() if self.was_sent else 0)
        if (input, output) == (counted.input, counted.output):
            return counted
        return msgspec.structs.replace(counted, input=input, output=output, estimated=True)

    def _usage_so_far(self) -> Usage:
        """The provider's count of a whole answer; else what it has told so far, and our estimate of the rest."""
        counted = self.assembly.usage or Usage(estimated=True)
        if self.assembly.finish_reason is not None and not counted.estimated:
            return counted
        parts = self.assembly.message().parts
        thought = estimate_parts(part for part in parts if isinstance(part, Reasoning))
        said = estimate_parts(part for part in parts if not isinstance(part, Reasoning))
        output = max(counted.output, max(counted.reasoning, thought) + said)
        return msgspec.structs.replace(
            counted, input=counted.input or self._estimate_input(), output=output, estimated=True
        )

    def _estimate_input(self) -> int:
        if self.asked is not None:
            return estimate_request(self.asked)
        return estimate_input(self._execution.conversation)

    def _close(self, message: Message) -> Message:
        execution, meter = self._execution, self.meter
        execution.replies.pop(self.message_id, None)
        was_cut = meter is not None and meter.settle(message, message.usage or Usage())
        if was_cut:
            message = msgspec.structs.replace(message, interrupted=True)
        execution.add(message)
        execution.write(events.MessageFinished, message=message, message_id=self.message_id)
        if message.usage is not None:
            self._count(message.usage)
        if meter is not None:
            meter.stop(was_cut)
        return message

    def _count(self, usage: Usage) -> None:
        execution = self._execution
        execution.usage = execution.usage + usage
        if self.price is not None:
            execution.add_cost(self.price.cost(usage))
        elif self.was_sent:  # what a body says itself costs nothing
            execution.add_cost(None)
        execution.write(events.UsageUpdated, usage=execution.usage)


def _paused(conversation: list[Message]) -> str:
    """What has been said of an answer that its provider has paused, and now goes on with."""
    texts: list[str] = []
    for message in reversed(conversation):
        if message.finish_reason != PAUSED:
            break
        texts.append(message.text)
    return "".join(reversed(texts))
