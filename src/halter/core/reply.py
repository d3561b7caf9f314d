"""One assistant message on its way: assembled, numbered and shown as it comes. The hot path of every model.

After the cut nothing more is shown or kept: each method looks at the run's cell first.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from halter import events
from halter.core.assembly import Assembly
from halter.core.ids import new_id
from halter.core.log import Log
from halter.messages import Message, Reasoning, Refusal, Text, Usage

if TYPE_CHECKING:
    from halter.core.execution import Execution


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
        "_text",
        "assembly",
        "message_id",
        "shown",
    )

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._cell = execution.cell
        self._log: Log = execution.log
        self._run_id: str = execution.id
        self._parent_id: str | None = execution.stamp["parent_id"]
        self._root_id: str = execution.root.id
        self._agent: str = execution.definition.name
        self.message_id = new_id()
        self.assembly = Assembly()
        self.shown = False
        self._text: list[str] | None = None
        execution.replies[self.message_id] = self
        execution.pieces = []

    def text(self, text: str) -> None:
        """Shows more of the answer."""
        if self._cell or not text:
            return
        pieces = self._text
        if pieces is None:
            pieces = self._begin_text()
        pieces.append(text)
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
                task=None,
                text=text,
                message_id=self.message_id,
                first_seq=seq,
            )
        )

    def _begin_text(self) -> list[str]:
        self.shown = True
        self._text = self._execution.pieces = self.assembly.pieces(Text)
        return self._text

    def reasoning(self, text: str) -> None:
        """Shows more of the model's thinking."""
        if self._cell or not text:
            return
        self.shown = True
        self.assembly.pieces(Reasoning).append(text)
        self._write_delta(events.ReasoningDelta, text=text, message_id=self.message_id)

    def refusal(self, text: str) -> None:
        """Shows more of a refusal: it is the answer, and is marked as what it is."""
        if self._cell or not text:
            return
        pieces = self.assembly.pieces(Refusal)
        if not self.shown:
            self._execution.pieces = pieces  # a refusal is an answer too
        self.shown = True
        pieces.append(text)
        self._write_delta(events.TextDelta, text=text, message_id=self.message_id)

    def tool_fragment(self, key: int | str, id: str | None, name: str | None, fragment: str) -> None:
        """Shows more of a tool call. `key`: its index, or its id where there is no index."""
        if self._cell:
            return
        self.shown = True
        call = self.assembly.call(key)
        call.id = id or call.id or new_id()
        call.name = name or call.name
        call.pieces.append(fragment)
        if fragment:
            self._write_delta(events.ToolArgumentsDelta, call_id=call.id, fragment=fragment)

    def _write_delta(self, kind: type[events.Event], /, **fields: Any) -> None:
        self._execution.write(kind, first_seq=self._log.head + 1, **fields)

    def finish(self) -> Message:
        """The whole message: in the log, in the history, and in the run's usage."""
        message = self.assembly.message()
        if self.message_id in self._execution.replies:
            for call in message.tool_calls:
                self._execution.write(events.ToolCalled, call_id=call.id, name=call.name, arguments=call.arguments)
            self._close(message)
        return message

    def seal(self) -> None:
        """Closes a message that a stop or a failure has cut off, as far as it came."""
        if self.assembly.is_empty:
            self._execution.replies.pop(self.message_id, None)
            return
        self.assembly.usage = self.assembly.usage or self._estimate()
        self._close(self.assembly.message(interrupted=True))

    def discard(self) -> None:
        """Forgets a message of which nothing was shown."""
        self._execution.replies.pop(self.message_id, None)

    def _estimate(self) -> Usage:
        """Four characters a token: OpenAI's rule of thumb for English text."""
        asked = sum(len(message.text) for message in self._execution.conversation)
        return Usage(input=asked // 4, output=-(-self.assembly.characters() // 4), estimated=True)

    def _close(self, message: Message) -> None:
        execution = self._execution
        execution.replies.pop(self.message_id, None)
        execution.conversation.append(message)
        execution.write(events.MessageFinished, message=message, message_id=self.message_id)
        if message.usage is not None:
            execution.usage = execution.usage + message.usage
            execution.write(events.UsageUpdated, usage=execution.usage)
